// Queue pairs of local ranks that other queues of the port carry. Their indices have the top bit set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/queues/queue_links.h"

namespace etloop {

class FarEnds {
 public:
  static constexpr uint32_t kMark = 1U << 31;
  static constexpr bool is_far(uint32_t queue_pair) { return (queue_pair & kMark) != 0; }

  // Add a queue pair; returns its local index.
  uint32_t add(int32_t port, uint32_t qpn, uint32_t remote_qpn) {
    if (std::find(carriers_.begin(), carriers_.end(), port) == carriers_.end()) carriers_.push_back(port);
    ends_.push_back({port, qpn, remote_qpn});
    return kMark | static_cast<uint32_t>(ends_.size() - 1);
  }
  uint32_t remote_qpn(uint32_t queue_pair) const { return ends_[queue_pair & ~kMark].remote_qpn; }
  // Set the peer's number, which a card assigns only when it comes up.
  void set_remote_qpn(uint32_t queue_pair, uint32_t qpn) { ends_[queue_pair & ~kMark].remote_qpn = qpn; }
  bool empty() const { return ends_.empty(); }
  void join(QueueLinks& links) { links_ = &links; }

  void post(uint32_t queue_pair, const WorkRequest& request) {
    const End& end = ends_[queue_pair & ~kMark];
    if (carries_data(request.kind)) handed_tx_bytes_ += request.bytes;
    links_->post(end.port, QueueRequest{end.qpn, request});
  }
  // Report to every carrying queue that the ranks here have finished.
  void report_over() {
    for (const int32_t port : carriers_) links_->post(port, HomeOver{});
  }
  int64_t given_tx_bytes() const { return handed_tx_bytes_; }

 private:
  struct End {
    int32_t port;
    uint32_t qpn;
    uint32_t remote_qpn;
  };
  std::vector<End> ends_;
  std::vector<int32_t> carriers_;
  QueueLinks* links_ = nullptr;
  int64_t handed_tx_bytes_ = 0;
};

}  // namespace etloop
