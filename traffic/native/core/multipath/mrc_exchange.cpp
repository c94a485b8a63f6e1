#include "core/multipath/mrc_exchange.h"

#include <variant>

#include "core/packets/discard_reasons.h"
#include "wire/wire.h"

namespace etloop {

using wire::mrc::Opcode;

MrcExchange::MrcExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory)
    : MultipathExchange<mrc::Endpoint>(parts, memory) {
  add_peers();
}

void MrcExchange::add_peers() {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    const QpPlace& place = queue_pairs_.place(i);
    if (peers_.contains({place.address, place.peer_ip})) continue;
    const uint32_t number = reports_.add(paths_.known(place.address, place.peer_ip));
    told_by_.push_back(i);
    at_each_plane(i, [&](uint16_t address, const IpAddress& theirs) {
      peers_.emplace(std::pair(address, theirs), Peer{i, number});
    });
  }
}

void MrcExchange::on_planes_changed(uint32_t up, Nanos now) { reports_.changed(up, now); }

// A port status update to each peer that has not answered it, by a plane that is up. False: nothing more leaves now.
bool MrcExchange::transmit_reports(TxPort& port, Clock& clock) {
  PlaneReports::Due due;
  const Nanos now = clock.now();
  while (reports_.next_due(now, due)) {
    const uint32_t index = told_by_[due.peer];
    mrc::Outgoing outgoing;
    wire::mrc::Bth& bth = outgoing.packet.bth;
    bth.opcode = Opcode::endpoint_request;
    bth.dest_qpn = wire::mrc::kEndpointQpn;
    bth.psn = due.id;
    wire::mrc::Erth erth;
    erth.op = wire::mrc::EndpointOp::port_status;
    erth.port_status_mask = due.planes_up;
    outgoing.packet.body = erth;
    outgoing.entropy = ends_[index].requester.sender().entropy().next();
    if (const TxResult result = send(port, clock, index, outgoing, marks_of(plan_.transport.ack), true);
        result != TxResult::sent) {
      return result == TxResult::held;
    }
    reports_.sent(due, now);
  }
  if (reports_.due_ns() != kNever) events_.push(reports_.due_ns(), EventKind::planes_due, 0);
  return true;
}

bool MrcExchange::transmit_strays(TxPort& port, Clock& clock) {
  if (reports_.due_ns() <= clock.now() && !transmit_reports(port, clock)) return false;
  while (!replies_.empty()) {
    const Reply& reply = replies_.back();
    mrc::Outgoing outgoing;
    wire::mrc::Bth& bth = outgoing.packet.bth;
    bth.opcode = Opcode::endpoint_response;
    bth.dest_qpn = wire::mrc::kEndpointQpn;
    bth.psn = reply.id;
    wire::mrc::Eeth eeth;
    eeth.op = reply.op;
    eeth.tx_timestamp = reply.tx_timestamp;
    outgoing.packet.body = eeth;
    outgoing.entropy = reply.entropy;
    if (const TxResult result = send(port, clock, reply.qp, outgoing, marks_of(plan_.transport.ack), true);
        result != TxResult::sent) {
      return result == TxResult::held;
    }
    replies_.pop_back();
  }
  return true;
}

void MrcExchange::on_datagram(const Datagram& datagram, Nanos now) {
  if (datagram.trimmed) {
    on_trimmed(datagram, now);
    return;
  }
  wire::mrc::Packet packet;
  const auto found = wire::mrc::decode(datagram.bytes, datagram.datagram_bytes, packet);
  if (found != wire::mrc::Malformed::none) {
    discards_.note(reason_of(found));
    return;
  }
  if (!wire::is_of_partition(packet.bth.p_key)) {
    discards_.note(Discard::wrong_p_key);
    return;
  }
  if (packet.bth.dest_qpn == wire::mrc::kEndpointQpn) {
    on_endpoint_packet(packet, datagram);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.bth.dest_qpn);
  if (index == QueuePairs::kNone || !is_peer(index, datagram)) {
    refuse(datagram, index, packet.bth.dest_qpn, now);
    return;
  }
  if (faults_ == nullptr) {
    on_packet(index, packet, datagram, now);
    return;
  }
  Datagram changed = datagram;
  const auto fate = fate_of(index, {mrc::Outgoing::kind_of(packet), -1}, changed, now);
  if (fate.cut) {
    on_trimmed(cut_down(changed), now);
    return;
  }
  for (uint32_t times = fate.times; times > 0; --times) on_packet(index, packet, changed, now);
}

void MrcExchange::on_trimmed(const Datagram& datagram, Nanos now) {
  using wire::mrc::Malformed;
  wire::mrc::CutPacket packet;
  if (const Malformed found = wire::mrc::decode_cut(datagram.bytes, packet); found != Malformed::none) {
    const bool of_peer = peers_.contains({datagram.address, datagram.src_ip});
    if (found == Malformed::too_short && of_peer) ++trimmed_;
    discards_.note(found != Malformed::too_short ? reason_of(found) : of_peer ? Discard::late_trimmed : Discard::cut_off);
    return;
  }
  if (!wire::is_of_partition(datagram.bytes)) {
    discards_.note(Discard::wrong_p_key);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.dest_qpn);
  if (index == QueuePairs::kNone || !is_peer(index, datagram)) {
    refuse(datagram, index, packet.dest_qpn, now);
    return;
  }
  ++trimmed_;
  note_plane(index, datagram);
  const bool last_hop = plan_.transport.recovery.trimming.last_hop_dscps.contains(datagram.traffic_class >> 2);
  ends_[index].responder.on_trimmed(packet, datagram.src_port, last_hop);
  if (ends_[index].answer_due()) queue_answers(index);
}

void MrcExchange::on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now) {
  mrc::Endpoint& end = ends_[index];
  note_plane(index, datagram);
  const bool marked = is_marked(datagram);
  if (const auto* write = std::get_if<wire::mrc::Write>(&packet.body)) {
    if (marked) ++queue_pairs_[index].counters.np_ecn_marked_roce_packets;
    end.responder.on_write(packet.bth, *write, datagram.src_port, marked);
    deliver(index, now);
  } else if (const auto* sack = std::get_if<wire::mrc::Sack>(&packet.body)) {
    on_answer(index, end.requester.on_sack(*sack, now), now);
  } else if (const auto* nack = std::get_if<wire::mrc::Neth>(&packet.body)) {
    on_answer(index, end.requester.on_nack(*nack, now), now);
  } else if (const auto* aeth = std::get_if<wire::mrc::Aeth>(&packet.body)) {
    on_answer(index, end.requester.on_acknowledgement(*aeth, now), now);
  } else if (const auto* probe = std::get_if<wire::mrc::Peth>(&packet.body)) {
    end.responder.on_probe(*probe, datagram.src_port, marked);
    queue_answers(index);
  } else {
    discards_.note(Discard::unasked);  // of the endpoint, and addressed to a queue pair
  }
}

void MrcExchange::on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram) {
  const auto* request = std::get_if<wire::mrc::Erth>(&packet.body);
  const auto* response = std::get_if<wire::mrc::Eeth>(&packet.body);
  const auto peer = peers_.find({datagram.address, datagram.src_ip});
  const bool says = request != nullptr && request->op == wire::mrc::EndpointOp::port_status;
  const bool asks = request != nullptr && request->op == wire::mrc::EndpointOp::entropy_probe;
  const bool answers = response != nullptr && planes_ > 1;  // nothing else is asked
  if (peer == peers_.end() || !(asks || answers || (says && planes_ > 1))) {
    discards_.note(peer == peers_.end() ? Discard::wrong_peer : Discard::unasked);
    return;
  }
  const auto id = static_cast<uint16_t>(packet.bth.psn);
  const auto [index, number] = peer->second;
  if (answers) {
    reports_.answered(number, id);
    return;
  }
  if (says) reports_.heard(number, id, request->port_status_mask);
  if (replies_.size() == kMostReplies) {  // forgotten, and asked again
    discards_.note(Discard::late_control);
    return;
  }
  // Who asks for a path is answered by it; who says that one is gone, by another.
  const uint16_t value = says ? ends_[index].requester.sender().entropy().next(came_by(datagram)) : datagram.src_port;
  replies_.push_back({index, request->op, id, value, request->tx_timestamp});
}

}  // namespace etloop
