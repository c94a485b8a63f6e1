#include "core/multipath/uet_exchange.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "core/packets/discard_reasons.h"
#include "plan/planes.h"

namespace etloop {

using uet::PdcRole;
using wire::uet::NackCode;

namespace {

constexpr uint32_t kLeastPdcs = 64;

// On its link.
uint32_t full_packet_bytes(uint32_t path_mtu) {
  return static_cast<uint32_t>(uet::Endpoint::kWriteBytes + wire::uet::CreditTarget::kBytes) + path_mtu + kLinkBytesIpv4;
}

// The key or the relative address names the queue pair: until the target has told the number of its context, nothing else does.
uint32_t number_in(const wire::uet::StandardRequest& message) {
  return message.start.rel ? wire::uet::queue_pair_at(message.start) : static_cast<uint32_t>(message.memory_key >> 32);
}

uint32_t pdcs_for(uint32_t ends) {
  return std::min(uet::PdcIds::kMost, std::max(kLeastPdcs, ends * UetExchange::kPdcsOfAnEnd));
}

}  // namespace

UetExchange::UetExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory)
    : MultipathExchange<uet::Endpoint>(parts, memory),
      ids_(pdcs_for(static_cast<uint32_t>(parts.queue_pairs.size()))),
      credit_(static_cast<uint32_t>(parts.queue_pairs.size()), granted_bps(),
              parts.plan.transport.multipath.uet.credit.quantum_packets *
                  full_packet_bytes(parts.plan.transport.path_mtu_bytes)) {
  const bool granted = plan_.transport.multipath.uet.credit.granted;
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    ends_[i].attach(ids_, i);
    // Until a round trip is known, a window is what the transport lets be under way.
    if (granted && queue_pairs_.place(i).sends_data) {
      ends_[i].requester.use_credit(uint64_t{kMostSprayedWindow} * plan_.transport.path_mtu_bytes, flows_.link_bytes(i));
    }
    at_each_plane(i, [&](uint16_t address, const IpAddress& theirs) { queue_pair_to_.emplace(std::pair(address, theirs), i); });
  }
}

// Queues of one port share its link; a card has the links of all its planes.
uint64_t UetExchange::port_bps() const {
  return static_cast<uint64_t>(card_bps(plan_, flows_.port())) / std::max(port_at(plan_, flows_.port()).queues, 1U);
}

// No peer says which of its planes are up: those are found out by what is lost. What is granted comes by those of this end.
void UetExchange::on_planes_changed(uint32_t up, Nanos) {
  paths_.set_planes(up);
  if (up != 0) credit_.set_rate(granted_bps() / planes_ * static_cast<uint32_t>(std::popcount(up)));
}

void UetExchange::on_path_measured(uint32_t index, Nanos round_trip_ns) {
  if (!plan_.transport.multipath.uet.credit.granted || !queue_pairs_.place(index).sends_data) return;
  // What keeps to one path keeps to one port.
  const uint64_t rate_bps = plan_.transport.multipath.uet.order == DeliveryOrder::sent ? port_bps() / planes_ : port_bps();
  const double product = static_cast<double>(rate_bps) / 8e9 * static_cast<double>(round_trip_ns);
  const double window = product * plan_.transport.multipath.uet.credit.window_percent / 100;
  ends_[index].requester.use_credit(static_cast<uint64_t>(window), flows_.link_bytes(index));
}

void UetExchange::note_need(uint32_t index, const wire::uet::Request& request, bool lost, Nanos now) {
  if (!plan_.transport.multipath.uet.credit.granted || queue_pairs_.place(index).sends_data) return;
  if (lost) credit_.lost(index, full_packet_bytes(plan_.transport.path_mtu_bytes), now);
  if (request.credit) credit_.asked(index, request.credit->credit_target, now);
  arm_credit();
}

void UetExchange::arm_credit() {
  const Nanos due_ns = credit_.due_ns();
  if (due_ns >= credit_event_ns_) return;
  credit_event_ns_ = due_ns;
  events_.push(due_ns, EventKind::credit_due, 0);
}

void UetExchange::on_credit_due(Nanos now) {
  if (credit_event_ns_ <= now) credit_event_ns_ = kNever;
  CreditPacer::Grant grant;
  while (credit_.next(now, grant)) {
    ends_[grant.sender].responder.grant(grant.total);
    queue_answers(grant.sender);
  }
  arm_credit();
}

void UetExchange::on_credit(const wire::uet::Control& control, const Datagram& datagram, Nanos now) {
  const uint32_t index = asker(control.dpdcid, control.psn, Discard::late_control, datagram);
  if (index == kNone) return;
  note_plane(index, datagram);
  uet::Requester& requester = ends_[index].requester;
  if (requester.on_credit(control.payload, now) && requester.has_run()) queue(index);
  arm_timer(index);
}

bool UetExchange::transmit_strays(TxPort& port, Clock& clock) {
  while (!strays_.empty()) {
    const Stray& stray = strays_.back();
    uet::Outgoing outgoing;
    outgoing.packet.pds = stray.nack;
    outgoing.entropy = stray.value;
    if (const TxResult result = send(port, clock, stray.qp, outgoing, marks_of(plan_.transport.ack), true);
        result != TxResult::sent) {
      return result == TxResult::held;
    }
    strays_.pop_back();
  }
  return true;
}

void UetExchange::answer_stray(const wire::uet::Request& request, NackCode code, const Datagram& datagram) {
  const uint32_t index = queue_pair_to(datagram);
  if (index == kNone || strays_.size() == kMostStrays) return;
  wire::uet::Nack nack;
  nack.nack_code = code;
  nack.retransmitted = request.retransmitted;
  nack.psn = request.psn;
  nack.dpdcid = request.spdcid;
  // By the path that it came by; of several planes by one of its plane, or of another in use.
  const uint16_t value = planes_ == 1 ? datagram.src_port : ends_[index].requester.sender().entropy().next(came_by(datagram));
  strays_.push_back({index, value, nack});
}

uint32_t UetExchange::queue_pair_to(const Datagram& datagram) const {
  const auto peer = queue_pair_to_.find({datagram.address, datagram.src_ip});
  return peer == queue_pair_to_.end() ? kNone : peer->second;
}

uint32_t UetExchange::opened_as(uint16_t pdc, const Datagram& datagram) const {
  const uint32_t to_peer = queue_pair_to(datagram);
  const auto opened = opened_.find({to_peer, pdc});
  return to_peer == kNone || opened == opened_.end() ? kNone : opened->second;
}

uint32_t UetExchange::owner(uint16_t pdc, PdcRole role, const Datagram& datagram) const {
  const uet::PdcIds::Owner* owner = ids_.find(pdc);
  if (owner == nullptr || owner->role != role || !is_peer(owner->end, datagram)) return kNone;
  return owner->end;
}

void UetExchange::note_unclaimed(Discard late, PdcRole role, uint16_t pdc, uint32_t psn, const Datagram& datagram) {
  for (const uet::PdcIds::Owner& had : ids_.last_owners(pdc)) {
    if (had.end == uet::PdcIds::kNoEnd || had.role != role || !is_peer(had.end, datagram)) continue;
    const uet::Endpoint& end = ends_[had.end];
    if (role == PdcRole::initiator ? !end.requester.counts_near(psn) : !end.responder.counts_near(psn)) continue;
    if (late == Discard::late_trimmed) ++trimmed_;
    discards_.note(late);
    return;
  }
  const uet::PdcIds::Owner* owner = ids_.find(pdc);
  discards_.note(owner == nullptr || owner->role != role || is_peer(owner->end, datagram) ? Discard::unknown_qp
                                                                                         : Discard::wrong_peer);
}

void UetExchange::note_cut(const Datagram& datagram) {
  if (queue_pair_to(datagram) == kNone) {
    discards_.note(Discard::cut_off);
    return;
  }
  ++trimmed_;
  discards_.note(Discard::late_trimmed);
}

uint32_t UetExchange::asker(uint16_t pdc, uint32_t psn, Discard late, const Datagram& datagram) {
  const uint32_t index = owner(pdc, PdcRole::initiator, datagram);
  if (index != kNone && ends_[index].requester.is_own(pdc)) return index;
  note_unclaimed(late, PdcRole::initiator, pdc, psn, datagram);
  return kNone;
}

Discard UetExchange::why_not_opened(const wire::uet::StandardRequest& message) const {
  return queue_pairs_.find(number_in(message)) == kNone ? Discard::unknown_qp : Discard::wrong_peer;
}

uint32_t UetExchange::opened_by(const wire::uet::StandardRequest& message, const Datagram& datagram) const {
  const uint32_t index = queue_pairs_.find(number_in(message));
  return index != kNone && is_peer(index, datagram) ? index : kNone;
}

void UetExchange::on_datagram(const Datagram& datagram, Nanos now) {
  wire::uet::Packet packet;
  const auto found = wire::uet::decode(datagram.bytes, datagram.datagram_bytes, packet);
  const bool readable = found == wire::uet::Malformed::none;
  const auto* write = std::get_if<wire::uet::StandardRequest>(&packet.ses);
  // A small packet that a switch only marked as cut is whole.
  const bool whole = readable && (write == nullptr || wire::uet::lengths_agree(*write, packet.payload_bytes,
                                                                               plan_.transport.path_mtu_bytes));
  if (datagram.trimmed && !whole) {
    on_trimmed(datagram, now);
    return;
  }
  if (!readable) {
    discards_.note(reason_of(found));
    return;
  }
  const uint32_t index = faults_ == nullptr ? kNone : end_of(packet, datagram);
  if (index == kNone) {
    dispatch(packet, datagram, now);
    return;
  }
  Datagram changed = datagram;
  const auto fate = fate_of(index, {uet::Outgoing::kind_of(packet), -1}, changed, now);
  if (fate.cut) {
    on_trimmed(cut_down(changed), now);
    return;
  }
  for (uint32_t times = fate.times; times > 0; --times) dispatch(packet, changed, now);
}

// Whose packet it is, where it says so: kNone of those that do not, or of nobody here.
uint32_t UetExchange::end_of(const wire::uet::Packet& packet, const Datagram& datagram) const {
  if (const auto* request = std::get_if<wire::uet::Request>(&packet.pds)) {
    const auto* write = std::get_if<wire::uet::StandardRequest>(&packet.ses);
    if (!request->syn) return owner(request->dpdcid, PdcRole::target, datagram);
    return write == nullptr ? kNone : opened_by(*write, datagram);
  }
  if (const auto* ack = std::get_if<wire::uet::Ack>(&packet.pds)) return owner(ack->dpdcid, PdcRole::initiator, datagram);
  if (const auto* nack = std::get_if<wire::uet::Nack>(&packet.pds)) return owner(nack->dpdcid, PdcRole::initiator, datagram);
  return kNone;
}

void UetExchange::dispatch(const wire::uet::Packet& packet, const Datagram& datagram, Nanos now) {
  if (const auto* request = std::get_if<wire::uet::Request>(&packet.pds)) {
    on_request(*request, packet, datagram, now);
  } else if (const auto* ack = std::get_if<wire::uet::Ack>(&packet.pds)) {
    const uint32_t index = asker(ack->dpdcid, ack->cack_psn, Discard::late_ack, datagram);
    if (index == kNone) return;
    note_plane(index, datagram);
    on_answer(index, ends_[index].requester.on_ack(*ack, std::get_if<wire::uet::Response>(&packet.ses), now), now);
    if (ends_[index].probe_due(now)) queue_answers(index);
  } else if (const auto* nack = std::get_if<wire::uet::Nack>(&packet.pds)) {
    const uint32_t index = asker(nack->dpdcid, nack->psn, Discard::late_nak, datagram);
    if (index == kNone) return;
    note_plane(index, datagram);
    on_answer(index, ends_[index].requester.on_nack(*nack, now), now);
  } else if (const auto* control = std::get_if<wire::uet::Control>(&packet.pds)) {
    on_control(*control, datagram, now);
  } else {
    discards_.note(Discard::unasked);  // idempotent and unreliable delivery
  }
}

void UetExchange::on_request(const wire::uet::Request& request, const wire::uet::Packet& packet, const Datagram& datagram,
                             Nanos now) {
  const auto* write = std::get_if<wire::uet::StandardRequest>(&packet.ses);
  uint32_t index = kNone;
  if (!request.syn) {
    index = owner(request.dpdcid, PdcRole::target, datagram);
  } else if (write != nullptr) {
    index = opened_by(*write, datagram);
  }
  if (index == kNone || write == nullptr) {
    if (write == nullptr) discards_.note(Discard::unasked);
    else if (request.syn) discards_.note(why_not_opened(*write));
    else note_unclaimed(Discard::late_request, PdcRole::target, request.dpdcid, request.psn, datagram);
    answer_stray(request, request.syn ? NackCode::invalid_syn : NackCode::invalid_dpdcid, datagram);
    return;
  }
  note_plane(index, datagram);
  const bool marked = is_marked(datagram);
  if (marked) ++queue_pairs_[index].counters.np_ecn_marked_roce_packets;
  uet::Responder& responder = ends_[index].responder;
  responder.on_request(request, *write, packet.payload_bytes, packet.payload, {datagram.src_port, marked});
  if (request.syn && responder.is_open()) opened_[{queue_pair_to(datagram), request.spdcid}] = index;
  note_need(index, request, false, now);
  deliver(index, now);
}

void UetExchange::on_trimmed(const Datagram& datagram, Nanos now) {
  wire::uet::Pds pds;
  const auto found = wire::uet::decode_cut(datagram.bytes, pds);
  const auto* request = std::get_if<wire::uet::Request>(&pds);
  if (found != wire::uet::Malformed::none || request == nullptr) {
    // A cut answer is not asked for again: another follows.
    if (found == wire::uet::Malformed::none || found == wire::uet::Malformed::too_short) note_cut(datagram);
    else discards_.note(reason_of(found));
    return;
  }
  const bool last_hop = plan_.transport.recovery.trimming.last_hop_dscps.contains(datagram.traffic_class >> 2);
  uint32_t index = kNone;
  if (request->syn) {
    index = opened_as(request->spdcid, datagram);
  } else {
    index = owner(request->dpdcid, PdcRole::target, datagram);
  }
  if (index == kNone) {
    // The first packet of a context: which queue pair it is for was cut off, and is not needed to ask for it again.
    if (request->syn && plan_.transport.recovery.trimming.answer != TrimAnswer::none) {
      ++trimmed_;
      answer_stray(*request, last_hop ? NackCode::trimmed_last_hop : NackCode::trimmed, datagram);
    } else if (request->syn) {
      note_cut(datagram);
    } else {
      note_unclaimed(Discard::late_trimmed, PdcRole::target, request->dpdcid, request->psn, datagram);
    }
    return;
  }
  ++trimmed_;
  note_plane(index, datagram);
  ends_[index].responder.on_trimmed(*request, last_hop);
  note_need(index, *request, true, now);
  if (ends_[index].answer_due()) queue_answers(index);
}

void UetExchange::on_control(const wire::uet::Control& control, const Datagram& datagram, Nanos now) {
  if (control.control_type == wire::uet::ControlType::credit) {
    on_credit(control, datagram, now);
    return;
  }
  uint32_t index = kNone;
  if (control.syn) {
    index = opened_as(control.spdcid, datagram);
  } else {
    index = owner(control.dpdcid, PdcRole::target, datagram);
  }
  if (index == kNone) {
    // A probe may come before the packet that opens its context: the next one finds it.
    if (control.syn) discards_.note(Discard::unknown_qp);
    else note_unclaimed(Discard::late_control, PdcRole::target, control.dpdcid, control.psn, datagram);
    return;
  }
  note_plane(index, datagram);
  if (control.control_type == wire::uet::ControlType::credit_request && plan_.transport.multipath.uet.credit.granted) {
    credit_.asked(index, control.payload & kCreditMask, now);
    arm_credit();
  }
  ends_[index].responder.on_control(control, {datagram.src_port, is_marked(datagram)});
  if (ends_[index].answer_due()) queue_answers(index);
}

}  // namespace etloop
