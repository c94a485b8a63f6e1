// What the twin keeps of every port of the plan, what is still to happen at ports, and the planes of their cards.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/prefetch.h"
#include "base/time.h"
#include "core/port.h"
#include "plan/planes.h"
#include "switch/soft_fabric.h"
#include "virtual/twin_card_port.h"

namespace etloop {

// Who has an address.
struct TwinPlace {
  int32_t port;
  uint16_t address;
};

inline constexpr FlowId kNoTwinFlow = UINT32_MAX;
struct alignas(kLineBytes) TwinPort {
  CardPort card;
  Nanos wake_ns = kNever;  // when its core is woken
  uint32_t attachment = 0;
  FlowId asked = kNoTwinFlow;  // of the flow that the core asked for last: it asks again and again while the card is full
  uint8_t asked_class = 0;
  bool waiting = false;  // its card had no room
  uint32_t planes_up = ~uint32_t{0};  // of the card whose first plane it is, as bits

  // A packet found its card full, or not; of a card of several planes what waits for one goes on waiting beside others.
  void note_room(bool full, uint32_t planes) { waiting = full || (waiting && planes > 1); }
  void hear_of_plane(int32_t plane, bool up) {
    const uint32_t bit = 1U << plane;
    planes_up = up ? planes_up | bit : planes_up & ~bit;
  }
};
static_assert(sizeof(TwinPort) == kLineBytes);

// A frame that arrives at a port, or its core's turn.
inline constexpr uint32_t kNoTwinFrame = UINT32_MAX;
struct TwinPending {
  Nanos at_ns;
  uint64_t order;
  uint32_t handle;  // kNoTwinFrame: only a wake-up
  uint32_t port : 22;
  bool damaged : 1;  // on the way
  bool trimmed : 1;  // likewise
  uint32_t traffic_class : 8;  // as it arrives
};
static_assert(sizeof(TwinPending) == 24);

// Whether a network that nobody sends to any more has brought what it held.
class TwinDraining {
 public:
  TwinDraining(size_t free_frames, Nanos now) : free_(free_frames), arrived_ns_(now), last_ns_(now + kMostNs) {}
  // Of `frames` so many are free. True: all are, none has become so for long, or it has taken the longest.
  bool is_over(size_t free_frames, size_t frames, Nanos now) {
    if (free_frames > free_) arrived_ns_ = now;
    free_ = free_frames;
    return free_ == frames || now - arrived_ns_ >= kStillNs || now >= last_ns_;
  }

 private:
  static constexpr Nanos kStillNs = 100'000'000;  // a network that brings nothing for so long stands still
  static constexpr Nanos kMostNs = 60'000'000'000;
  size_t free_;
  Nanos arrived_ns_;
  Nanos last_ns_;
};

// Where the ports of cards with several planes are plugged in.
class TwinPlanes {
 public:
  void add(const FabricEnd& end, int32_t port) { port_at_[{end.switch_index, end.port}] = port; }
  // The port whose link the host hears of; -1: of no such card, or nothing that a host hears.
  int32_t heard_of(const FabricEnd& end, LinkNews news) const {
    const auto found = port_at_.find({end.switch_index, end.port});
    return found == port_at_.end() || (news != LinkNews::noticed && news != LinkNews::up) ? -1 : found->second;
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, int32_t> port_at_;  // by switch and port
};

}  // namespace etloop
