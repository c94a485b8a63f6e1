// The requester of an MRC queue pair: builds its packets, and translates SACKs, NACKs and probe responses for the multipath
// layer. Rules: OCP MRC 1.0, chapters 7 and 11, as interpreted in docs/mrc.md.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "mrc/outgoing.h"
#include "multipath/sender.h"

namespace etloop::mrc {

class Requester {
 public:
  // Requests are stored in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, multipath::PathStates& paths, const TransportSettings& params, FlowRecord& counters,
            std::pmr::memory_resource& memory)
      : counters_(counters), sender_(remote_qpn, paths, params, counters, memory), remote_qpn_(remote_qpn) {}

  void post(const WorkRequest& request);
  bool has_run() const { return sender_.has_run(); }
  // Return the next packet, on one of these planes; requires has_run(). No state changes until `sent` except the turn of the
  // entropy values.
  Outgoing next(uint32_t planes = multipath::kAllPlanes);
  // The port accepted the packet. Returns the request that it begins, if any, else nullptr.
  SentRequest sent(const Outgoing& outgoing, Nanos now) {
    return sender_.sent(outgoing.packet.bth.psn, outgoing.entropy, outgoing.asks(), now);
  }

  AckOutcome on_sack(const wire::mrc::Sack& sack, Nanos now);
  AckOutcome on_nack(const wire::mrc::Neth& nack, Nanos now);
  AckOutcome on_acknowledgement(const wire::mrc::Aeth& aeth, Nanos now);
  bool pop_completed(WorkRequest& done) { return sender_.pop_completed(done); }

  bool probe_due(Nanos now) { return sender_.probe_due(now); }
  Outgoing probe();
  void probe_sent(const Outgoing& probe, Nanos now) { sender_.probe_sent(probe.entropy, now); }

  Nanos deadline() const { return sender_.deadline(); }
  void on_timer(Nanos now) { sender_.on_timer(now); }
  bool awaits_answer() const { return sender_.last_probe().is_open(); }

  QpFault fault() const { return sender_.fault(); }
  bool repeats() const { return sender_.packets().lost() > 0; }
  uint32_t oldest_unacknowledged() const { return sender_.packets().oldest(); }
  uint32_t in_flight_packets() const { return sender_.packets().under_way(); }
  multipath::Sender& sender() { return sender_; }
  const multipath::Sender& sender() const { return sender_; }
  const AnswerTimer& timer() const { return sender_.timer(); }
  void set_window(uint32_t packets) { sender_.set_window(packets); }
  void set_round_trip(Nanos round_trip_ns) { sender_.set_round_trip(round_trip_ns); }

 private:
  // Whether this end had failed before an arrival, which is counted then.
  bool came_after_failure();
  void complete(uint16_t completed, Nanos now, AckOutcome& outcome);

  FlowRecord& counters_;
  multipath::Sender sender_;
  uint32_t remote_qpn_;
  uint16_t next_msn_ = 0;
  uint16_t next_rqmsn_ = 0;
  uint16_t acknowledged_msns_ = 0;  // messages completed by the peer
};

}  // namespace etloop::mrc
