// Model of a switch: frames and time in, frames and counters out. Pure and deterministic; the twin drives it in virtual time, the
// soft switch in real time.
//
// Store and forward: a frame is handed in when its last bit has arrived, waits `latency_ns`, is classified (DSCP -> traffic class
// -> priority group and queue), admitted to the shared buffer, queued, possibly marked, and handed out when its first bit leaves.
// Time must not decrease. Later work is scheduled as events.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/line_clock.h"
#include "base/prefetch.h"
#include "switch/fabric_event.h"
#include "switch/fabric_routes.h"
#include "switch/flow_hash.h"
#include "switch/switch_buffer.h"
#include "switch/switch_config.h"
#include "switch/switch_counters.h"
#include "switch/switch_ways.h"

namespace etloop {

struct SwitchFrame {
  uint32_t handle = 0;       // the owner's; returned with the frame
  uint32_t destination = 0;  // row of SwitchConfig::routes
  uint64_t flow_key = 0;     // of the five-tuple, see flow_key()
  int32_t frame_bytes = 0;   // Ethernet frame with FCS
  uint16_t entropy = 0;      // UDP source port
  uint8_t dscp = 0;
  uint8_t ecn : 2 = 0;         // of the IP header
  bool corrupted : 1 = false;  // a bit was flipped
  bool trimmed : 1 = false;    // only the first `frame_bytes` are left
  bool segmented : 1 = false;  // its destination address carries micro segments, which route it
};
static_assert(sizeof(SwitchFrame) == 24);

enum class SwitchDrop : uint8_t { group_full, queue_full, no_route, link_down, fault, watchdog };

class SwitchSink {
 public:
  virtual ~SwitchSink() = default;
  // The frame's first bit leaves at `start_ns`, its last at `end_ns`.
  virtual void transmit(size_t port, const SwitchFrame& frame, Nanos start_ns, Nanos end_ns) = 0;
  virtual void drop(size_t in_port, const SwitchFrame& frame, SwitchDrop why, Nanos now) = 0;
  // A PFC frame for one priority is sent; its last bit leaves at `end_ns`. Quanta 0: resume.
  virtual void pause(size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns) = 0;
  // Return the hash key over other fields than the five-tuple; implemented by the owner of the frame's bytes.
  virtual uint64_t hash_key(const SwitchFrame& frame, HashFields) { return frame.flow_key; }
  // Return the front of a segmented frame's destination address, and the same after removing its first segment.
  virtual usid::Head segment_of(const SwitchFrame&) { return {}; }
  virtual usid::Head next_segment(const SwitchFrame&) { return {}; }
};

// Line bytes per frame in addition to the frame: preamble and gap.
inline constexpr int64_t kLineOverheadBytes = 20;
inline constexpr int64_t kPauseFrameBytes = 64;

// Time of a frame on an idle line, rounded up.
Nanos line_ns(int64_t frame_bytes, int64_t rate_bps);

// The transmitter of a line. Division is slow and most frames have one of two lengths: the last results are cached.
class FrameLine {
 public:
  explicit FrameLine(int64_t rate_bps = 1) : rate_bps_(rate_bps) {}
  Nanos free_ns() const { return clock_.free_ns(); }
  // Send a frame as soon as the line is free. Return when its last bit has left.
  Nanos take(int32_t frame_bytes, Nanos now) {
    Known& known = known_[frame_bytes < kLongFrameBytes ? 0 : 1];
    if (known.frame_bytes != frame_bytes) [[unlikely]] {
      const LineSpan span = LineSpan::of(frame_bytes + kLineOverheadBytes, rate_bps_);
      if (span.whole_ns > UINT32_MAX) return clock_.take(span, rate_bps_, now);
      known = {span.part, static_cast<uint32_t>(span.whole_ns), frame_bytes};
    }
    return clock_.take({known.whole_ns, known.part}, rate_bps_, now);
  }

 private:
  static constexpr int32_t kLongFrameBytes = 512;
  struct Known {  // compact: a port's first cache line has little room
    int64_t part = 0;
    uint32_t whole_ns = 0;
    int32_t frame_bytes = -1;
  };

  LineClock clock_;
  Known known_[2];
  int64_t rate_bps_;
};

// 512 bit times per quantum (IEEE 802.1Qbb), rounded up: any quanta except 0 are a pause.
Nanos pause_ns(uint16_t quanta, int64_t rate_bps);
// Time from which pauses count, in a switch that begins at `begin_ns`; kNever: not begun.
inline Nanos counted_from_ns(Nanos begin_ns) { return begin_ns == kNever ? 0 : begin_ns; }

class SwitchModel {
 public:
  // Kinds of events: `number` is a packet, or the quanta of a pause; `lane` a queue or priority.
  enum class Kind : uint8_t { arrival, pause, line_free, pause_over, refresh, watchdog };
  // `config` must have passed `validate` and outlive the switch. `begin_ns`: start time; kNever: on `begin`. `events` may be
  // shared by several switches: the owner of the queue passes each switch its own events, those of `owner`.
  SwitchModel(const SwitchConfig& config, SwitchSink& sink, Nanos begin_ns, FabricEvents& events, uint16_t owner);

  void on_frame(size_t port, const SwitchFrame& frame, Nanos now);
  void on_pause(size_t port, uint8_t priority, uint16_t quanta, Nanos now);
  // The same, known before the last bit arrives at `at_ns`.
  void expect_frame(size_t port, const SwitchFrame& frame, Nanos at_ns);
  void expect_pause(size_t port, uint8_t priority, uint16_t quanta, Nanos at_ns);
  // The link at a port goes down or comes up, and the switch notices at once.
  void on_link(size_t port, bool up, Nanos now);
  // The same without notice: the switch continues to send, and packets in both directions are lost.
  void on_unnoticed_link(size_t port, bool up) { ports_[port].connected = up; }
  // Replace the routes of the configuration; same number of destinations.
  void set_ways(const WayTable& ways) { ways_.set(ways); }
  void take(const FabricEvent& event) {
    if (static_cast<Kind>(event.kind) == Kind::arrival) {
      arrived(event.number, event.at_ns);
    } else if (static_cast<Kind>(event.kind) == Kind::line_free) {
      ports_[event.port].line_event = false;
      serve(event.port, event.at_ns);
    } else {
      take_rare(event);
    }
    check_conservation();
  }
  // Prefetch the state of an event that is taken soon.
  void expect(const FabricEvent& event) const {
    prefetch(&ports_[event.port].line);
    prefetch(&counters_[event.port]);
    if (static_cast<Kind>(event.kind) == Kind::arrival) prefetch(&packets_[event.number], sizeof(Packet));
  }

  // Start fault times and counters at this time; frames pass before it too.
  void begin(Nanos now);
  // Return the counters, with pauses up to `now`.
  SwitchCounters counters(Nanos now) const;
  // Return the counters of one port, without ongoing pauses.
  SwitchPortCounters counted(size_t port) const;
  Nanos paused_ns(size_t port, size_t queue, Nanos now) const;
  int64_t queued_packets() const { return queued_packets_; }
  bool is_up(size_t port) const { return ports_[port].connected; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kNotEcnCapable = 0;
  struct Packet {
    SwitchFrame frame;
    uint32_t next = kNone;
    uint16_t in_port = 0;
    uint8_t group = 0;
    bool trimmed_here = false;
  };
  struct alignas(kLineBytes) Queue {
    uint32_t head = kNone;
    uint32_t tail = kNone;
    Nanos paused_until_ns = 0;
    Nanos paused_since_ns = kNever;  // kNever: not paused
    int64_t deficit_bytes = 0;
    Nanos last_pause_ns = 0;
    Nanos over_event_ns = kNever;  // next check whether a pause is over
    uint64_t offered_packets = 0;  // packets that could have been marked
    bool storm = false;
    bool watched = false;
  };
  // A packet uses two cache lines: the first, and that of its queue.
  struct alignas(kLineBytes) Port {
    FrameLine line;
    bool connected = true;  // link state
    bool up = true;         // link state as noticed by the switch
    bool line_event = false;
    bool turn_begun = false;
    uint8_t filled = 0;  // queues with packets, as bits
    uint8_t turn = 0;    // of deficit round robin
    uint8_t xoff_sent = 0;  // paused priorities, as bits
    uint8_t strict = 0;     // its strict queues, as bits
    Queue queues[kPriorities];
    bool refresh_event[kPriorities] = {};
    Nanos xoff_ns[kPriorities] = {};  // time of the last xoff
  };
  static_assert(offsetof(Port, queues) == kLineBytes);

  void schedule(Nanos at_ns, Kind kind, size_t port, size_t lane, uint32_t number = kNone);
  void take_rare(const FabricEvent& event);
  void arrived(uint32_t packet, Nanos now);
  bool faulted(uint32_t packet, size_t out_port, Nanos now);
  int32_t route(const Packet& packet, Nanos now);
  void enqueue(uint32_t packet, size_t out_port, size_t queue, Nanos now);
  bool trim(uint32_t packet, size_t out_port, Nanos now);
  void discard(uint32_t packet, SwitchDrop why, Nanos now);
  void serve(size_t port, Nanos now);
  int choose(size_t port, Nanos now);
  int choose_weighted(size_t port, Nanos now);
  void send(size_t port, size_t queue, Nanos now);
  void mark(Packet& packet, size_t port, size_t queue, int64_t queue_bytes) {
    const QueueConfig& rule = buffer_.rules(port).queues[queue];
    const uint64_t number = ports_[port].queues[queue].offered_packets++;
    if (packet.frame.ecn == kNotEcnCapable || queue_bytes < rule.kmin_bytes) return;
    mark_above_kmin(packet, port, queue, queue_bytes, number);
  }
  [[gnu::noinline]] void mark_above_kmin(Packet& packet, size_t port, size_t queue, int64_t queue_bytes, uint64_t number);
  // Draws depend on the object and on the number of its packet, not on the order of events: a change at one queue does not
  // change the draws of another.
  uint64_t mark_draw(size_t port, size_t queue, uint64_t number) const;
  uint64_t fault_draw(size_t fault) const;
  void flush(size_t port, size_t queue, SwitchDrop why, Nanos now);
  void kick(size_t port, Nanos now);
  // Runs twice per packet and mostly changes nothing.
  void control_pause(size_t port, size_t group, Nanos now) {
    if ((pausing_groups_[port] >> group & 1) == 0) return;
    if (paused_senders_ > 0 || buffer_.over_threshold(port, group)) pause_or_resume(port, group, now);
  }
  [[gnu::noinline]] void pause_or_resume(size_t port, size_t group, Nanos now);
  bool may_resume(size_t port, size_t priority) const;
  void refresh_pause(size_t port, size_t priority, Nanos now);
  void end_pause(size_t port, size_t queue, Nanos now);
  void send_pause(size_t port, size_t priority, uint16_t quanta, Nanos now);
  void set_paused(size_t port, size_t queue, Nanos until_ns, Nanos now);
  void check_storm(size_t port, size_t queue, Nanos now);
  void check_conservation() const {
    assert(received_ == sent_ + dropped_ + queued_packets_);
    assert(buffer_.used_bytes() >= 0 && buffer_.used_bytes() <= config_.buffer_bytes);
  }
  uint32_t keep(const SwitchFrame& frame, size_t in_port);

  const SwitchConfig& config_;
  SwitchSink& sink_;
  std::vector<SwitchPortCounters> counters_;  // by port, except those counted by the buffer
  SwitchBuffer buffer_;
  Nanos begin_ns_;
  std::vector<Port> ports_;
  std::vector<Packet> packets_;
  std::vector<uint32_t> free_;
  FabricEvents& events_;
  uint64_t owner_;  // owner number of its events
  SwitchWays ways_;
  std::vector<int64_t> fault_seen_;
  std::vector<uint8_t> pausing_groups_;  // by port: groups that pause their senders, as bits
  size_t paused_senders_ = 0;   // bits set in `xoff_sent` of all ports
  SwitchRandom random_;  // of ways
  uint64_t mark_key_;    // of the seed of marks
  int64_t queued_packets_ = 0;
  int64_t received_ = 0;
  int64_t sent_ = 0;
  int64_t dropped_ = 0;
};

// Describe a kind of event, for messages.
const char* text(SwitchModel::Kind kind);

}  // namespace etloop
