// The network between the hosts of a lab: NICs, links and switches. Pure: frames and time in, frames and time out. The soft
// switch drives it with the arrival times of real frames, however late it processes them.
//
// A host may hand over frames in bursts of any size. A card sends them at the rate of its link, alternating between priorities
// and the flows in each, and holds paused priorities, as hardware does: timing does not depend on host software.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/instant_guard.h"
#include "switch/card_queue.h"
#include "switch/fabric_event.h"
#include "switch/fabric_routes.h"
#include "switch/switch_model.h"

namespace etloop {

struct FabricEnd {
  uint32_t switch_index = 0;
  uint32_t port = 0;
};

struct FabricLink {
  FabricEnd a;
  FabricEnd b;
};

struct FabricAttachment {
  FabricEnd end;
  bool honours_pause = true;
};

// The link at `end` is down from `from_ns` to `until_ns`, relative to the start of the fabric.
struct FabricOutage {
  FabricEnd end;
  Nanos from_ns = 0;
  Nanos until_ns = kNever;
};

struct FabricConfig {
  std::vector<SwitchConfig> switches;  // with routes by attachment
  std::vector<FabricLink> links;
  std::vector<FabricAttachment> attachments;
  std::vector<FabricOutage> outages;
  Nanos detection_ns = 0;         // time from a link failure until the switches and cards at the link notice it
  Nanos convergence_ns = kNever;  // time from a change of a switch link until all switches route accordingly
  int64_t card_bytes = 64 << 20;  // most bytes queued in a card
};

// Return why the configuration cannot be run, empty if it can.
std::string validate(const FabricConfig& config);

struct CardCounters {
  int64_t frames = 0;  // frames from the host
  int64_t bytes = 0;
  int64_t waiting_bytes = 0;
  int64_t waiting_watermark_bytes = 0;
  int64_t refused_frames = 0;  // for lack of room: a limit of the fabric, not of the model
  int64_t paused_ns = 0;       // sum over all priorities
  int64_t delivered_frames = 0;
  int64_t delivered_bytes = 0;
};

// Events of a link.
enum class LinkNews : uint8_t { down, noticed, routed_around, up, used_again };

class FabricSink {
 public:
  virtual ~FabricSink() = default;
  // The last bit of the frame reaches the host at `at_ns`, ascending per attachment.
  virtual void deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) = 0;
  // A PFC frame reaches the host; its card has processed it already.
  virtual void pause(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) = 0;
  // The frame is dropped; the counters have the reason.
  virtual void release(const SwitchFrame& frame) = 0;
  // See `SwitchSink`.
  virtual uint64_t hash_key(const SwitchFrame& frame, HashFields) { return frame.flow_key; }
  virtual usid::Head segment_of(const SwitchFrame&) { return {}; }
  virtual usid::Head next_segment(const SwitchFrame&) { return {}; }
  // A card began to send a frame: there is room for another.
  virtual void card_sends(size_t, Nanos) {}
  // `end` is one of the link's ends. A link that routing did not exclude is in use again as soon as it is up.
  virtual void link_news(const FabricEnd&, LinkNews, Nanos) {}
};

class SoftFabric {
 public:
  // `config` must have passed `validate` and outlive the fabric. `begin_ns`: start time; kNever: on `begin`.
  SoftFabric(const FabricConfig& config, FabricSink& sink, Nanos begin_ns);
  SoftFabric(const SoftFabric&) = delete;
  SoftFabric& operator=(const SoftFabric&) = delete;
  ~SoftFabric();

  // Start outages, faults and counters at this time; frames pass before it too. Call once.
  void begin(Nanos now);
  // A host hands a frame to its card. Times before the latest one are raised to it. False: the card is full.
  bool from_host(size_t attachment, const SwitchFrame& frame, Nanos at_ns);
  // A host sends a PFC frame to its switch.
  void pause_from_host(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns);
  // The link at a switch port goes down or comes up, at both ends. The consequences follow as configured: its switches notice,
  // then all switches route around it.
  void set_link(const FabricEnd& end, bool up, Nanos at_ns);
  // Schedule the same for a later time.
  void set_link_later(const FabricEnd& end, bool up, Nanos at_ns);
  void advance(Nanos until_ns);
  Nanos next_event() const { return events_.next_ns(); }
  // Why virtual time does not advance in this network, which then stops; empty: it does.
  const std::string& stalled() const { return stalled_; }

  CardCounters card(size_t attachment, Nanos now) const;
  SwitchCounters counters(size_t switch_index, Nanos now) const;
  int64_t frames_inside() const { return inside_; }
  size_t switches() const { return nodes_.size(); }
  const SwitchModel& model(size_t switch_index) const;
  // Frames queued in a card in the priority of a DSCP, without the one being sent.
  size_t waiting_frames(size_t attachment, uint8_t dscp) const {
    return cards_[attachment].queues[cards_[attachment].priority_of[dscp & 63]].size();
  }

 private:
  // The fabric's own events: `number` is an attachment, or an index of `cables_`; `lane` a priority.
  enum class Kind : uint8_t { card, card_pause, link_up, link_down, link_noticed, link_settled };
  static constexpr uint16_t kOwner = 0;  // owner number of these events; switches follow
  struct alignas(kLineBytes) Card {
    Nanos event_ns = kNever;    // next time it may send
    Nanos propagation_ns = 0;
    FabricEnd end;              // its switch port
    uint8_t filled = 0;         // priorities with frames, as bits
    uint8_t last_priority = 0;
    std::array<Nanos, kPriorities> paused_until_ns{};
    FrameLine line;
    CardCounters counters;
    std::array<uint8_t, 64> priority_of{};  // by DSCP
    std::array<CardQueue, kPriorities> queues;
    std::array<Nanos, kPriorities> paused_since_ns{};
  };
  struct Node;  // a switch with its sink
  struct Peer {
    enum class Kind : uint8_t { none, attachment, switch_port } kind = Kind::none;
    FabricEnd end;  // for an attachment, `port` is its number
    Nanos propagation_ns = 0;
    Node* node = nullptr;  // if it is a switch port
    uint32_t cable = 0;
  };
  // A cable at a switch port, and its state as known. Cables between switches come first, in the order of the links.
  struct Cable {
    FabricEnd end;  // one of its two ends
    bool up = true;
    bool noticed_up = true;  // as noticed by the switches and cards at its ends
    bool routed_up = true;   // as used by the routes of all switches
    Nanos changed_ns = 0;    // time of its last change
  };

  void push(Nanos at_ns, Kind kind, size_t number, uint8_t lane = 0, uint16_t quanta = 0);
  static uint16_t quanta_of(const FabricEvent& pause) { return pause.port; }  // a pause of a card has no port
  void schedule_card(size_t attachment, Nanos at_ns);
  void take(const FabricEvent& event);
  std::string describe(const FabricEvent& event) const;
  void expect_next() const;
  uint32_t cable_at(const FabricEnd& end) const { return peers_[end.switch_index][end.port].cable; }
  void link_changes(uint32_t number, bool up, Nanos at_ns);
  void link_noticed(uint32_t number, Nanos at_ns);
  void link_settled(uint32_t number, Nanos at_ns);
  bool settles_another(Nanos at_ns) const;
  template <typename Notify>
  void notify_switches(const FabricEnd& end, Notify notify);
  void card_send(size_t attachment, Nanos now);
  void card_paused(size_t attachment, uint8_t priority, uint16_t quanta, Nanos now);
  void end_pauses(size_t attachment, Nanos now);
  void transmitted(size_t from_switch, size_t port, const SwitchFrame& frame, Nanos end_ns);
  void paused(size_t from_switch, size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns);

  const FabricConfig& config_;
  FabricSink& sink_;
  FabricEvents events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<Peer>> peers_;  // by switch, by port
  std::vector<Card> cards_;
  std::vector<Cable> cables_;
  std::optional<FabricRoutes> routes_;  // if routes follow link changes
  Nanos now_ns_;
  int64_t inside_ = 0;
  InstantGuard instant_;
  std::string stalled_;
};

}  // namespace etloop
