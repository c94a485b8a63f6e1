#include "core/packets/packet_arrivals.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/packets/discard_reasons.h"
#include "wire/clear_to_send.h"

namespace etloop {

using wire::Role;

namespace {

constexpr uint8_t kEcnMask = 0x03;
constexpr uint8_t kEcnCongestionExperienced = 0x03;

// Describe how long the peer was waited for, which distinguishes a slow peer from a dead one.
std::string patience_text(const Qp& qp, Nanos now) {
  constexpr Nanos kNsPerMs = 1'000'000;
  return std::to_string(qp.retries()) + " retries in " + std::to_string((now - qp.progress_ns()) / kNsPerMs) + " ms";
}

}  // namespace

void PacketArrivals::release_held(Nanos now) {
  Datagram released;
  std::vector<uint8_t> content;
  while (faults_->take_released(now, released, content)) accept(released, true, now);
}

void PacketArrivals::refuse(const Datagram& datagram, uint32_t index, uint32_t dest_qpn, Nanos now) {
  if (pass_on(datagram, dest_qpn, now)) return;
  discards_.note(index == QueuePairs::kNone ? Discard::unknown_qp : Discard::wrong_peer);
}

void PacketArrivals::accept_trimmed(const Datagram& datagram, Nanos now) {
  wire::CutPacket packet;
  if (const wire::Malformed error = wire::decode_cut(datagram.bytes, packet); error != wire::Malformed::none) {
    const bool is_from_peer = error == wire::Malformed::too_short && queue_pairs_.has_peer(datagram.src_ip);
    if (is_from_peer) ++trimmed_;
    discards_.note(error != wire::Malformed::too_short ? reason_of(error)
                   : is_from_peer                      ? Discard::late_trimmed
                                                       : Discard::cut_off);
    return;
  }
  if (!wire::is_of_partition(datagram.bytes)) {
    discards_.note(Discard::wrong_p_key);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.dest_qpn);
  if (index == QueuePairs::kNone || queue_pairs_.place(index).peer_ip != datagram.src_ip) {
    refuse(datagram, index, packet.dest_qpn, now);
    return;
  }
  ++trimmed_;
  if ((datagram.traffic_class & kEcnMask) == kEcnCongestionExperienced) notify_congestion(index, now);
  Qp& qp = queue_pairs_[index];
  qp.on_trimmed(packet);
  if (qp.answer_due()) transmission_.queue_acknowledgement(index, now);
}

void PacketArrivals::accept(const Datagram& datagram, bool faultless, Nanos now) {
  if (datagram.trimmed) {
    accept_trimmed(datagram, now);
    return;
  }
  wire::Packet packet;
  const wire::Malformed error = wire::decode(datagram.bytes, datagram.datagram_bytes, packet);
  if (error != wire::Malformed::none) {
    discards_.note(reason_of(error));
    return;
  }
  if (!wire::is_of_partition(datagram.bytes)) {
    discards_.note(Discard::wrong_p_key);
    return;
  }
  const uint32_t index = queue_pairs_.find(packet.dest_qpn);
  if (index == QueuePairs::kNone || queue_pairs_.place(index).peer_ip != datagram.src_ip) {
    refuse(datagram, index, packet.dest_qpn, now);
    return;
  }
  if (faultless) {
    dispatch(index, packet, datagram, now);
    return;
  }
  Datagram changed = datagram;
  const Qp& qp = queue_pairs_[index];
  const FaultInjector::Answering answering{qp.remote_qpn(), qp.expected_psn(), qp.msn()};
  for (uint32_t times = faults_->on_received(index, packet, answering, changed, now); times > 0; --times) {
    dispatch(index, packet, changed, now);
  }
}

void PacketArrivals::dispatch(uint32_t index, const wire::Packet& packet, const Datagram& datagram, Nanos now) {
  const bool marked = (datagram.traffic_class & kEcnMask) == kEcnCongestionExperienced;
  switch (wire::shape(packet.opcode).role) {
    case Role::write:
    case Role::send:
    case Role::read:
    case Role::atomic: on_request(index, packet, marked, now); return;
    case Role::response:
      // A READ's responder is the sender of the data: notify it of congestion.
      if (marked && packet.payload_bytes > 0) notify_congestion(index, now);
      on_answer(index, packet, datagram.hops, now);
      return;
    case Role::acknowledgement: on_answer(index, packet, datagram.hops, now); return;
    case Role::notification: on_notification(index, now); return;
    case Role::datagram: on_probe(index, packet, datagram.traffic_class, now); return;
    case Role::unknown: return;
  }
}

void PacketArrivals::on_request(uint32_t index, const wire::Packet& packet, bool marked, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (marked) notify_congestion(index, now);
  Delivered delivered;
  // An acknowledgement held for an earlier message stays held until a packet requests one.
  bool holds = qp.answer_due() && qp.ack_held && !packet.ack_req;
  for (bool whole = qp.on_request(packet, delivered); whole; whole = qp.next_delivered(delivered)) {
    if (delivered.is_send) delivered.va = delivered.receive;
    hand_over(index, delivered, now);
    holds = qp.answer_due() && holds_answer(index, delivered, now);
    if (qp.answer_due() && !holds) transmission_.queue_acknowledgement(index, now);
    if (!failure_.none()) return;
  }
  if (qp.answer_due() && (!holds || qp.nak_due())) transmission_.queue_acknowledgement(index, now);
  if (qp.fault() != QpFault::none) retire(index, now);
}

// Whether to hold the acknowledgement of a message until a later one: in the middle of an op, as the sender waits for it only at
// the end, and after an op whose sender does not wait for it (`Completion`).
bool PacketArrivals::holds_answer(uint32_t index, const Delivered& delivered, Nanos now) {
  const QpPlace& place = queue_pairs_.place(index);
  if (!transmission_.holds_data() || place.sends_data || !delivered.has_imm) return false;
  if (connections_.parts_of(place.connection, false) != 1) return false;
  const HeldAnswers held = lanes_.may_go_unanswered(place, address_tag(delivered.va), delivered.bytes);
  if (held.ends_op) transmission_.answer_first();
  // The sender waits for all of the op: queue pairs that get no more of it must answer as well.
  if (held.is_last && connections_.planned(place.connection).qp_count > 1) transmission_.release_held(place.connection, now);
  const uint32_t packets = std::max(1U, (delivered.bytes + plan_.transport.path_mtu_bytes - 1) / plan_.transport.path_mtu_bytes);
  return transmission_.hold_acknowledgement(index, packets, held.messages, held.rests, now);
}

void PacketArrivals::on_answer(uint32_t index, const wire::Packet& packet, std::span<const etloop_cc_hop> hops, Nanos now) {
  Qp& qp = queue_pairs_[index];
  flows_.acknowledged(index, qp.on_answer(packet, now), hops, now);
  transmission_.settle_window(index);
  retire(index, now);
  if (qp.fault() == QpFault::none) queue_pairs_.arm_timer(index);
}

void PacketArrivals::on_notification(uint32_t index, Nanos now) {
  FlowRecord& counters = queue_pairs_[index].counters;
  if (!flows_.notified(index, now)) {
    ++counters.rp_cnp_ignored;
    return;
  }
  ++counters.rp_cnp_handled;
  transmission_.forget_held(index);
}

// Report a CE-marked packet of data (READ responses too) or grants to the peer: by CNPs at most once per interval, and by BECN in
// the next acknowledgement.
void PacketArrivals::notify_congestion(uint32_t index, Nanos now) {
  Qp& qp = queue_pairs_[index];
  ++qp.counters.np_ecn_marked_roce_packets;
  qp.note_congestion();
  const CnpSettings& cnp = plan_.transport.cnp;
  if (!cnp.send) return;
  Nanos& after_ns = cnp.scope == CnpScope::port ? cnp_after_ns_ : qp.cnp_after_ns;
  if (now < after_ns) return;
  after_ns = now + cnp.interval_ns;
  transmission_.queue_notification(index);
}

void PacketArrivals::hand_over(uint32_t index, const Delivered& delivered, Nanos now) {
  const QpPlace& place = queue_pairs_.place(index);
  if (place.sends_data) {
    on_grant(place, delivered, now);
  } else if (delivered.has_imm) {
    on_data(place, delivered, now);
  } else if (delivered.is_atomic) {
    lanes_.on_one_sided(place, address_tag(delivered.va), kClosingIndex, 0, now);
  } else if (address_index(delivered.va) != kProbeIndex) {
    FlowRecord& counters = queue_pairs_[index].counters;
    ++counters.rx_messages;
    counters.rx_payload_bytes += delivered.bytes;
    lanes_.on_one_sided(place, address_tag(delivered.va), address_index(delivered.va), delivered.bytes, now);
  }
}

void PacketArrivals::on_grant(const QpPlace& place, const Delivered& delivered, Nanos now) {
  if (delivered.has_imm || delivered.bytes != kClearToSendBytes || delivered.payload == nullptr) {
    failure_.set(place.connection, connections_.text(place.connection) + ": a clear-to-send of " +
                                       std::to_string(delivered.bytes) + " bytes arrived, 64 were expected");
    return;
  }
  const ClearToSend grant = read_grant(std::span<const uint8_t, kGrantWireBytes>(delivered.payload, kGrantWireBytes));
  if (!failure_.none()) return;
  lanes_.on_grant(place, grant.tag, {grant.va, grant.rkey, static_cast<uint32_t>(grant.number)}, now);
}

// The immediate has the size of the whole message, of which this may be one queue pair's part.
void PacketArrivals::on_data(const QpPlace& place, const Delivered& delivered, Nanos now) {
  const uint32_t parts = connections_.parts_of(place.connection, false);
  const MessagePart part = parts == 1 ? MessagePart{0, delivered.imm} : message_part(delivered.imm, place.ordinal, parts);
  if (part.bytes != delivered.bytes) {
    failure_.set(place.connection, connections_.text(place.connection) + ": a data message of " +
                                       std::to_string(delivered.bytes) + " bytes arrived, but its immediate has " +
                                       std::to_string(delivered.imm));
    return;
  }
  const uint64_t va = delivered.va - part.offset;
  lanes_.on_message(place, {place.connection, address_tag(va), address_index(va), delivered.imm, delivered.bytes}, now);
}

void PacketArrivals::retire(uint32_t index, Nanos now) {
  transmission_.forget_held(index);
  Qp& qp = queue_pairs_[index];
  WorkRequest done;
  while (qp.pop_completed(done)) {
    if (done.flushed || done.kind == WorkKind::clear_to_send) continue;
    if (done.kind == WorkKind::probe) {
      probing_.on_written(index, now);
    } else {
      lanes_.on_acknowledged(queue_pairs_.place(index), done, now);
    }
  }
  if (qp.fault() != QpFault::none) {
    report_fault(index, now);
  } else if (qp.has_run()) {
    transmission_.queue(index);
  }
}

void PacketArrivals::report_fault(uint32_t index, Nanos now) {
  const Qp& qp = queue_pairs_[index];
  const int32_t connection = queue_pairs_.place(index).connection;
  failure_.set(connection, connections_.text(connection) + ": " + describe(qp.fault()) + " (queue pair " +
                               std::to_string(qp.local_qpn()) + ", packet " + std::to_string(qp.oldest_unacknowledged()) +
                               (qp.fault() == QpFault::retries_exceeded ? ", " + patience_text(qp, now) : "") + ")");
}

void PacketArrivals::on_probe(uint32_t index, const wire::Packet& packet, uint8_t traffic_class, Nanos now) {
  if (packet.qkey == kProbeRequestKey) {
    probing_.on_request(index, packet, traffic_class);
    return;
  }
  if (packet.qkey != kProbeReplyKey || packet.payload_bytes != kProbeReplyBytes || packet.payload == nullptr) {
    discards_.note(Discard::unasked);
    return;
  }
  Probing::Offer offer;
  if (!probing_.on_reply(index, packet, now, offer)) return;
  flows_.probed(index, offer.round_trip_ns, offer.window_packets);
  queue_pairs_[index].set_window(offer.window_packets);
  queue_pairs_[index].set_round_trip(offer.round_trip_ns);
  transmission_.offer(index, offer.share);
}

void PacketArrivals::on_timer(uint32_t index, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (qp.timer_due_ns <= now) qp.timer_due_ns = kNever;
  if (qp.deadline() <= now) {
    const int64_t timeouts = qp.counters.local_ack_timeout_err;
    qp.on_timer(now);
    transmission_.settle_window(index);
    if (qp.counters.local_ack_timeout_err != timeouts) flows_.timed_out(index, now);
    retire(index, now);
    if (qp.fault() != QpFault::none) return;
  }
  queue_pairs_.arm_timer(index);
}

}  // namespace etloop
