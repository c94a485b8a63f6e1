// Congestion control of a port's queue pairs: how much each may send now, when to ask again, and the series of rates and windows.
// It is notified of a queue pair's events; it sends nothing itself.
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

// Progress of a sending end, for the series of rates.
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
  // `memory` outlives this.
  Flows(const EnginePlan& plan, int32_t port, const QueuePairs& queue_pairs, EventHeap& events, std::pmr::memory_resource& memory)
      : plan_(plan), port_(port), queue_pairs_(queue_pairs), events_(events), controls_(memory) {}

  // Call after the queue pairs are open.
  void load();
  // Begin the series of rates, if requested.
  void start(Nanos now);

  // Set the source of progress for a transport other than RoCEv2; outlives this.
  void set_progress(const EndProgressSource& source) { progress_ = &source; }
  // Return the queue pair's control, for transports that track packets themselves; nullptr: not controlled.
  FlowControl* control(uint32_t index) { return controls_.of(index); }
  int32_t port() const { return port_; }
  // Schedule the next query of a control that allowed no packet.
  void arm_timer(uint32_t index, FlowControl& control);
  // Bytes that a packet of the queue pair occupies on its link in addition to the datagram.
  uint32_t link_bytes(uint32_t index) const {
    return (queue_pairs_.place(index).peer_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6) +
           plan_.ports[static_cast<size_t>(port_)].around_bytes();
  }

  // Cut a run to the packets that may leave now, and set its departure time. 0: none may; a timer or an arrival resumes the queue
  // pair.
  uint32_t allowed(uint32_t index, PacketRun& run, Nanos horizon_ns, Clock& clock);
  // Request an acknowledgement in the run if the window needs one.
  void ask(uint32_t index, PacketRun& run) {
    if (FlowControl* control = controls_.of(index); control != nullptr) control->ask(run);
  }
  // Note that the run was sent, with `fresh_packets` first transmissions.
  void sent(uint32_t index, const PacketRun& run, int64_t fresh_packets, Nanos now);
  void acknowledged(uint32_t index, const AckOutcome& outcome, std::span<const etloop_cc_hop> hops, Nanos now);
  // Note a CNP. False: the congestion control ignores CNPs.
  bool notified(uint32_t index, Nanos now);
  void timed_out(uint32_t index, Nanos now);
  void probed(uint32_t index, Nanos round_trip_ns, uint32_t window_packets);
  void on_timer(uint32_t index, Nanos due_ns) {
    FlowControl& control = *controls_.of(index);
    if (control.event_ns <= due_ns) control.event_ns = kNever;
  }
  // Time until which repeated queries give the same result, unless an event is reported.
  Nanos settled_until_ns(uint32_t index) {
    const FlowControl* control = controls_.of(index);
    return control == nullptr ? kNever : control->settled_until_ns();
  }
  // Prefetch the control's state.
  void expect(uint32_t index) const { controls_.expect(index); }

  // Write one sample per watched queue pair, and schedule the next.
  void write_series(Nanos now);
  // Return the series; nullptr: none was requested.
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
