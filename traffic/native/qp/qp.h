// One end of a reliable-connected queue pair: requester and responder, without I/O.
// Rules: InfiniBand Architecture Specification vol. 1, 9.7; checked against what Linux does
// (torvalds/linux:drivers/infiniband/sw/rxe, rxe_req.c, rxe_comp.c and rxe_resp.c).
//
// The owner posts requests, asks for runs of packets while there are any, hands in what arrives, and pops what is over.
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
  // The next packets to send; requires has_run(). Changes nothing until `run_sent`.
  PacketRun next_run(uint32_t max_run) { return requester_.next_run(max_run); }
  // The port took the run. Returns the request it belongs to if the run was its first transmission's start, else nullptr.
  const WorkRequest* run_sent(const PacketRun& run, Nanos now) { return requester_.run_sent(run, now); }
  // An acknowledgement, NAK, READ response or atomic result.
  AckOutcome on_answer(const wire::Packet& packet, Nanos now) { return requester_.on_answer(packet, now); }
  // Requests that are over, in order; `flushed` says that a fault overtook them.
  bool pop_completed(WorkRequest& done) { return requester_.pop_completed(done); }

  // Responder. True: `delivered` holds a whole message; then `next_delivered` until it says false.
  bool on_request(const wire::Packet& packet, Delivered& delivered);
  bool next_delivered(Delivered& delivered) { return responder_.next_delivered(delivered); }
  void note_congestion() { responder_.note_congestion(); }
  bool answer_due() const { return responder_.answer_due(); }
  void on_trimmed(const wire::CutPacket& packet) { responder_.on_trimmed(packet); }
  bool nak_due() const { return responder_.nak_due(); }
  PacketRun answer() { return responder_.answer(); }
  void answer_sent(const PacketRun& run) { responder_.answer_sent(run); }

  // When `on_timer` is to be called; kNever while nothing is waited for.
  Nanos deadline() const { return requester_.deadline(); }
  void on_timer(Nanos now) { requester_.on_timer(now); }

  // A packet comes, or the turn to send, and what that looks at is far away in memory.
  void expect_packet() const {
    prefetch(&responder_, kHotBytes);
    prefetch(&requester_);
    prefetch(&counters.rx_packets);
  }
  void expect_turn() const {
    prefetch(&counters);
    prefetch(&requester_, 2 * kHotBytes);
  }

  // The next turn is its own, and `expect_turn` came a turn before.
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
  // Before the first packet: the peer's number is its own to choose.
  void set_remote_qpn(uint32_t qpn) {
    counters.remote_qpn = qpn;
    requester_.set_remote_qpn(qpn);
    responder_.set_remote_qpn(qpn);
  }

 private:
  static constexpr size_t kHotBytes = 2 * kLineBytes;  // at the beginning of both halves

  alignas(kLineBytes) Responder responder_;
  FlowId flow_;

 public:
  bool queued = false;      // in its owner's transmit queue
  bool ack_queued = false;  // in its owner's acknowledgement queue
  bool ack_held = false;    // among those that its owner holds back
  uint8_t held_messages = 0;  // that came since it last answered, and wait for others
  Nanos cnp_after_ns = 0;   // not before then is the next congestion notification sent

 private:
  alignas(kLineBytes) Requester requester_;

 public:
  Nanos timer_due_ns = kNever;  // of its owner's earliest timer event
  alignas(kLineBytes) FlowRecord counters{};
};
// An odd number of cache lines: those that all queue pairs look at are not all in the same few sets of a cache.
static_assert(sizeof(Qp) == 15 * kLineBytes);

}  // namespace etloop
