// One end of an MRC queue pair, without I/O: requester and responder. The owner posts messages, fetches packets while there are
// any, hands in received packets, and pops completions.
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
  // Header bytes of a write without immediate data.
  static constexpr uint64_t kWriteBytes =
      wire::mrc::Bth::kBytes + wire::mrc::Meth::kBytes + wire::mrc::Reth::kBytes + wire::mrc::kIcrcBytes;

  Endpoint(uint32_t remote_qpn, multipath::PathStates& to_peer, uint32_t pattern_rkey, const TransportSettings& params,
           FlowRecord& counters, std::pmr::memory_resource& memory)
      : paths(to_peer),
        requester(remote_qpn, to_peer, params, counters, memory),
        responder(remote_qpn, params, pattern_rkey, counters) {}

  void post(const WorkRequest& request) { requester.post(request); }
  bool has_run() const { return requester.has_run(); }
  // Return the next packet, on one of the planes with room.
  Outgoing next(uint32_t planes = multipath::kAllPlanes) { return requester.next(planes); }
  bool repeats() const { return requester.repeats(); }
  SentRequest sent(const Outgoing& outgoing, Nanos now) { return requester.sent(outgoing, now); }
  bool answer_due() const { return responder.answer_due(); }
  // Answers use this end's own paths in turn: on the path of the causing packet, a path broken in one direction would keep all
  // answers from its sender. On a card, they use the plane of the last arrival if it is in use.
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
  // A probe is wanted: no packet in flight requests an answer, or the peer is silent.
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
  bool answers_queued = false;  // in its owner's queue of answers and probes
  Nanos timer_due_ns = kNever;  // the owner's earliest timer event
};

}  // namespace etloop::mrc
