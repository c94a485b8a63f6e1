// The requests of a queue pair in posting order: completed but not popped, awaiting answers, and to be sent. Assigns their PSNs;
// sends nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/prefetch.h"
#include "cc/ack_outcome.h"
#include "qp/work.h"
#include "wire/wire.h"

namespace etloop {

class RequestRing {
 public:
  // The first request starts at `first_psn`; full packets have 2^mtu_shift bytes. Requests are stored in `memory`, which outlives
  // this.
  RequestRing(uint32_t first_psn, uint32_t mtu_shift, std::pmr::memory_resource& memory)
      : ring_(&memory), post_psn_(first_psn), mtu_shift_(mtu_shift) {}

  void post(const WorkRequest& request);
  // Whether no request is in flight or to be sent.
  bool empty() const { return head_ == tail_; }

  // Whether a request is left to send, and whether it may begin: at most `limit` READs and atomics await responses at a time.
  bool any_to_send() const { return sending_ != tail_; }
  // PSN after the last posted request.
  uint32_t end_psn() const { return post_psn_; }
  bool may_begin(uint32_t limit) const {
    return waiting_ == 0 || outstanding_ < limit || !waits_for_response(entry(sending_).kind);
  }
  WorkRequest& next() { return entry(sending_); }
  const WorkRequest& next() const { return entry(sending_); }
  // The current request was sent completely.
  void advance() {
    if (waits_for_response(entry(sending_).kind)) ++outstanding_;
    ++sending_;
  }
  // Retransmit from `psn` on.
  void rewind(uint32_t psn);
  void expect_next() const {
    if (!ring_.empty()) prefetch(&entry(sending_));
  }

  // The oldest incomplete request; nullptr: none.
  const WorkRequest* oldest() const { return empty() ? nullptr : &entry(head_); }

  // Whether any READ or atomic is incomplete.
  bool any_responses() const { return waiting_ != 0; }
  // The request that a PSN belongs to; requires an incomplete one.
  WorkRequest& at_psn(uint32_t psn);
  // An acknowledgement of all packets before `end` completes all requests except READs and atomics, which complete only by their
  // responses. Returns how far it reaches, from `oldest` on.
  uint32_t acknowledgeable_to(uint32_t end, uint32_t oldest) const {
    return waiting_ == 0 ? end : first_response_before(end, oldest);
  }
  // All packets before `oldest` are acknowledged: complete requests, and add the new bytes to `outcome`.
  void complete_before(uint32_t oldest, AckOutcome& outcome);
  // Complete all incomplete requests as flushed.
  void flush();
  // Pop the next completed request; false: none is left.
  bool pop_completed(WorkRequest& done) {
    if (completed_ == head_) return false;
    done = entry(completed_++);
    return true;
  }

 private:
  WorkRequest& entry(uint64_t position) { return ring_[position & (ring_.size() - 1)]; }
  const WorkRequest& entry(uint64_t position) const { return ring_[position & (ring_.size() - 1)]; }
  static uint32_t end_of(const WorkRequest& request) { return (request.first_psn + request.packets) & wire::kPsnMask; }
  uint32_t first_response_before(uint32_t end, uint32_t oldest) const;

  // Requests [head_, tail_) are posted, [head_, sending_) fully sent, [completed_, head_) completed.
  uint64_t sending_ = 0;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
  uint32_t waiting_ = 0;      // READs and atomics in [head_, tail_)
  uint32_t outstanding_ = 0;  // of those, in [head_, sending_)
  std::pmr::vector<WorkRequest> ring_;  // power of two, empty until the first post
  uint64_t completed_ = 0;
  uint32_t post_psn_;
  uint32_t head_bytes_counted_ = 0;  // payload of entry(head_) already reported in an AckOutcome
  uint32_t mtu_shift_;
};

// Called for every acknowledgement: inline.

inline void RequestRing::complete_before(uint32_t oldest, AckOutcome& outcome) {
  while (head_ != tail_) {
    const WorkRequest& first = entry(head_);
    const bool carries = !waits_for_response(first.kind);
    if (wire::psn_distance(end_of(first), oldest) > 0) {
      if (!carries || wire::psn_distance(oldest, first.first_psn) <= 0) break;
      const auto bytes = static_cast<uint32_t>(wire::psn_distance(oldest, first.first_psn)) << mtu_shift_;
      outcome.bytes += bytes - head_bytes_counted_;
      head_bytes_counted_ = bytes;
      break;
    }
    if (carries) {
      outcome.bytes += first.bytes - head_bytes_counted_;
    } else {
      --waiting_;
      if (head_ < sending_) --outstanding_;
    }
    head_bytes_counted_ = 0;
    ++head_;
  }
  if (sending_ < head_) sending_ = head_;
}

}  // namespace etloop
