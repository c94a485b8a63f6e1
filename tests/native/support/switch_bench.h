// One switch on a bench: a plain configuration, and senders at line rate that obey pause frames or do not.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "switch/switch_model.h"

namespace etloop::test {

inline constexpr int64_t kGbps = 1'000'000'000;
inline constexpr int32_t kFrame = 4170;

inline SwitchConfig config_of(size_t ports, int64_t rate_bps = 100 * kGbps) {
  SwitchConfig config;
  for (size_t i = 0; i < ports; ++i) config.ports.push_back({rate_bps, 500});
  config.buffer_bytes = 16 << 20;
  for (size_t i = 0; i < kPriorities; ++i) {
    const auto same = static_cast<uint8_t>(i);
    config.class_to_queue[i] = config.class_to_group[i] = config.group_to_priority[i] = config.priority_to_queue[i] = same;
    config.queues[i].alpha_log2 = 3;
  }
  config.dscp_to_class[26] = 3;
  config.dscp_to_class[48] = 6;
  for (uint16_t i = 0; i < ports; ++i) config.routes.push_back({i});
  return config;
}

inline SwitchFrame frame_to(uint32_t destination, uint8_t dscp = 26, int32_t bytes = kFrame, uint64_t key = 1) {
  SwitchFrame frame;
  frame.destination = destination;
  frame.frame_bytes = bytes;
  frame.dscp = dscp;
  frame.ecn = 2;
  frame.flow_key = key;
  return frame;
}

// Senders at line rate on some ports, towards others; they honour pauses a propagation delay later.
class Bench final : public SwitchSink {
 public:
  struct Sender {
    size_t port;
    SwitchFrame frame;
    Nanos next_ns = 0;
    FrameLine line;
    Nanos paused_until_ns = 0;
    uint8_t priority = 3;
    int64_t sent = 0;
    int64_t most = INT64_MAX;
  };
  explicit Bench(const SwitchConfig& config)
      : config_(config), events(event_spacing_ns({&config, 1})), model(config, *this, 0, events, 1) {}

  void add(size_t port, const SwitchFrame& frame, uint8_t priority = 3, int64_t most = INT64_MAX, int64_t rate_bps = 0) {
    const int64_t rate = rate_bps == 0 ? config_.ports[port].rate_bps : rate_bps;
    senders.push_back({port, frame, 0, FrameLine(rate), 0, priority, 0, most});
  }

  void run(Nanos until_ns) {
    while (true) {
      Sender* first = nullptr;
      for (Sender& sender : senders) {
        if (sender.sent >= sender.most) continue;
        sender.next_ns = std::max(sender.next_ns, sender.paused_until_ns);
        if (first == nullptr || sender.next_ns < first->next_ns) first = &sender;
      }
      const Nanos send_ns = first == nullptr ? kNever : first->next_ns;
      const Nanos pause_at_ns = pauses_.empty() ? kNever : pauses_.begin()->first;
      const Nanos next_ns = std::min({send_ns, pause_at_ns, events.next_ns()});
      if (next_ns > until_ns) return;
      now = next_ns;
      if (next_ns == pause_at_ns) {
        const auto pause = pauses_.begin()->second;
        pauses_.erase(pauses_.begin());
        for (Sender& sender : senders) {
          if (sender.port != pause.port || sender.priority != pause.priority) continue;
          sender.paused_until_ns = now + pause_ns(pause.quanta, config_.ports[pause.port].rate_bps);
          if (pause.quanta == 0) sender.next_ns = now;
        }
      } else if (next_ns == events.next_ns()) {
        advance(now);
      } else {
        model.on_frame(first->port, first->frame, now);
        ++first->sent;
        first->next_ns = first->line.take(first->frame.frame_bytes, now);
      }
    }
  }

  // The switch does all that is due.
  void advance(Nanos until_ns) {
    while (events.next_ns() <= until_ns && !events.empty()) model.take(events.pop());
  }

  void transmit(size_t port, const SwitchFrame& frame, Nanos start_ns, Nanos end_ns) override {
    starts_ns.push_back(start_ns);
    ++delivered[port];
    delivered_bytes[port] += frame.frame_bytes;
    last_ns = std::max(last_ns, end_ns);
    frames.push_back(frame);
  }
  void drop(size_t, const SwitchFrame&, SwitchDrop why, Nanos) override { ++drops[why]; }
  void pause(size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns) override {
    said.push_back({port, priority, quanta, now, end_ns});
    pauses_.emplace(end_ns + config_.ports[port].propagation_ns, Pause{port, priority, quanta});
    if (quanta != 0 && first_xoff_ns == kNever) first_xoff_ns = now;
  }

  int64_t dropped() const {
    int64_t sum = 0;
    for (const auto& [why, count] : drops) sum += count;
    return sum;
  }

 private:
  struct Pause {
    size_t port;
    uint8_t priority;
    uint16_t quanta;
  };
  const SwitchConfig& config_;
  std::multimap<Nanos, Pause> pauses_;

 public:
  FabricEvents events;
  SwitchModel model;
  std::vector<Sender> senders;
  std::map<size_t, int64_t> delivered;
  std::map<size_t, int64_t> delivered_bytes;
  std::map<SwitchDrop, int64_t> drops;
  std::vector<SwitchFrame> frames;  // that left, and when
  std::vector<Nanos> starts_ns;
  struct Said {
    size_t port;
    uint8_t priority;
    uint16_t quanta;
    Nanos decided_ns;
    Nanos end_ns;
  };
  std::vector<Said> said;  // pauses, and the ends of pauses
  Nanos now = 0;
  Nanos last_ns = 0;
  Nanos first_xoff_ns = kNever;
};

inline void lossless(SwitchConfig& config, int64_t headroom_bytes) {
  config.pfc = true;
  config.groups[3].lossless = true;
  config.groups[3].alpha_log2 = -4;
  config.groups[3].headroom_bytes = headroom_bytes;
  config.groups[3].resume_offset_bytes = 2 * kFrame;
}

}  // namespace etloop::test
