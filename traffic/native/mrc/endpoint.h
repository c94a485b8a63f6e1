// One end of an MRC queue pair, without I/O: what asks and what is asked, side by side. Its owner posts messages, asks for
// packets while there are any, hands in what arrives, and pops what is over.
#pragma once

#include <memory_resource>

#include "mrc/requester.h"
#include "mrc/responder.h"
#include "wire/packet_run.h"

namespace etloop::mrc {

struct Endpoint {
  using Outgoing = mrc::Outgoing;
  static constexpr const char* kName = "MRC";
  static constexpr size_t kMaxHeaderBytes = wire::mrc::kMaxHeaderBytes;
  static constexpr PacketTrailer kTrailer = PacketTrailer::icrc;
  // Of a write beside its payload, without immediate data.
  static constexpr uint64_t kWriteBytes =
      wire::mrc::Bth::kBytes + wire::mrc::Meth::kBytes + wire::mrc::Reth::kBytes + wire::mrc::kIcrcBytes;

  Endpoint(uint32_t remote_qpn, multipath::PathStates& to_peer, uint32_t pattern_rkey, const TransportSettings& params,
           FlowRecord& counters, std::pmr::memory_resource& memory)
      : paths(to_peer),
        requester(remote_qpn, to_peer, params, counters, memory),
        responder(remote_qpn, params, pattern_rkey, counters) {}

  void post(const WorkRequest& request) { requester.post(request); }
  bool has_run() const { return requester.has_run(); }
  // By one of the planes whose cards have room.
  Outgoing next(uint32_t planes = multipath::kAllPlanes) { return requester.next(planes); }
  bool repeats() const { return requester.repeats(); }
  const WorkRequest* sent(const Outgoing& outgoing, Nanos now) { return requester.sent(outgoing, now); }
  bool answer_due() const { return responder.answer_due(); }
  // By a path of this end's own, in turn: by that of the packet that caused it, what is broken one way only would keep all that
  // is said of it from its sender.
  // Of several planes by the one that the last packet came by, if it is in use.
  Outgoing answer(uint32_t planes = multipath::kAllPlanes) {
    Outgoing answer = responder.answer();
    answer.entropy = requester.sender().entropy().next(planes);
    return answer;
  }
  void answer_sent() { responder.answer_sent(); }
  bool probe_due(Nanos now) { return requester.probe_due(now); }
  Outgoing probe() { return requester.probe(); }
  void probe_sent(const Outgoing& probe, Nanos now) { requester.probe_sent(probe, now); }
  bool next_delivered(Delivered& delivered) { return responder.next_delivered(delivered); }
  bool pop_completed(WorkRequest& done) { return requester.pop_completed(done); }
  Nanos deadline() const { return requester.deadline(); }
  void on_timer(Nanos now) { requester.on_timer(now); }
  void stay_open() {}  // queue pairs are not closed
  // One is wanted because no packet under way makes the peer answer, or nothing is heard of it.
  bool wants_probe() const { return requester.sender().wants_probe(); }
  bool answer_comes() const { return requester.sender().answer_comes(); }
  bool awaits_answer() const { return requester.awaits_answer(); }
  void set_round_trip(Nanos round_trip_ns) { requester.set_round_trip(round_trip_ns); }
  QpFault fault() const { return requester.fault() != QpFault::none ? requester.fault() : responder.fault(); }
  uint32_t oldest_unacknowledged() const { return requester.oldest_unacknowledged(); }
  uint32_t in_flight_packets() const { return requester.in_flight_packets(); }
  const AnswerTimer& timer() const { return requester.timer(); }

  const multipath::PathStates& paths;
  Requester requester;
  Responder responder;
  bool queued = false;          // in its owner's transmit queue
  bool answers_queued = false;  // likewise of answers and probes
  Nanos timer_due_ns = kNever;  // of its owner's earliest timer event
};

}  // namespace etloop::mrc
