// The link of a receiving port in the simulation: one packet at a time, queue pairs in turns, as a switch with fair queues
// gives it. Acknowledgements and grants pass what waits, as in a traffic class of their own. Whose packets these are and
// when they are delivered is the caller's matter.
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

  // A packet whose first bit is here; when its last bit has passed if it need not wait, else it is kept.
  std::optional<Nanos> arrive(const LinkItem& item, uint64_t queue_pair, Nanos now) {
    if (busy_) {
      waiting_[queue_pair].push_back(item);
      return std::nullopt;
    }
    last_ = queue_pair;
    return take(item, now);
  }

  // An acknowledgement or a grant: it holds the link too, but waits for nothing.
  Nanos pass(int64_t link_bytes, Nanos now) {
    const LineSpan span = LineSpan::of(link_bytes, rate_bps_);
    line_.take(span, rate_bps_, now);
    return now + span.rounded_up_ns();
  }

  // The packet on the link has passed; the next one of the next queue pair, if any, and when that will have.
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
