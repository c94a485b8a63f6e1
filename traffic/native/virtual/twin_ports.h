// The twin's state per port of the plan, its pending port events, and the planes of cards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/prefetch.h"
#include "base/time.h"
#include "core/pause_timer.h"
#include "core/port.h"
#include "plan/planes.h"
#include "switch/soft_fabric.h"
#include "virtual/twin_card_port.h"

namespace etloop {

// The port that has an address.
struct TwinPlace {
  int32_t port;
  uint16_t address;
};

inline constexpr FlowId kNoTwinFlow = UINT32_MAX;
struct alignas(kLineBytes) TwinPort {
  CardPort card;
  Nanos wake_ns = kNever;  // next wake-up of its core
  uint32_t attachment = 0;
  FlowId asked = kNoTwinFlow;  // flow of the core's last query, which it repeats while the card is full
  uint8_t asked_class = 0;
  bool waiting = false;  // waits for room in its card
  uint32_t planes_up = ~uint32_t{0};  // planes that are up, if it is a card's first plane, as bits

  // Note whether a packet found its card full; with several planes, a wait for one plane continues while others have room.
  void note_room(bool full, uint32_t planes) { waiting = full || (waiting && planes > 1); }
  void hear_of_plane(int32_t plane, bool up) {
    const uint32_t bit = 1U << plane;
    planes_up = up ? planes_up | bit : planes_up & ~bit;
  }
};
static_assert(sizeof(TwinPort) == kLineBytes);

// Pending event of a port: a frame arrival, or a wake-up.
inline constexpr uint32_t kNoTwinFrame = UINT32_MAX;
struct TwinPending {
  Nanos at_ns;
  uint64_t order;
  uint32_t handle;  // kNoTwinFrame: wake-up only
  uint32_t port : 22;
  bool damaged : 1;  // damaged in the network
  bool trimmed : 1;  // trimmed in the network
  uint32_t traffic_class : 8;  // as it arrives
};
static_assert(sizeof(TwinPending) == 24);

// Pause frames that hosts send by the rules of their ports.
class TwinPauses {
 public:
  void begin(const EnginePlan& plan, const std::vector<uint32_t>& attachment_of_port, Nanos now) {
    for (size_t p = 0; p < plan.ports.size(); ++p) {
      if (plan.ports[p].pauses.empty()) continue;
      hosts_.push_back({attachment_of_port[p], {}});
      hosts_.back().timer.start(plan.ports[p].pauses, now);
    }
    find_next();
  }
  void end() {
    hosts_.clear();
    next_ns_ = kNever;
  }
  Nanos due_ns() const { return next_ns_; }
  // Pass every due rule with the attachment of its port to `send`.
  template <typename Send>
  void send_due(Nanos now, Send send) {
    for (Host& host : hosts_) {
      if (host.timer.next_ns() > now) continue;
      host.timer.send_due(now, [&](const PauseRule& rule) {
        send(host.attachment, rule);
        return true;
      });
    }
    find_next();
  }

 private:
  struct Host {
    uint32_t attachment;
    PauseTimer timer;
  };
  void find_next() {
    next_ns_ = kNever;
    for (const Host& host : hosts_) next_ns_ = std::min(next_ns_, host.timer.next_ns());
  }

  std::vector<Host> hosts_;
  Nanos next_ns_ = kNever;
};

// Detects when a network without senders has delivered all it held.
class TwinDraining {
 public:
  TwinDraining(size_t free_frames, Nanos now) : free_(free_frames), arrived_ns_(now), last_ns_(now + kMostNs) {}
  // Update with the number of free frames of `frames`. True: all are free, none was freed for long, or the maximum time has
  // passed.
  bool is_over(size_t free_frames, size_t frames, Nanos now) {
    if (free_frames > free_) arrived_ns_ = now;
    free_ = free_frames;
    return free_ == frames || now - arrived_ns_ >= kStillNs || now >= last_ns_;
  }

 private:
  static constexpr Nanos kStillNs = 100'000'000;  // without deliveries for so long, the network is stuck
  static constexpr Nanos kMostNs = 60'000'000'000;
  size_t free_;
  Nanos arrived_ns_;
  Nanos last_ns_;
};

// Switch ports of the cards with several planes.
class TwinPlanes {
 public:
  void add(const FabricEnd& end, int32_t port) { port_at_[{end.switch_index, end.port}] = port; }
  // Return the port whose host notices this link event; -1: none.
  int32_t heard_of(const FabricEnd& end, LinkNews news) const {
    const auto entry = port_at_.find({end.switch_index, end.port});
    return entry == port_at_.end() || (news != LinkNews::noticed && news != LinkNews::up) ? -1 : entry->second;
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, int32_t> port_at_;  // by switch and port
};

}  // namespace etloop
