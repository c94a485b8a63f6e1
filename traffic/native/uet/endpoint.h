// One end of a queue pair over UET, without I/O: the packet delivery contexts (PDC) that it initiates and that its peer
// initiates. The owner posts messages, fetches packets while there are any, hands in received packets, and pops completions.
#pragma once

#include <memory_resource>

#include "uet/requester.h"
#include "uet/responder.h"
#include "wire/packet_run.h"

namespace etloop::uet {

struct Endpoint {
  using Outgoing = uet::Outgoing;
  static constexpr const char* kName = "UET";
  static constexpr size_t kMaxHeaderBytes = wire::uet::kMaxHeaderBytes;
  static constexpr PacketTrailer kTrailer = PacketTrailer::none;
  // Header bytes of a write.
  static constexpr uint64_t kWriteBytes = wire::uet::Request::kBytes + wire::uet::StandardRequest::kBytes;

  Endpoint(uint32_t remote_qpn, multipath::PathStates& to_peer, uint32_t pattern_rkey, const TransportSettings& params,
           FlowRecord& counters, std::pmr::memory_resource& memory)
      : paths(to_peer),
        requester(remote_qpn, to_peer, params, counters, memory),
        responder(counters.local_qpn, params, pattern_rkey, counters) {}
  void attach(PdcIds& ids, uint32_t end) {
    requester.attach(ids, end);
    responder.attach(ids, end);
  }

  void post(const WorkRequest& request) { requester.post(request); }
  bool has_run() const { return requester.has_run(); }
  // Return the next packet, on one of the planes with room.
  Outgoing next(uint32_t planes = multipath::kAllPlanes) { return requester.next(planes); }
  bool repeats() const { return requester.sender().packets().lost() > 0; }
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
  bool probe_due(Nanos now) { return requester.control_due(now); }
  Outgoing probe() { return requester.control(); }
  void probe_sent(const Outgoing& control, Nanos now) { requester.control_sent(control, now); }
  bool next_delivered(Delivered& delivered) { return responder.next_delivered(delivered); }
  bool pop_completed(WorkRequest& done) { return requester.pop_completed(done); }
  Nanos deadline() const { return requester.deadline(); }
  void on_timer(Nanos now) { requester.on_timer(now); }
  void stay_open() { requester.stay_open(); }
  // A probe is wanted: no packet in flight requests an answer, or the peer is silent.
  bool wants_probe() const { return requester.sender().wants_probe(); }
  bool answer_comes() const { return requester.sender().answer_comes(); }
  bool awaits_answer() const { return requester.awaits_answer(); }
  void set_round_trip(Nanos round_trip_ns) { requester.sender().set_round_trip(round_trip_ns); }
  QpFault fault() const {
    const QpFault own = requester.sender().fault();
    return own != QpFault::none ? own : responder.fault();
  }
  uint32_t oldest_unacknowledged() const { return requester.sender().packets().oldest(); }
  uint32_t in_flight_packets() const { return requester.sender().packets().under_way(); }
  const AnswerTimer& timer() const { return requester.sender().timer(); }

  const multipath::PathStates& paths;
  Requester requester;
  Responder responder;
  bool queued = false;          // in its owner's transmit queue
  bool answers_queued = false;  // in its owner's queue of answers and control packets
  Nanos timer_due_ns = kNever;  // the owner's earliest timer event
};

}  // namespace etloop::uet
