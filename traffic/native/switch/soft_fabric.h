// What stands between the hosts of a lab: their network cards, the links, the switches. Pure: frames and time in, frames and
// time out. The soft switch drives it with the arrival times of real frames, however late it looks at them.
//
// A host hands frames over in bursts as large as it likes. A card sends them at the rate of its link, priorities and the flows
// in each in turn, and holds the priorities that its switch paused, as hardware does: no host software has to be quick for it.
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

// The link at `end` is down from `from_ns` to `until_ns`, in time since the fabric began.
struct FabricOutage {
  FabricEnd end;
  Nanos from_ns = 0;
  Nanos until_ns = kNever;
};

struct FabricConfig {
  std::vector<SwitchConfig> switches;  // routes by attachment
  std::vector<FabricLink> links;
  std::vector<FabricAttachment> attachments;
  std::vector<FabricOutage> outages;
  Nanos detection_ns = 0;         // from a link's end to the moment when the switches and cards at it know
  Nanos convergence_ns = kNever;  // from a change of a link between switches until all of them route as it is
  int64_t card_bytes = 64 << 20;  // the most that waits in a card
};

// Empty if the configuration can be run; else what cannot be.
std::string validate(const FabricConfig& config);

struct CardCounters {
  int64_t frames = 0;  // handed over by the host
  int64_t bytes = 0;
  int64_t waiting_bytes = 0;
  int64_t waiting_watermark_bytes = 0;
  int64_t refused_frames = 0;  // for want of room: the fabric's limit, not the model's
  int64_t paused_ns = 0;       // of all priorities together
  int64_t delivered_frames = 0;
  int64_t delivered_bytes = 0;
};

// What becomes of a link.
enum class LinkNews : uint8_t { down, noticed, routed_around, up, used_again };

class FabricSink {
 public:
  virtual ~FabricSink() = default;
  // The last bit of the frame reaches the host at `at_ns`. Times of one attachment rise.
  virtual void deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) = 0;
  // A PFC frame reaches the host; its card has heard it already.
  virtual void pause(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) = 0;
  // The frame goes no further; why is in the counters.
  virtual void release(const SwitchFrame& frame) = 0;
  // As `SwitchSink` has them.
  virtual uint64_t hash_key(const SwitchFrame& frame, HashFields) { return frame.flow_key; }
  virtual usid::Head segment_of(const SwitchFrame&) { return {}; }
  virtual usid::Head next_segment(const SwitchFrame&) { return {}; }
  // A card has begun to send its last frame but those that wait: there is room for one more.
  virtual void card_sends(size_t, Nanos) {}
  // `end` is one of the link's. A link that nobody routed around is used again as soon as it is up.
  virtual void link_news(const FabricEnd&, LinkNews, Nanos) {}
};

class SoftFabric {
 public:
  // `config` must have passed `validate` and outlive the fabric. `begin_ns`: when it begins; kNever: on `begin`.
  SoftFabric(const FabricConfig& config, FabricSink& sink, Nanos begin_ns);
  SoftFabric(const SoftFabric&) = delete;
  SoftFabric& operator=(const SoftFabric&) = delete;
  ~SoftFabric();

  // Outages and faults count from here, and so does what switches and cards count; frames pass before it too. Once.
  void begin(Nanos now);
  // A host hands a frame to its card. Times before the last one seen count as that. False: the card is full.
  bool from_host(size_t attachment, const SwitchFrame& frame, Nanos at_ns);
  // A host sends its switch a pause.
  void pause_from_host(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns);
  // The link at a switch port, and at its other end, goes down or comes up. What follows from that is due as the configuration
  // says: its switches notice, and all switches route around it.
  void set_link(const FabricEnd& end, bool up, Nanos at_ns);
  // The same in the future.
  void set_link_later(const FabricEnd& end, bool up, Nanos at_ns);
  void advance(Nanos until_ns);
  Nanos next_event() const { return events_.next_ns(); }
  // Why time does not advance in this network, which then does no more; empty: it does.
  const std::string& stalled() const { return stalled_; }

  CardCounters card(size_t attachment, Nanos now) const;
  SwitchCounters counters(size_t switch_index, Nanos now) const;
  int64_t frames_inside() const { return inside_; }
  size_t switches() const { return nodes_.size(); }
  const SwitchModel& model(size_t switch_index) const;
  // Frames that wait in a card in the priority of a DSCP; the one on the line not among them.
  size_t waiting_frames(size_t attachment, uint8_t dscp) const {
    return cards_[attachment].queues[cards_[attachment].priority_of[dscp & 63]].size();
  }

 private:
  // Of the fabric's own events: `number` is an attachment, or of `cables_`; `lane` a priority.
  enum class Kind : uint8_t { card, card_pause, link_up, link_down, link_noticed, link_settled };
  static constexpr uint16_t kOwner = 0;  // of those; switches follow
  struct alignas(kLineBytes) Card {
    Nanos event_ns = kNever;    // the next look at what it may send
    Nanos propagation_ns = 0;
    FabricEnd end;              // what it is plugged into
    uint8_t filled = 0;         // priorities that have frames, as bits
    uint8_t last_priority = 0;
    std::array<Nanos, kPriorities> paused_until_ns{};
    FrameLine line;
    CardCounters counters;
    std::array<uint8_t, 64> priority_of{};  // by DSCP
    std::array<CardQueue, kPriorities> queues;
    std::array<Nanos, kPriorities> paused_since_ns{};
  };
  struct Node;  // a switch, and what hears it
  struct Peer {
    enum class Kind : uint8_t { nobody, attachment, switch_port } kind = Kind::nobody;
    FabricEnd end;  // of an attachment: `port` is its number
    Nanos propagation_ns = 0;
    Node* node = nullptr;  // of a switch port
    uint32_t cable = 0;
  };
  // What is plugged into a switch port, and how it is known. Those between switches come first, in the order of the links.
  struct Cable {
    FabricEnd end;  // one of its two
    bool up = true;
    bool noticed_up = true;  // by the switches and cards at it
    bool routed_up = true;   // by all switches
    Nanos changed_ns = 0;    // when it went down or came up last
  };

  void push(Nanos at_ns, Kind kind, size_t number, uint8_t lane = 0, uint16_t quanta = 0);
  static uint16_t quanta_of(const FabricEvent& pause) { return pause.port; }  // it is of no port
  void look_at_card(size_t attachment, Nanos at_ns);
  void take(const FabricEvent& event);
  std::string describe(const FabricEvent& event) const;
  void expect_next() const;
  uint32_t cable_at(const FabricEnd& end) const { return peers_[end.switch_index][end.port].cable; }
  void link_changes(uint32_t number, bool up, Nanos at_ns);
  void link_noticed(uint32_t number, Nanos at_ns);
  void link_settled(uint32_t number, Nanos at_ns);
  bool settles_another(Nanos at_ns) const;
  template <typename Tell>
  void tell_switches(const FabricEnd& end, Tell tell);
  void card_send(size_t attachment, Nanos now);
  void card_paused(size_t attachment, uint8_t priority, uint16_t quanta, Nanos now);
  void forget_pauses(size_t attachment, Nanos now);
  void transmitted(size_t from_switch, size_t port, const SwitchFrame& frame, Nanos end_ns);
  void paused(size_t from_switch, size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns);

  const FabricConfig& config_;
  FabricSink& sink_;
  FabricEvents events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<Peer>> peers_;  // by switch, by port
  std::vector<Card> cards_;
  std::vector<Cable> cables_;
  std::optional<FabricRoutes> routes_;  // where switches hear of links elsewhere
  Nanos now_ns_;
  int64_t inside_ = 0;
  InstantGuard instant_;
  std::string stalled_;
};

}  // namespace etloop
