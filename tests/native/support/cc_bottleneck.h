// Some flows under congestion control into one egress queue, in virtual time, without transport: packets of full size, an
// acknowledgement for each, CNPs as a receiver sends them. What an algorithm does to a queue, and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "cc/flow_control.h"
#include "cc/registry.h"
#include "virtual/egress_queue.h"

namespace etloop::test {

struct Bottleneck {
  const etloop_cc_algorithm* algorithm = nullptr;
  std::string profile;
  std::vector<cc::GivenParameter> given;
  uint32_t flows = 2;
  uint32_t window_packets = 64;  // the transport's own, which bounds the queue that a start at line rate builds
  EgressParams queue{10'000'000'000, 64 << 20, 0, 0, 0};
  Nanos one_way_ns = 4'000;
  Nanos cnp_interval_ns = 50'000;
  Nanos warm_up_ns = 50'000'000;
  Nanos over_ns = 100'000'000;
  Nanos stagger_ns = 10'000;  // between the starts of flows
};

struct BottleneckOutcome {
  std::vector<double> share;  // of the bottleneck, by flow, after the warm-up
  double utilisation = 0;
  double mean_queue_bytes = 0;
  int64_t deepest_queue_bytes = 0;  // after the warm-up
  double mean_rtt_ns = 0;
  int64_t dropped = 0;
};

class BottleneckRun {
 public:
  static constexpr uint32_t kMtu = 4096;
  static constexpr uint32_t kPacketBytes = 4096 + 16 + 66;

  explicit BottleneckRun(const Bottleneck& setup) : setup_(setup), queue_(setup.queue) {
    std::vector<std::string> mistakes;
    params_.algorithm = setup.algorithm;
    params_.parameters = cc::parameter_values(*setup.algorithm, setup.profile, setup.given, mistakes);
    params_.pacing.burst_bytes = kPacketBytes;
    if (!mistakes.empty()) return;
    const size_t words = (setup.algorithm->state_bytes + 15) / 16;
    const FlowPath path{static_cast<uint64_t>(setup.queue.link_bps), uint64_t{setup.window_packets} * kMtu,
                        4 * setup.one_way_ns, kMtu, kPacketBytes};
    for (uint32_t f = 0; f < setup.flows; ++f) {
      states_.push_back(std::make_unique<Aligned[]>(words + 1));
      flows_.push_back({FlowControl(params_, path, states_.back().get())});
    }
  }

  BottleneckOutcome run() {
    for (uint32_t f = 0; f < flows_.size(); ++f) push(f * setup_.stagger_ns, Kind::send, f);
    const Nanos end = setup_.warm_up_ns + setup_.over_ns;
    Nanos sampled = setup_.warm_up_ns;
    double queue_sum = 0;
    int64_t samples = 0;
    while (!events_.empty() && events_.top().due_ns < end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.due_ns;
      for (; sampled <= now_; sampled += 1'000) {
        const int64_t depth = queue_.queued_bytes(now_);
        queue_sum += static_cast<double>(depth);
        outcome_.deepest_queue_bytes = std::max(outcome_.deepest_queue_bytes, depth);
        ++samples;
      }
      step(event);
    }
    for (const Flow& flow : flows_) {
      outcome_.share.push_back(static_cast<double>(flow.arrived_bytes) * 8e9 /
                               (static_cast<double>(setup_.over_ns) * static_cast<double>(setup_.queue.link_bps)));
      outcome_.utilisation += outcome_.share.back();
    }
    outcome_.mean_queue_bytes = samples > 0 ? queue_sum / static_cast<double>(samples) : 0;
    outcome_.mean_rtt_ns = rtts_ > 0 ? rtt_sum_ / static_cast<double>(rtts_) : 0;
    outcome_.dropped = queue_.counters().dropped;
    return outcome_;
  }

 private:
  struct alignas(16) Aligned {
    uint8_t bytes[16];
  };
  enum class Kind : uint8_t { send, arrive_switch, arrive_receiver, acknowledge, cnp };
  struct Event {
    Nanos due_ns;
    uint64_t order;
    Kind kind;
    uint32_t flow;
    Nanos sent_ns;
    bool marked;
    etloop_cc_hop hop;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.order > b.order;
    }
  };
  struct Flow {
    FlowControl control;
    int64_t in_flight_bytes = 0;
    int64_t arrived_bytes = 0;
    Nanos link_free_ns = 0;
    Nanos cnp_sent_ns = -1'000'000'000;
    Nanos wake_ns = kNever;
  };

  void push(Nanos due, Kind kind, uint32_t flow, Nanos sent = 0, bool marked = false, etloop_cc_hop hop = {}) {
    events_.push({due, order_++, kind, flow, sent, marked, hop});
  }

  void step(const Event& event) {
    Flow& flow = flows_[event.flow];
    switch (event.kind) {
      case Kind::send:
        if (flow.wake_ns == event.due_ns) flow.wake_ns = kNever;
        break;
      case Kind::arrive_switch: {
        random_ = random_ * 6364136223846793005 + 1442695040888963407;
        const auto verdict = queue_.arrive(kPacketBytes, now_, static_cast<uint32_t>((random_ >> 33) % 1'000'000));
        if (!verdict.admitted) {
          flow.in_flight_bytes -= kMtu;
          return;
        }
        push(verdict.departs_ns + setup_.one_way_ns, Kind::arrive_receiver, event.flow, event.sent_ns, verdict.mark, verdict.hop);
        return;
      }
      case Kind::arrive_receiver:
        if (now_ >= setup_.warm_up_ns) flow.arrived_bytes += kPacketBytes;
        if (event.marked && now_ - flow.cnp_sent_ns >= setup_.cnp_interval_ns) {
          flow.cnp_sent_ns = now_;
          push(now_ + 2 * setup_.one_way_ns, Kind::cnp, event.flow);
        }
        push(now_ + 2 * setup_.one_way_ns, Kind::acknowledge, event.flow, event.sent_ns, event.marked, event.hop);
        return;
      case Kind::acknowledge: {
        flow.in_flight_bytes -= kMtu;
        AckOutcome outcome;
        outcome.packets = 1;
        outcome.bytes = kMtu;
        outcome.rtt_ns = now_ - event.sent_ns;
        outcome.ecn_echo = event.marked;
        if (now_ >= setup_.warm_up_ns) {
          rtt_sum_ += static_cast<double>(outcome.rtt_ns);
          ++rtts_;
        }
        flow.control.acknowledged(outcome, flow.in_flight_bytes, {&event.hop, 1}, now_);
        break;
      }
      case Kind::cnp: flow.control.notified(flow.in_flight_bytes, now_); break;
    }
    send(event.flow);
  }

  // Each flow has a link of its own to the switch, as fast as the bottleneck.
  void send(uint32_t index) {
    Flow& flow = flows_[index];
    if (flow.link_free_ns > now_) return wake(index, flow.link_free_ns);
    if (flow.in_flight_bytes >= int64_t{setup_.window_packets} * kMtu) return;
    if (flow.control.allowed(1, flow.in_flight_bytes, true, now_) == 0) return wake(index, flow.control.wake_ns());
    flow.in_flight_bytes += kMtu;
    flow.link_free_ns = now_ + int64_t{kPacketBytes} * 8'000'000'000 / setup_.queue.link_bps;
    PacketRun run;
    run.head.ack_req = true;
    flow.control.sent(run, kPacketBytes, 1, flow.in_flight_bytes, true, now_);
    push(flow.link_free_ns + setup_.one_way_ns, Kind::arrive_switch, index, flow.link_free_ns);
    wake(index, flow.link_free_ns);
  }

  void wake(uint32_t index, Nanos due) {
    if (due == kNever || due >= flows_[index].wake_ns) return;
    flows_[index].wake_ns = due;
    push(due, Kind::send, index);
  }

  Bottleneck setup_;
  EgressQueue queue_;
  CongestionParams params_;
  std::vector<std::unique_ptr<Aligned[]>> states_;
  std::vector<Flow> flows_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t order_ = 0;
  uint64_t random_ = 1;
  Nanos now_ = 0;
  double rtt_sum_ = 0;
  int64_t rtts_ = 0;
  BottleneckOutcome outcome_;
};

}  // namespace etloop::test
