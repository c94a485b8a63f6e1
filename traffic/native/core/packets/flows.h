// Congestion control of a port's queue pairs: how much of each may leave now, when it is asked again, and its rates and
// windows over time. Told what happens to a queue pair; sends nothing itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "cc/flow_controls.h"
#include "cc/rate_series.h"
#include "core/events.h"
#include "core/packets/queue_pairs.h"
#include "core/port.h"
#include "plan/plan.h"
#include "wire/packet_run.h"

namespace etloop {

// How far a sending end is, for a series of rates.
struct EndProgress {
  int64_t in_flight_bytes = 0;
  Nanos smoothed_rtt_ns = -1;
};
class EndProgressSource {
 public:
  virtual ~EndProgressSource() = default;
  virtual EndProgress progress(uint32_t index) const = 0;
};

class Flows {
 public:
  // `memory` outlives them.
  Flows(const EnginePlan& plan, int32_t port, const QueuePairs& queue_pairs, EventHeap& events, std::pmr::memory_resource& memory)
      : plan_(plan), port_(port), queue_pairs_(queue_pairs), events_(events), controls_(memory) {}

  // Once the queue pairs are open.
  void load();
  // Begins the series of rates, if one was asked for.
  void start(Nanos now);

  // Whose packets are of another transport than the queue pairs' own; outlives this.
  void set_progress(const EndProgressSource& source) { progress_ = &source; }
  // nullptr: the queue pair is not controlled. For whoever keeps its packets itself.
  FlowControl* control(uint32_t index) { return controls_.of(index); }
  int32_t port() const { return port_; }
  // When a control that let nothing leave is asked again.
  void arm_timer(uint32_t index, FlowControl& control);
  // What a packet of the queue pair occupies on its link beside the datagram.
  uint32_t link_bytes(uint32_t index) const {
    return (queue_pairs_.place(index).peer_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6) +
           plan_.ports[static_cast<size_t>(port_)].around_bytes();
  }

  // Cuts a run to what may leave now, and dates it. 0: the queue pair rests, and a timer or a packet takes it up again.
  uint32_t allowed(uint32_t index, PacketRun& run, Nanos horizon_ns, Clock& clock);
  // Makes the run ask for an acknowledgement where the window needs one.
  void ask(uint32_t index, PacketRun& run) {
    if (FlowControl* control = controls_.of(index); control != nullptr) control->ask(run);
  }
  // The run was sent, with so many packets in it for the first time.
  void sent(uint32_t index, const PacketRun& run, int64_t fresh_packets, Nanos now);
  void acknowledged(uint32_t index, const AckOutcome& outcome, std::span<const etloop_cc_hop> hops, Nanos now);
  // False: nobody here listens to congestion notifications of this queue pair.
  bool notified(uint32_t index, Nanos now);
  void timed_out(uint32_t index, Nanos now);
  void probed(uint32_t index, Nanos round_trip_ns, uint32_t window_packets);
  void on_timer(uint32_t index, Nanos due_ns) {
    FlowControl& control = *controls_.of(index);
    if (control.event_ns <= due_ns) control.event_ns = kNever;
  }
  // Until then another look at the queue pair comes to the same, unless something is told.
  Nanos settled_until_ns(uint32_t index) {
    const FlowControl* control = controls_.of(index);
    return control == nullptr ? kNever : control->settled_until_ns();
  }
  // It is soon asked.
  void expect(uint32_t index) const { controls_.expect(index); }

  // Writes one sample of every watched queue pair, and asks to be called again.
  void write_series(Nanos now);
  // nullptr: none was asked for.
  const RateSeries* series() const { return series_.get(); }

 private:
  EndProgress progress_of(uint32_t index) const {
    if (progress_ != nullptr) return progress_->progress(index);
    return {queue_pairs_[index].in_flight_bytes(), queue_pairs_[index].smoothed_rtt_ns()};
  }

  const EnginePlan& plan_;
  int32_t port_;
  const QueuePairs& queue_pairs_;
  EventHeap& events_;
  FlowControls controls_;
  const EndProgressSource* progress_ = nullptr;
  std::unique_ptr<RateSeries> series_;
  std::vector<uint32_t> watched_;  // queue pairs of the series
};

}  // namespace etloop
