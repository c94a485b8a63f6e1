// The link of a receiving port in the simulation: one packet at a time, queue pairs in turn, as behind a switch with fair
// queueing. Acknowledgements and grants bypass the queue, as in their own traffic class. The caller owns and delivers the
// packets.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/line_clock.h"

namespace etloop {

struct LinkItem {
  int32_t frame = -1;
  int64_t link_bytes = 0;
  uint64_t order = 0;
};

class FairLink {
 public:
  explicit FairLink(int64_t rate_bps) : rate_bps_(rate_bps) {}

  // A packet's first bit arrives: return when its last bit has passed, or nothing if it must wait.
  std::optional<Nanos> arrive(const LinkItem& item, uint64_t queue_pair, Nanos now) {
    if (busy_) {
      waiting_[queue_pair].push_back(item);
      return std::nullopt;
    }
    last_ = queue_pair;
    return take(item, now);
  }

  // An acknowledgement or a grant: occupies the link, but does not wait.
  Nanos pass(int64_t link_bytes, Nanos now) {
    const LineSpan span = LineSpan::of(link_bytes, rate_bps_);
    line_.take(span, rate_bps_, now);
    return now + span.rounded_up_ns();
  }

  // The packet on the link has passed: return the first packet of the next queue pair, if any, and when it will have passed.
  std::optional<std::pair<LinkItem, Nanos>> next(Nanos now) {
    busy_ = false;
    if (waiting_.empty()) return std::nullopt;
    auto turn = waiting_.upper_bound(last_);
    if (turn == waiting_.end()) turn = waiting_.begin();
    last_ = turn->first;
    const LinkItem item = turn->second.front();
    turn->second.pop_front();
    if (turn->second.empty()) waiting_.erase(turn);
    return std::pair{item, take(item, now)};
  }

 private:
  Nanos take(const LinkItem& item, Nanos now) {
    busy_ = true;
    return line_.take(item.link_bytes, rate_bps_, now);
  }

  int64_t rate_bps_;
  LineClock line_;
  bool busy_ = false;
  uint64_t last_ = 0;
  std::map<uint64_t, std::deque<LinkItem>> waiting_;  // by queue pair; none empty
};

}  // namespace etloop
