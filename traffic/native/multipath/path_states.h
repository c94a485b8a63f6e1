// What is known of the paths to one peer, shared by all queue pairs to it: which entropy values are in use, which were withdrawn
// and wait for a probe, and which lately brought a packet over. A value is the UDP source port of a packet, by which switches
// choose its path; where a card has several planes, its lowest bits are the plane. Pure: driven by what answers tell.
// States and events: OCP MRC 1.0, 11.2, as read by docs/mrc.md.
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

// Bit i: plane i. All of them, also where there is only one.
inline constexpr uint32_t kAllPlanes = ~uint32_t{0};

class PathStates {
 public:
  // As many values as `params` says from `first_port` on, within the ports that are nobody's (49152 to 65535); where order is
  // kept, one for each plane. `planes`: a power of two, 1 where a card has one port.
  PathStates(const MultipathSettings& params, uint16_t first_port, uint32_t planes = 1);

  uint32_t size() const { return static_cast<uint32_t>(values_.size()); }
  size_t active() const { return active_; }
  uint16_t port_of(uint32_t index) const { return static_cast<uint16_t>(kFirstPort + (offset_ + index) % kPorts); }
  // False: the port is no value of these.
  bool index_of(uint16_t port, uint32_t& index) const;
  EntropyState state_of(uint16_t value) const;
  uint32_t planes() const { return planes_; }
  uint32_t plane_of(uint16_t value) const { return value & (planes_ - 1); }
  // Whoever takes one of these stays with it while it is in use: packets would overtake each other.
  bool keep_one() const { return keep_one_; }

  bool is_good(uint32_t index) const { return values_[index].state == EntropyState::good && plane_is_up(index); }
  bool in_use(uint32_t index) const { return in_use(values_[index].state) && plane_is_up(index); }

  // What was learnt of a value, by whichever queue pair. Those that are not of these are ignored.
  void tell(uint16_t value, EntropyEvent event);
  // A packet that had it arrived, or was lost and nobody says where. A value that loses twice in a row is withdrawn: a queue that
  // is full loses packets of all values now and then, a path that is dead all of its own.
  void arrived(uint16_t value);
  void lost(uint16_t value);

  // A turn that a value misses: false, it owed none.
  bool miss_turn(uint32_t index);

  // One of those that brought a packet over last and are still good, each in its turn; false: there is none. For packets of which
  // few leave and each counts: what is learnt of paths by losing them is dear there.
  bool next_proven(uint16_t& value, uint32_t planes = kAllPlanes);

  // A value that only a probe can bring back, each in its turn, and no more often than every `interval_ns` for all queue pairs
  // together; false: there is none, or it is too early.
  bool next_to_probe(uint16_t& value, Nanos now, Nanos interval_ns);

  // Planes whose ports are up at both ends. None: as if all were, as something has to leave. What was learnt of the paths of a
  // plane that comes up is forgotten: it was of a plane that was down.
  void set_planes(uint32_t up);
  uint32_t planes_up() const { return planes_up_; }
  // Planes that lost packet after packet by different paths, and nothing came through: left until a probe by one of their paths
  // is answered, and then taken whole.
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
    uint8_t penalty = 0;  // turns yet to be missed
    uint8_t losses = 0;   // in a row
  };

  void change(uint32_t index, EntropyEvent event);
  static bool in_use(EntropyState state) { return state == EntropyState::good || state == EntropyState::skip; }
  bool plane_is_up(uint32_t index) const { return has_plane(planes_taken_, index); }
  bool has_plane(uint32_t planes, uint32_t index) const { return (planes >> plane_of(port_of(index)) & 1) != 0; }
  void note_plane_lost(uint16_t value);
  void take_back(uint32_t planes);
  bool forget_others(uint32_t index);
  void take_planes();
  // Those in use whose planes are.
  size_t usable() const;

  bool penalties_;
  bool keep_one_;
  uint32_t least_active_;
  uint32_t offset_;
  uint32_t planes_;
  uint32_t planes_up_ = kAllPlanes;
  uint32_t suspected_ = 0;
  uint32_t planes_taken_ = kAllPlanes;  // those of them that are not suspected, if there are any
  std::array<uint8_t, kMostPlanes> plane_losses_{};  // in a row
  size_t active_;
  std::vector<Value> values_;
  uint32_t probed_ = 0;
  Nanos probed_ns_ = 0;
  std::array<uint16_t, kProven> proven_{};  // indices, the latest replaces the oldest
  uint32_t proven_count_ = 0;
  uint32_t proven_next_ = 0;   // to be replaced
  uint32_t proven_turn_ = 0;
};

}  // namespace etloop::multipath
