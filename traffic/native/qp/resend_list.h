// What selective repeat sends again: what is missing at the peer, in order, and how much of it is under way again. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/wire.h"

namespace etloop {

class ResendList {
 public:
  struct Range {
    uint32_t psn;
    uint32_t count;
  };

  bool empty() const { return missing_.empty(); }
  const Range& front() const { return missing_.front(); }
  // Packets that were sent again and of which nobody has heard since.
  uint32_t under_way() const { return under_way_; }

  // Nothing is missing, and nothing was sent again.
  void clear() {
    missing_.clear();
    repeated_.clear();
    under_way_ = 0;
  }

  // One packet more, the next in order; it begins a range where a message begins, or behind what has arrived.
  void add(uint32_t psn, bool begins) {
    if (!begins && !missing_.empty() && end_of(missing_.back()) == psn) {
      ++missing_.back().count;
    } else {
      missing_.push_back({psn, 1});
    }
  }
  void add_range(uint32_t psn, uint32_t count) { missing_.push_back({psn, count}); }

  // The first `count` of what is missing have been sent again.
  void sent(uint32_t count) {
    Range& first = missing_.front();
    const uint32_t taken = count < first.count ? count : first.count;
    repeated_.push_back({first.psn, taken});
    under_way_ += taken;
    if (taken == first.count) {
      missing_.erase(missing_.begin());
    } else {
      first = {end_of({first.psn, taken}), first.count - taken};
    }
  }

  // Everything below `psn` has arrived.
  void arrived_before(uint32_t psn) {
    trim(missing_, psn);
    under_way_ -= trim(repeated_, psn);
  }

 private:
  static uint32_t end_of(const Range& range) { return (range.psn + range.count) & wire::kPsnMask; }

  // How many packets of the ranges lay below.
  static uint32_t trim(std::vector<Range>& ranges, uint32_t psn) {
    uint32_t gone = 0;
    size_t over = 0;
    for (; over < ranges.size(); ++over) {
      Range& range = ranges[over];
      const int32_t behind = wire::psn_distance(psn, range.psn);
      if (behind < static_cast<int32_t>(range.count)) {
        if (behind > 0) {
          gone += static_cast<uint32_t>(behind);
          range = {psn, range.count - static_cast<uint32_t>(behind)};
        }
        break;
      }
      gone += range.count;
    }
    ranges.erase(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(over));
    return gone;
  }

  std::vector<Range> missing_;
  std::vector<Range> repeated_;  // in order as well
  uint32_t under_way_ = 0;
};

}  // namespace etloop
