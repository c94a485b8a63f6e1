// One end of a reliable-connected queue pair: requester and responder, without I/O. Rules: InfiniBand Architecture Specification
// vol. 1, 9.7; checked against Linux (torvalds/linux:drivers/infiniband/sw/rxe, rxe_req.c, rxe_comp.c and rxe_resp.c).
//
// The owner posts requests, fetches runs of packets while there are any, hands in received packets, and pops completions.
// Behaviour, defaults and their sources: docs/transport.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>

#include "base/prefetch.h"
#include "base/time.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/requester.h"
#include "qp/responder.h"
#include "qp/work.h"
#include "wire/packet_run.h"

namespace etloop {

class Qp {
 public:
  Qp(uint32_t local_qpn, uint32_t remote_qpn, FlowId flow, const TransportSettings& params, const QpResources& resources,
     std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // Requester.
  void post(const WorkRequest& request) { requester_.post(request); }
  bool has_run() const { return requester_.has_run(); }
  // Return the next packets to send; requires has_run(). No state changes until `run_sent`.
  PacketRun next_run(uint32_t max_run) { return requester_.next_run(max_run); }
  // The port accepted the run.
  SentRequest run_sent(const PacketRun& run, Nanos now) { return requester_.run_sent(run, now); }
  // Process an acknowledgement, NAK, READ response or atomic result.
  AckOutcome on_answer(const wire::Packet& packet, Nanos now) { return requester_.on_answer(packet, now); }
  // Pop completed requests, in order; `flushed`: completed by a fault.
  bool pop_completed(WorkRequest& done) { return requester_.pop_completed(done); }

  // Responder. True: `delivered` has a complete message; then call `next_delivered` until it returns false.
  bool on_request(const wire::Packet& packet, Delivered& delivered);
  bool next_delivered(Delivered& delivered) { return responder_.next_delivered(delivered); }
  void note_congestion() { responder_.note_congestion(); }
  bool answer_due() const { return responder_.answer_due(); }
  void on_trimmed(const wire::CutPacket& packet) { responder_.on_trimmed(packet); }
  bool nak_due() const { return responder_.nak_due(); }
  PacketRun answer() { return responder_.answer(); }
  void answer_sent(const PacketRun& run) { responder_.answer_sent(run); }

  // Time to call `on_timer`; kNever: no packet is outstanding.
  Nanos deadline() const { return requester_.deadline(); }
  void on_timer(Nanos now) { requester_.on_timer(now); }

  // Prefetch the state for an arrival, or for a turn to send: it is rarely cached.
  void expect_packet() const {
    prefetch(&responder_, kHotBytes);
    prefetch(&requester_);
    prefetch(&counters.rx_packets);
  }
  void expect_turn() const {
    prefetch(&counters);
    prefetch(&requester_, 2 * kHotBytes);
  }

  // Prefetch for the next turn; `expect_turn` was called a turn before.
  void expect_run() const { requester_.expect_run(); }

  QpFault fault() const { return requester_.fault(); }
  uint32_t oldest_unacknowledged() const { return requester_.oldest_unacknowledged(); }
  uint32_t under_way_before(uint32_t psn) const { return requester_.under_way_before(psn); }
  uint32_t expected_psn() const { return responder_.expected_psn(); }
  uint32_t msn() const { return responder_.msn(); }
  uint32_t retries() const { return requester_.timer().retries(); }
  Nanos progress_ns() const { return requester_.timer().progress_ns(); }
  bool answer_comes() const { return requester_.answer_comes(); }
  uint32_t in_flight_packets() const { return requester_.in_flight_packets(); }
  int64_t in_flight_bytes() const { return requester_.in_flight_bytes(); }
  void set_round_trip(Nanos round_trip_ns) { requester_.set_round_trip(round_trip_ns); }
  Nanos smoothed_rtt_ns() const { return requester_.timer().smoothed_rtt_ns(); }
  bool idle() const { return requester_.idle(); }
  bool repeats() const { return requester_.repeats(); }
  uint32_t local_qpn() const { return counters.local_qpn; }
  uint32_t remote_qpn() const { return counters.remote_qpn; }
  FlowId flow() const { return flow_; }
  void set_window(uint32_t packets) { requester_.set_window(packets); }
  // Set before the first packet: the peer chooses its number.
  void set_remote_qpn(uint32_t qpn) {
    counters.remote_qpn = qpn;
    requester_.set_remote_qpn(qpn);
    responder_.set_remote_qpn(qpn);
  }

 private:
  static constexpr size_t kHotBytes = 2 * kLineBytes;  // at the start of requester and responder

  alignas(kLineBytes) Responder responder_;
  FlowId flow_;

 public:
  bool queued = false;      // in its owner's transmit queue
  bool ack_queued = false;  // in its owner's acknowledgement queue
  bool ack_held = false;    // in its owner's list of held acknowledgements
  bool ack_rests = false;   // no sender waits for the held acknowledgement
  uint8_t held_messages = 0;  // messages with a held acknowledgement since the last answer
  Nanos cnp_after_ns = 0;   // earliest time of the next CNP

 private:
  alignas(kLineBytes) Requester requester_;

 public:
  Nanos timer_due_ns = kNever;  // the owner's earliest timer event
  alignas(kLineBytes) FlowRecord counters{};
};
// An odd number of cache lines, so that the same member of all queue pairs does not map to a few cache sets.
static_assert(sizeof(Qp) == 15 * kLineBytes);

}  // namespace etloop
