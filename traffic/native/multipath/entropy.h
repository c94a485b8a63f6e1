// Chooses the entropy value of a queue pair's next packet among the values in use to its peer. Pure. Recycling: Bonato and
// others, "REPS" (arXiv 2407.21625).
#pragma once

#include <array>
#include <cstdint>

#include "multipath/path_states.h"
#include "plan/plan.h"

namespace etloop::multipath {

class EntropyValues {
 public:
  // `paths` is shared by all queue pairs to the same peer, and outlives this.
  EntropyValues(EntropyChoice choice, PathStates& paths, uint32_t seed);

  // The value of the next packet, on one of `planes` if any of their values is in use. With in-order delivery the value stays the
  // same while it is in use.
  uint16_t next(uint32_t planes = kAllPlanes);
  // Same, but a different value than `failed` if there is one, on a different plane if there is one.
  uint16_t next_but(uint16_t failed, uint32_t planes = kAllPlanes);
  // For a packet without followers: a path that recently delivered a packet, if there is one.
  uint16_t next_proven(uint32_t planes = kAllPlanes);
  // For the retry of such a packet that was not answered on `failed`, when no other packet in flight would detect the cause: on
  // the next plane that is up, whatever the state of its paths.
  uint16_t next_plane(uint16_t failed);
  // A packet with this value arrived without an ECN mark; its answer acknowledges `packets`, each of which lets one more take it.
  void arrived_clean(uint16_t value, uint32_t packets = 1);

  PathStates& paths() { return paths_; }
  const PathStates& paths() const { return paths_; }

 private:
  static constexpr uint32_t kRecycled = 8;
  static constexpr uint32_t kMostUses = 64;  // packets of one answer's bitmap
  static constexpr uint32_t kMostRounds = 16;  // one more than the largest penalty

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
  struct Recycled {
    uint16_t index = 0;
    uint16_t packets = 0;  // that may still take it
  };

  std::array<Recycled, kRecycled> recycled_{};  // the oldest first
  uint32_t recycled_head_ = 0;
  uint32_t recycled_count_ = 0;
};

}  // namespace etloop::multipath
