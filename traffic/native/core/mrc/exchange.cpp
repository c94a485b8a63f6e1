#include "core/mrc/exchange.h"

#include <array>
#include <string>
#include <variant>

namespace etloop {

using wire::mrc::Opcode;

namespace {

constexpr uint8_t kEcnMask = 0x03;
constexpr uint8_t kEcnCongestionExperienced = 0x03;

// Of a write beside its payload, without immediate data.
constexpr uint64_t kWriteBytes =
    wire::mrc::Bth::kBytes + wire::mrc::Meth::kBytes + wire::mrc::Reth::kBytes + wire::mrc::kIcrcBytes;

bool is_marked(const Datagram& datagram) { return (datagram.traffic_class & kEcnMask) == kEcnCongestionExperienced; }

// Congestion control sees packets as RoCEv2's: only their count, and whether one asks to be acknowledged.
PacketRun run_of(const mrc::Outgoing& outgoing, FlowId flow) {
  PacketRun run;
  run.flow = flow;
  run.head.psn = outgoing.packet.bth.psn;
  run.head.ack_req = outgoing.packet.bth.sack_req;
  return run;
}

}  // namespace

MrcExchange::MrcExchange(const Parts& parts, std::pmr::memory_resource& memory)
    : plan_(parts.plan),
      connections_(parts.connections),
      queue_pairs_(parts.queue_pairs),
      flows_(parts.flows),
      probing_(parts.probing),
      deliveries_(parts.deliveries),
      lanes_(parts.lanes),
      records_(parts.records),
      events_(parts.events),
      failure_(parts.failure),
      ends_(memory) {
  ends_.reserve(queue_pairs_.size());
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    Qp& qp = queue_pairs_[i];
    const QpPlace& place = queue_pairs_.place(i);
    const PlannedConnection& c = connections_.planned(place.connection);
    const PlannedQp& planned = plan_.qps[static_cast<size_t>(c.first_qp) + place.ordinal];
    const uint16_t first_port = place.sends_data ? planned.src_udp_port : planned.dst_udp_port;
    const uint32_t accepts =
        place.sends_data ? (qp.local_qpn() << 8) | 0xF1 : connections_[place.connection].data_rkey;
    ends_.emplace_back(qp.remote_qpn(), first_port, accepts, plan_.transport, qp.counters, memory);
    queue_pair_to_.emplace(place.peer_ip, i);
  }
  data_ring_.resize(queue_pairs_.size());
  grant_ring_.resize(queue_pairs_.size());
  answers_.reserve(queue_pairs_.size());
}

void MrcExchange::post(uint32_t index, const WorkRequest& request) {
  ends_[index].requester.post(request);
  queue(index);
}

void MrcExchange::queue(uint32_t index) {
  mrc::Endpoint& end = ends_[index];
  if (end.queued) return;
  end.queued = true;
  (queue_pairs_.place(index).sends_data ? data_ring_ : grant_ring_).push(index);
}

void MrcExchange::queue_answers(uint32_t index) {
  mrc::Endpoint& end = ends_[index];
  if (end.answers_queued) return;
  end.answers_queued = true;
  answers_.push_back(index);
}

EndProgress MrcExchange::progress(uint32_t index) const {
  return {in_flight_bytes(index), ends_[index].requester.timer().smoothed_rtt_ns()};
}

// ---- sending

TxResult MrcExchange::send(TxPort& port, uint32_t index, const mrc::Outgoing& outgoing, const ClassMarks& marks, bool answers) {
  std::array<uint8_t, wire::mrc::kMaxHeaderBytes> headers;
  const size_t used = wire::mrc::encode_headers(outgoing.packet, headers);
  BuiltPacket built;
  built.flow = queue_pairs_[index].flow();
  built.src_port = outgoing.entropy;
  built.dest_qpn = outgoing.packet.bth.dest_qpn;
  built.answers = answers;
  built.marks = marks;
  built.headers = std::span(headers).first(used);
  if (const auto* write = std::get_if<wire::mrc::Write>(&outgoing.packet.body)) {
    built.payload_bytes = write->payload_bytes;
    built.payload = write->payload;
  }
  return port.send_built(built);
}

void MrcExchange::fail_at(uint32_t index, TxPort& port) {
  const int32_t connection = queue_pairs_.place(index).connection;
  failure_.set(connection, connections_.text(connection) + ": " + port.last_error());
}

// One packet of the queue pair in front. held and would_block leave it there.
TxResult MrcExchange::transmit_one(TransmitRing& ring, TxPort& port, Clock& clock) {
  const uint32_t index = ring.front();
  mrc::Endpoint& end = ends_[index];
  // Congestion control begins with the job, by what the probes before it measured.
  FlowControl* control = probing_.under_way() ? nullptr : flows_.control(index);
  bool rests = !end.requester.has_run();
  if (!rests && control != nullptr && control->allowed(1, in_flight_bytes(index), clock.now()) == 0) {
    flows_.arm_timer(index, *control);
    rests = true;
  }
  if (!rests) {
    mrc::Outgoing outgoing = end.requester.next();
    PacketRun run = run_of(outgoing, queue_pairs_[index].flow());
    if (control != nullptr) {
      control->ask(run);
      outgoing.packet.bth.sack_req = run.head.ack_req;
    }
    const bool grants = &ring == &grant_ring_;
    const TxResult result = send(port, index, outgoing, grants ? plan_.transport.grant : ClassMarks{}, false);
    if (result == TxResult::failed) fail_at(index, port);
    if (result != TxResult::sent) return result;
    const Nanos now = clock.now();
    if (const WorkRequest* begun = end.requester.sent(outgoing, now); begun != nullptr && carries_data(begun->kind)) {
      records_.note_departure(begun->op, now);
      records_.note_turnaround(begun->trigger_ns, now);
    }
    if (control != nullptr) {
      const auto& write = std::get<wire::mrc::Write>(outgoing.packet.body);
      const uint64_t wire_bytes = kWriteBytes + write.payload_bytes + flows_.link_bytes(index);
      control->sent(run, wire_bytes, outgoing.packet.bth.retransmitted ? 0 : 1, in_flight_bytes(index),
                    end.requester.has_run(), now);
    }
    arm_timer(index);
    if (end.requester.probe_due(now)) queue_answers(index);
  }
  ring.pop();
  end.queued = false;
  if (!rests && end.requester.has_run()) queue(index);
  return TxResult::sent;
}

// False: nothing more leaves now.
bool MrcExchange::transmit_answers(TxPort& port, Clock& clock) {
  while (!answers_.empty()) {
    const uint32_t index = answers_.back();
    mrc::Endpoint& end = ends_[index];
    while (end.responder.answer_due()) {
      mrc::Outgoing answer = end.responder.answer();
      answer.entropy = end.requester.value_for_answer();
      if (const TxResult result = send(port, index, answer, plan_.transport.ack, true); result != TxResult::sent) {
        return result == TxResult::held;
      }
      end.responder.answer_sent();
    }
    if (end.requester.probe_due(clock.now())) {
      if (const TxResult result = send(port, index, end.requester.probe(), {}, true); result != TxResult::sent) {
        return result == TxResult::held;
      }
      end.requester.probe_sent(clock.now());
    }
    end.answers_queued = false;
    answers_.pop_back();
  }
  return true;
}

bool MrcExchange::transmit_probes(TxPort& port, Clock& clock) {
  while (!replies_.empty()) {
    const Reply& reply = replies_.back();
    mrc::Outgoing outgoing;
    wire::mrc::Bth& bth = outgoing.packet.bth;
    bth.opcode = Opcode::endpoint_response;
    bth.dest_qpn = wire::mrc::kEndpointQpn;
    bth.psn = reply.id;
    wire::mrc::Eeth eeth;
    eeth.op = wire::mrc::EndpointOp::entropy_probe;
    eeth.tx_timestamp = reply.tx_timestamp;
    outgoing.packet.body = eeth;
    outgoing.entropy = reply.entropy;
    if (const TxResult result = send(port, reply.qp, outgoing, plan_.transport.ack, true); result != TxResult::sent) {
      return result == TxResult::held;
    }
    replies_.pop_back();
  }
  if (probing_.under_way()) {
    probing_.send_writes(clock.now(), [this](uint32_t qp, const WorkRequest& request) { post(qp, request); });
  }
  return true;
}

bool MrcExchange::transmit(TxPort& port, Clock& clock, size_t budget) {
  if (!transmit_answers(port, clock) || !transmit_probes(port, clock)) return false;
  while (grant_ring_.size() > 0 && failure_.none()) {
    const TxResult result = transmit_one(grant_ring_, port, clock);
    if (result == TxResult::held) break;
    if (result != TxResult::sent) return false;
  }
  while (budget > 0 && data_ring_.size() > 0 && failure_.none()) {
    if (transmit_one(data_ring_, port, clock) != TxResult::sent) return false;
    --budget;
  }
  return data_ring_.size() > 0 && failure_.none();
}

// ---- arrivals

void MrcExchange::on_datagram(const Datagram& datagram, Nanos now) {
  if (datagram.trimmed) {
    on_trimmed(datagram, now);
    return;
  }
  wire::mrc::Packet packet;
  if (wire::mrc::decode(datagram.bytes, datagram.datagram_bytes, packet) != wire::mrc::Malformed::none) {
    ++foreign_;
    return;
  }
  if (packet.bth.dest_qpn == wire::mrc::kEndpointQpn) {
    on_endpoint_packet(packet, datagram);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.bth.dest_qpn);
  if (index == QueuePairs::kNone || queue_pairs_.place(index).peer_ip != datagram.src_ip) {
    ++foreign_;
    return;
  }
  on_packet(index, packet, datagram, now);
}

void MrcExchange::on_trimmed(const Datagram& datagram, Nanos) {
  wire::mrc::CutPacket packet;
  const bool readable = wire::mrc::decode_cut(datagram.bytes, packet) == wire::mrc::Malformed::none;
  const uint32_t index = readable ? queue_pairs_.find(packet.dest_qpn) : QueuePairs::kNone;
  if (index == QueuePairs::kNone || queue_pairs_.place(index).peer_ip != datagram.src_ip) {
    ++foreign_;
    return;
  }
  ++trimmed_;
  ends_[index].responder.on_trimmed(packet, datagram.src_port);
  if (ends_[index].responder.answer_due()) queue_answers(index);
}

void MrcExchange::on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now) {
  mrc::Endpoint& end = ends_[index];
  if (std::holds_alternative<wire::mrc::Write>(packet.body)) {
    on_write(index, packet, datagram, now);
  } else if (const auto* sack = std::get_if<wire::mrc::Sack>(&packet.body)) {
    on_answer(index, end.requester.on_sack(*sack, now), now);
  } else if (const auto* nack = std::get_if<wire::mrc::Neth>(&packet.body)) {
    on_answer(index, end.requester.on_nack(*nack, now), now);
  } else if (const auto* aeth = std::get_if<wire::mrc::Aeth>(&packet.body)) {
    on_answer(index, end.requester.on_acknowledgement(*aeth, now), now);
  } else if (const auto* probe = std::get_if<wire::mrc::Peth>(&packet.body)) {
    end.responder.on_probe(*probe, datagram.src_port, is_marked(datagram));
    queue_answers(index);
  } else {
    ++foreign_;  // of the endpoint, and addressed to a queue pair
  }
}

void MrcExchange::on_write(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now) {
  mrc::Endpoint& end = ends_[index];
  const bool marked = is_marked(datagram);
  if (marked) ++queue_pairs_[index].counters.np_ecn_marked_roce_packets;
  end.responder.on_write(packet.bth, std::get<wire::mrc::Write>(packet.body), datagram.src_port, marked);
  Delivered delivered;
  while (end.responder.next_delivered(delivered)) {
    deliveries_.hand_over(index, delivered, now);
    if (!failure_.none()) return;
  }
  if (end.responder.answer_due()) queue_answers(index);
  if (end.responder.fault() != QpFault::none) report_fault(index);
}

void MrcExchange::on_answer(uint32_t index, const AckOutcome& outcome, Nanos now) {
  if (FlowControl* control = flows_.control(index); control != nullptr) {
    control->acknowledged(outcome, in_flight_bytes(index), {}, now);
  }
  retire(index, now);
  if (ends_[index].requester.fault() == QpFault::none) arm_timer(index);
}

void MrcExchange::on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram) {
  const auto* request = std::get_if<wire::mrc::Erth>(&packet.body);
  const auto peer = queue_pair_to_.find(datagram.src_ip);
  // Ports that come and go are no part of this; more probes at once than can wait are forgotten, and asked again.
  const bool asks = request != nullptr && request->op == wire::mrc::EndpointOp::entropy_probe;
  if (!asks || peer == queue_pair_to_.end()) {
    ++foreign_;
    return;
  }
  if (replies_.size() == kMostReplies) return;
  replies_.push_back({peer->second, static_cast<uint16_t>(packet.bth.psn), datagram.src_port, request->tx_timestamp});
}

// A write of a whole packet came through: the round trip is that of data. What class it arrived with nobody says.
void MrcExchange::on_probed(uint32_t index, Nanos now) {
  probing_.on_written(index, now);
  const Nanos round_trip_ns = probing_.round_trip_ns(index);
  if (round_trip_ns < 0) return;
  const uint32_t window = plan_.transport.window_packets == 0 ? kMostMrcWindow : plan_.transport.window_packets;
  flows_.probed(index, round_trip_ns, window);
  ends_[index].requester.set_round_trip(round_trip_ns);
}

void MrcExchange::retire(uint32_t index, Nanos now) {
  mrc::Requester& requester = ends_[index].requester;
  WorkRequest done;
  while (requester.pop_completed(done)) {
    if (done.flushed || done.kind == WorkKind::clear_to_send) continue;
    if (done.kind == WorkKind::probe) {
      on_probed(index, now);
      continue;
    }
    lanes_.on_acknowledged(done.lane, static_cast<uint32_t>(done.index), now);
  }
  if (requester.fault() != QpFault::none) {
    report_fault(index);
  } else if (requester.has_run()) {
    queue(index);
  }
}

void MrcExchange::report_fault(uint32_t index) {
  const mrc::Endpoint& end = ends_[index];
  const int32_t connection = queue_pairs_.place(index).connection;
  const QpFault fault = end.requester.fault() != QpFault::none ? end.requester.fault() : end.responder.fault();
  failure_.set(connection, connections_.text(connection) + ": " + describe(fault) + " (MRC queue pair " +
                               std::to_string(queue_pairs_[index].local_qpn()) + ", packet " +
                               std::to_string(end.requester.oldest_unacknowledged()) + ")");
}

void MrcExchange::arm_timer(uint32_t index) {
  mrc::Endpoint& end = ends_[index];
  const Nanos deadline = end.requester.deadline();
  if (deadline >= end.timer_due_ns) return;  // a timer that comes too early arms the next
  end.timer_due_ns = deadline;
  events_.push(deadline, EventKind::qp_timer, index);
}

void MrcExchange::on_timer(uint32_t index, Nanos now) {
  mrc::Endpoint& end = ends_[index];
  if (end.timer_due_ns <= now) end.timer_due_ns = kNever;
  if (end.requester.deadline() <= now) {
    FlowRecord& counters = queue_pairs_[index].counters;
    const int64_t timeouts = counters.local_ack_timeout_err;
    end.requester.on_timer(now);
    FlowControl* control = flows_.control(index);
    if (control != nullptr && counters.local_ack_timeout_err != timeouts) control->timed_out(in_flight_bytes(index), now);
    retire(index, now);
    if (end.requester.fault() != QpFault::none) return;
    if (end.requester.probe_due(now)) queue_answers(index);
  }
  arm_timer(index);
}

}  // namespace etloop
