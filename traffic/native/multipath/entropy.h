// Which entropy value the next packet of a queue pair takes, of those to its peer that are in use. Pure.
// Recycling: Bonato and others, "REPS" (arXiv 2407.21625).
#pragma once

#include <array>
#include <cstdint>

#include "multipath/path_states.h"
#include "plan/plan.h"

namespace etloop::multipath {

class EntropyValues {
 public:
  // `paths` are all queue pairs' to the same peer, and outlive this.
  EntropyValues(EntropyChoice choice, PathStates& paths, uint32_t seed);

  // For the packet that leaves now; of the planes whose cards have room, where one of those has any in use. Where order is kept,
  // one of all planes stays the same while it is in use.
  uint16_t next(uint32_t planes = kAllPlanes);
  // The same, but another than that which failed, if there is another; and of another plane, if there is one.
  uint16_t next_but(uint16_t failed, uint32_t planes = kAllPlanes);
  // For a packet that nothing follows soon: by a path that lately brought one over, if there is one.
  uint16_t next_proven(uint32_t planes = kAllPlanes);
  // The same, after one that went by `failed` was not answered, and nothing else under way would tell why: of several planes by
  // the next one that is up, whatever is known of its paths.
  uint16_t next_plane(uint16_t failed);
  // A packet that had it arrived, and nothing was marked.
  void arrived_clean(uint16_t value);

  PathStates& paths() { return paths_; }
  const PathStates& paths() const { return paths_; }

 private:
  static constexpr uint32_t kRecycled = 8;
  static constexpr uint32_t kMostRounds = 16;  // one more than a value may have to miss

  bool may_take(uint32_t index, uint32_t planes) const {
    return paths_.in_use(index) && (planes >> paths_.plane_of(paths_.port_of(index)) & 1) != 0;
  }
  uint32_t step() {
    const uint32_t index = turn_;
    turn_ = (turn_ + 1) % paths_.size();
    return index;
  }
  bool any_of(uint32_t planes) const;
  uint32_t keep(uint32_t planes);
  uint32_t rotate(uint32_t planes);
  uint32_t rotate_with_penalties(uint32_t planes);
  uint32_t draw(uint32_t planes);
  uint32_t recycle(uint32_t planes);

  EntropyChoice choice_;
  PathStates& paths_;
  uint32_t turn_;
  uint32_t random_;
  std::array<uint16_t, kRecycled> recycled_{};  // indices, the oldest first
  uint32_t recycled_head_ = 0;
  uint32_t recycled_count_ = 0;
};

}  // namespace etloop::multipath
