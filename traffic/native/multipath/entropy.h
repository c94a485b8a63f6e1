// The entropy values of a queue pair: which of them the next packet takes, and which are kept out of use for a while. A value
// is the UDP source port of a packet, by which switches choose its path. Pure: driven by what answers tell.
// States and events: OCP MRC 1.0, 11.2, as read by docs/mrc.md; recycling: Bonato and others, "REPS" (arXiv 2407.21625).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace etloop::multipath {

enum class EntropyState : uint8_t { good, skip, assumed_bad, denied };

enum class EntropyEvent : uint8_t {
  marked,           // a SACK asks to skip it once, or a packet that had it was trimmed on the way
  withdrawn,        // a SACK asks to skip it always, or nothing answered a packet that had it
  turn_missed,      // it was passed over once
  probe_answered,   // and nothing was marked
  marked_by_probe,  // a probe was answered with a mark
  deny,
  allow,
};

// The one table of how a value's state changes.
EntropyState after(EntropyState state, EntropyEvent event);

class EntropyValues {
 public:
  // `count` values from `first_port` on, within the ports that are nobody's (49152 to 65535).
  EntropyValues(const MultipathParams& params, uint16_t first_port, uint32_t seed);

  // For the packet that leaves now.
  uint16_t next();
  // The same, but another than that which failed, if there is another.
  uint16_t next_but(uint16_t failed);
  // What was learnt of a value. Those that are not of this queue pair are ignored.
  void tell(uint16_t value, EntropyEvent event);
  // A packet that had it arrived, and nothing was marked.
  void arrived_clean(uint16_t value);
  // A packet that had it arrived, or was lost and nobody says where. A value that loses twice in a row is withdrawn: a queue that
  // is full loses packets of all values now and then, a path that is dead all of its own.
  void arrived(uint16_t value);
  void lost(uint16_t value);

  // A value that only a probe can bring back, each in its turn; false: there is none.
  bool next_to_probe(uint16_t& value);
  EntropyState state_of(uint16_t value) const;
  size_t active() const { return active_; }
  uint16_t first() const { return port_of(0); }

 private:
  static constexpr uint32_t kFirstPort = 49152;
  static constexpr uint32_t kPorts = 16384;
  static constexpr size_t kRecycled = 8;
  static constexpr uint8_t kMostPenalty = 15;
  static constexpr uint8_t kMostLosses = 2;

  struct Value {
    EntropyState state = EntropyState::good;
    uint8_t penalty = 0;  // turns yet to be missed
    uint8_t losses = 0;   // in a row
  };

  uint16_t port_of(uint32_t index) const { return static_cast<uint16_t>(kFirstPort + (offset_ + index) % kPorts); }
  bool index_of(uint16_t port, uint32_t& index) const;
  void change(uint32_t index, EntropyEvent event);
  uint32_t rotate();
  uint32_t rotate_with_penalties();
  uint32_t draw();
  uint32_t recycle();
  static bool in_use(EntropyState state) { return state == EntropyState::good || state == EntropyState::skip; }

  EntropyChoice choice_;
  uint32_t least_active_;
  uint32_t offset_;
  uint32_t turn_ = 0;
  uint32_t probed_ = 0;
  uint32_t random_;
  size_t active_;
  std::vector<Value> values_;
  std::array<uint16_t, kRecycled> recycled_{};  // indices, the oldest first
  uint32_t recycled_head_ = 0;
  uint32_t recycled_count_ = 0;
};

}  // namespace etloop::multipath
