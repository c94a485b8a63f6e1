#include "core/multipath/mrc_exchange.h"

#include <variant>

namespace etloop {

using wire::mrc::Opcode;

MrcExchange::MrcExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory)
    : MultipathExchange<mrc::Endpoint>(parts, memory) {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) queue_pair_to_.emplace(queue_pairs_.place(i).peer_ip, i);
}

bool MrcExchange::transmit_strays(TxPort& port, Clock& clock) {
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
    if (const TxResult result = send(port, clock, reply.qp, outgoing, plan_.transport.ack, true); result != TxResult::sent) {
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
  if (wire::mrc::decode(datagram.bytes, datagram.datagram_bytes, packet) != wire::mrc::Malformed::none) {
    ++foreign_;
    return;
  }
  if (packet.bth.dest_qpn == wire::mrc::kEndpointQpn) {
    on_endpoint_packet(packet, datagram);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.bth.dest_qpn);
  if (index == QueuePairs::kNone || !is_peer(index, datagram)) {
    refuse(datagram, packet.bth.dest_qpn, now);
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
  wire::mrc::CutPacket packet;
  const bool readable = wire::mrc::decode_cut(datagram.bytes, packet) == wire::mrc::Malformed::none;
  const uint32_t index = readable ? queue_pairs_.find(packet.dest_qpn) : QueuePairs::kNone;
  if (index == QueuePairs::kNone || !is_peer(index, datagram)) {
    refuse(datagram, readable ? packet.dest_qpn : 0, now);
    return;
  }
  ++trimmed_;
  ends_[index].responder.on_trimmed(packet, datagram.src_port);
  if (ends_[index].answer_due()) queue_answers(index);
}

void MrcExchange::on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now) {
  mrc::Endpoint& end = ends_[index];
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
    ++foreign_;  // of the endpoint, and addressed to a queue pair
  }
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

}  // namespace etloop
