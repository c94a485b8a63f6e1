// State of the paths to one peer, shared by all queue pairs to it: which entropy values are in use, which are withdrawn until a
// probe succeeds, and which recently delivered a packet. A value is the UDP source port of a packet, by which switches choose its
// path; on a card with several planes its lowest bits are the plane. Pure: driven by answers. States and events: OCP MRC 1.0,
// 11.2, as interpreted in docs/mrc.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"
#include "plan/planes.h"

namespace etloop::multipath {

enum class EntropyState : uint8_t { good, skip, assumed_bad, denied };

enum class EntropyEvent : uint8_t {
  marked,           // a SACK requests to skip it once, or a packet with it was trimmed
  withdrawn,        // a SACK requests to stop using it, or a packet with it was not answered
  turn_missed,      // it was skipped once
  probe_answered,   // a probe was answered without a mark
  marked_by_probe,  // a probe was answered with a mark
  deny,
  allow,
};

// The state transition table of a value.
EntropyState after(EntropyState state, EntropyEvent event);

// Bit i: plane i. All planes, also for a single port.
inline constexpr uint32_t kAllPlanes = ~uint32_t{0};

class PathStates {
 public:
  // Use the number of values of `params` from `first_port` on, within the dynamic ports (49152 to 65535); with in-order delivery
  // one per plane. `planes`: a power of two, 1 for a single port.
  PathStates(const MultipathSettings& params, uint16_t first_port, uint32_t planes = 1);

  uint32_t size() const { return static_cast<uint32_t>(values_.size()); }
  size_t active() const { return active_; }
  uint16_t port_of(uint32_t index) const { return static_cast<uint16_t>(kFirstPort + (offset_ + index) % kPorts); }
  // False: the port is not one of the values.
  bool index_of(uint16_t port, uint32_t& index) const;
  EntropyState state_of(uint16_t value) const;
  uint32_t planes() const { return planes_; }
  uint32_t plane_of(uint16_t value) const { return value & (planes_ - 1); }
  // Whether a queue pair keeps its value while it is in use, to avoid reordering.
  bool keep_one() const { return keep_one_; }

  bool is_good(uint32_t index) const { return values_[index].state == EntropyState::good && plane_is_up(index); }
  bool in_use(uint32_t index) const { return in_use(values_[index].state) && plane_is_up(index); }

  // Apply an event reported by any queue pair. Unknown values are ignored.
  void apply(uint16_t value, EntropyEvent event);
  // A packet with this value arrived, or was lost at an unknown place. A value that loses two packets in a row is withdrawn: a
  // full queue occasionally loses packets of all values, a dead path all packets of its own.
  void arrived(uint16_t value);
  void lost(uint16_t value);

  // Let a value miss a turn that it owes. False: it owes none.
  bool miss_turn(uint32_t index);

  // Return, in turn, a good value that recently delivered a packet; false: none. For packets that are few and important:
  // exploring paths by losing them is expensive.
  bool next_proven(uint16_t& value, uint32_t planes = kAllPlanes);

  // Return, in turn, a withdrawn value to probe, at most one per `interval_ns` for all queue pairs; false: none, or too early.
  bool next_to_probe(uint16_t& value, Nanos now, Nanos interval_ns);

  // Set the planes that are up at both ends. 0 counts as all, because packets must leave. The path states of a plane that comes
  // up are reset.
  void set_planes(uint32_t up);
  uint32_t planes_up() const { return planes_up_; }
  // Planes that lost many packets in a row on different paths, without an arrival: not used until a probe on one of their paths
  // is answered, then used again as a whole.
  uint32_t suspected() const { return suspected_; }

 private:
  static constexpr uint32_t kFirstPort = 49152;
  static constexpr uint32_t kPorts = 16384;
  static constexpr uint8_t kMostPenalty = 15;
  static constexpr uint8_t kMostLosses = 2;
  static constexpr uint32_t kProven = 8;
  static constexpr uint8_t kMostPlaneLosses = 16;

  struct Value {
    EntropyState state = EntropyState::good;
    uint8_t penalty = 0;  // turns still to be skipped
    uint8_t losses = 0;   // consecutive
  };

  void change(uint32_t index, EntropyEvent event);
  static bool in_use(EntropyState state) { return state == EntropyState::good || state == EntropyState::skip; }
  bool plane_is_up(uint32_t index) const { return has_plane(usable_planes_, index); }
  bool has_plane(uint32_t planes, uint32_t index) const { return (planes >> plane_of(port_of(index)) & 1) != 0; }
  void note_plane_lost(uint16_t value);
  void restore_planes(uint32_t planes);
  bool forget_others(uint32_t index);
  void update_usable_planes();
  // Number of values in use on planes in use.
  size_t usable() const;

  bool penalties_;
  bool keep_one_;
  uint32_t least_active_;
  uint32_t offset_;
  uint32_t planes_;
  uint32_t planes_up_ = kAllPlanes;
  uint32_t suspected_ = 0;
  uint32_t usable_planes_ = kAllPlanes;  // planes that are up and not suspected, if any
  std::array<uint8_t, kMostPlanes> plane_losses_{};  // consecutive
  size_t active_;
  std::vector<Value> values_;
  uint32_t probed_ = 0;
  Nanos probed_ns_ = 0;
  std::array<uint16_t, kProven> proven_{};  // indices, the latest replaces the oldest
  uint32_t proven_count_ = 0;
  uint32_t proven_next_ = 0;   // next to be replaced
  uint32_t proven_turn_ = 0;
};

}  // namespace etloop::multipath
