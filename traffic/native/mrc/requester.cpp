#include "mrc/requester.h"

#include <algorithm>
#include <bit>

#include "wire/clear_to_send.h"

namespace etloop::mrc {

using wire::psn_distance;
using wire::mrc::NackReason;
using wire::mrc::Opcode;

namespace {

constexpr uint32_t kBitmapPackets = 64;
// A value that is out of use is probed no more often than this, and not more often than round trips are.
constexpr Nanos kValueProbeNs = 50'000;

constexpr uint32_t advance(uint32_t psn, int32_t by) { return (psn + static_cast<uint32_t>(by)) & wire::kPsnMask; }

// The IBTA's codes, which MRC's transport acknowledgement keeps.
QpFault fault_of(uint8_t syndrome) {
  switch (syndrome) {
    case wire::kSyndromeNakInvalidRequest: return QpFault::remote_invalid_request;
    case wire::kSyndromeNakRemoteAccess: return QpFault::remote_access;
    case wire::kSyndromeNakRemoteOperational: return QpFault::remote_operational;
    default: return QpFault::unexpected_syndrome;
  }
}

}  // namespace

Requester::Requester(uint32_t remote_qpn, uint16_t first_port, const TransportParams& params, FlowRecord& counters,
                     std::pmr::memory_resource& memory)
    : counters_(counters),
      sent_(params.initial_psn & wire::kPsnMask),
      entropy_(params.multipath, first_port, remote_qpn * 0x9E3779B9U ^ first_port),
      requests_(params.initial_psn & wire::kPsnMask, static_cast<uint32_t>(std::countr_zero(params.path_mtu)), memory),
      timer_(params, remote_qpn),
      tail_(params),
      remote_qpn_(remote_qpn),
      path_mtu_(params.path_mtu),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu))),
      reorder_packets_(params.reorder_packets),
      first_unacknowledged_(params.initial_psn & wire::kPsnMask) {
  set_window(params.window_packets == 0 ? kMostMrcWindow : params.window_packets);
}

void Requester::set_window(uint32_t packets) { window_ = std::clamp(packets, 1U, kMostMrcWindow); }

void Requester::post(const WorkRequest& asked) {
  WorkRequest request = asked;
  request.msn = next_msn_++;
  const bool takes_receive = request.kind == WorkKind::data || request.kind == WorkKind::write_imm;
  request.rqmsn = takes_receive ? next_rqmsn_++ : 0;
  requests_.post(request);
  if (fault_ != QpFault::none) fail(fault_);  // it goes the way of the others
}

bool Requester::has_run() const {
  if (fault_ != QpFault::none) return false;
  if (sent_.lost() > 0) return true;
  return requests_.any_to_send() && sent_.span() < window_;
}

wire::mrc::Write Requester::write_of(const WorkRequest& request, uint32_t psn, Opcode& opcode) {
  const auto offset = static_cast<uint32_t>(psn_distance(psn, request.first_psn));
  const bool first = offset == 0;
  const bool last = offset + 1 == request.packets;
  const bool immediate = request.kind == WorkKind::data || request.kind == WorkKind::write_imm;
  opcode = first ? Opcode::write_first : Opcode::write_middle;
  if (last) {
    opcode = first ? (immediate ? Opcode::write_only_imm : Opcode::write_only)
                   : (immediate ? Opcode::write_last_imm : Opcode::write_last);
  }
  const uint32_t offset_bytes = offset << mtu_shift_;
  wire::mrc::Write write;
  write.meth = {request.rqmsn, request.msn};
  write.reth = {request.va + offset_bytes, request.rkey, request.bytes};
  if (last && immediate) write.imm = {request.kind == WorkKind::data ? request.bytes : request.imm};
  write.payload_bytes = last ? request.bytes - offset_bytes : path_mtu_;
  if (request.kind == WorkKind::clear_to_send) {
    put_grant({request.grant_va, request.grant_bytes, request.grant_rkey, request.grant_tag, request.index}, inline_);
    write.payload = inline_;
  }
  return write;
}

Outgoing Requester::next() {
  Outgoing outgoing;
  const bool again = sent_.lost() > 0;
  const uint32_t psn = again ? sent_.first_lost() : sent_.next();
  const WorkRequest& request = again ? requests_.at_psn(psn) : requests_.next();
  Opcode opcode{};
  outgoing.packet.body = write_of(request, psn, opcode);
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.opcode = opcode;
  bth.dest_qpn = remote_qpn_;
  bth.psn = psn;
  bth.retransmitted = again;
  // The end of what there is to send is asked after: nothing behind it would reveal its loss. Grants are acknowledged at once.
  const bool last = opcode != Opcode::write_first && opcode != Opcode::write_middle;
  bth.sack_req = last && request.kind != WorkKind::clear_to_send;
  outgoing.entropy = again ? entropy_.next_but(sent_.at(psn).entropy) : entropy_.next();
  return outgoing;
}

const WorkRequest* Requester::sent(const Outgoing& outgoing, Nanos now) {
  const uint32_t psn = outgoing.packet.bth.psn;
  ++counters_.tx_packets;
  if (!waits()) timer_.note_start(now);
  if (sent_.under_way() == 0) {
    timer_.restart(now);
    tail_.restart(now);
  }
  tail_.note_asked(now);
  const bool again = psn != sent_.next();
  sent_.sent(psn, outgoing.entropy, now);
  most_under_way_ = std::max(most_under_way_, sent_.under_way());
  if (again) {
    ++counters_.retransmitted_packets;
    return nullptr;
  }
  WorkRequest& request = requests_.next();
  const bool begins = psn == request.first_psn;
  if (psn_distance(sent_.next(), request.first_psn) == static_cast<int32_t>(request.packets)) requests_.advance();
  if (!begins) return nullptr;
  if (request.kind != WorkKind::clear_to_send) {
    ++counters_.tx_messages;
    counters_.tx_payload_bytes += request.bytes;
  }
  return &request;
}

// With spraying, packets overtake each other by what their paths' queues differ: by as many as were ever under way, though it
// may be fewer now, and by about a round trip.
uint32_t Requester::overtaken_by() const {
  return std::clamp(most_under_way_, 3U, std::max(3U, reorder_packets_));
}

void Requester::lose(uint32_t psn) {
  if (sent_.lose(psn)) timer_.forget_sent();
}

void Requester::note_arrived(const SentPacket& packet, AckOutcome& outcome) {
  ++outcome.packets;
  entropy_.arrived(packet.entropy);
}

void Requester::arrived_before(uint32_t end, Nanos now, AckOutcome& outcome) {
  if (psn_distance(end, sent_.oldest()) <= 0 || psn_distance(end, sent_.next()) > 0) return;
  sent_.arrived_before(end, [&](const SentPacket& packet) { note_arrived(packet, outcome); });
  timer_.note_progress(now);
}

void Requester::learn(const wire::mrc::Seth& seth, Nanos now, AckOutcome& outcome) {
  const uint32_t end = advance(seth.cack_psn, 1);
  if (psn_distance(end, sent_.next()) > 0) return;  // of what was never sent
  // The packet that it answers says how long the way took, if it was sent once.
  const uint32_t cause = advance(seth.cack_psn, seth.ack_psn_offset);
  if (!seth.answers_probe && sent_.has(cause)) {
    const SentPacket& packet = sent_.at(cause);
    const bool same = packet.entropy == static_cast<uint16_t>(seth.entropy);
    if (same && packet.times == 1 && packet.state != SentState::arrived) outcome.rtt_ns = now - packet.sent_ns;
  }
  arrived_before(end, now, outcome);
  const uint32_t base = advance(seth.cack_psn, seth.sack_offset);
  for (uint64_t bits = seth.sack_bitmap; bits != 0; bits &= bits - 1) {
    const uint32_t psn = advance(base, std::countr_zero(bits));
    if (sent_.has(psn) && sent_.arrived(psn)) note_arrived(sent_.at(psn), outcome);
  }
  if (outcome.packets > 0) timer_.note_progress(now);
  outcome.bytes = uint64_t{outcome.packets} << mtu_shift_;
  sent_.lose_overtaken(overtaken_by(), now - timer_.patience_ns() / 2, [&](const SentPacket& packet) {
    ++outcome.lost_packets;
    entropy_.lost(packet.entropy);
  });
  outcome.nak = outcome.lost_packets > 0;
  if (!seth.answers_probe || probe_sent_ns_ < 0 || static_cast<uint16_t>(seth.ack_psn_offset) != probe_id_) return;
  // What left well before the probe and is not there is lost; beyond the bitmap nothing is said.
  const Nanos before_ns = probe_sent_ns_ - std::max<Nanos>(timer_.smoothed_rtt_ns(), 0) / 2;
  probe_sent_ns_ = -1;
  for (uint32_t i = 0; i < kBitmapPackets; ++i) {
    const uint32_t psn = advance(base, static_cast<int32_t>(i));
    if (!sent_.has(psn) || sent_.at(psn).state != SentState::under_way || sent_.at(psn).sent_ns > before_ns) continue;
    entropy_.tell(sent_.at(psn).entropy, EntropyEvent::withdrawn);
    lose(psn);
    ++outcome.lost_packets;
  }
  outcome.nak = outcome.lost_packets > 0;
}

AckOutcome Requester::on_sack(const wire::mrc::Sack& sack, Nanos now) {
  AckOutcome outcome;
  ++counters_.acks_rx;
  if (fault_ != QpFault::none) return outcome;
  const auto value = static_cast<uint16_t>(sack.seth.entropy);
  outcome.ecn_echo = sack.seth.mark == wire::mrc::EntropyMark::skip_once;
  switch (sack.seth.mark) {
    case wire::mrc::EntropyMark::none:
      if (sack.seth.answers_probe) entropy_.tell(value, EntropyEvent::probe_answered);
      else entropy_.arrived_clean(value);
      break;
    case wire::mrc::EntropyMark::skip_once:
      entropy_.tell(value, sack.seth.answers_probe ? EntropyEvent::marked_by_probe : EntropyEvent::marked);
      break;
    case wire::mrc::EntropyMark::skip_always: entropy_.tell(value, EntropyEvent::withdrawn); break;
  }
  learn(sack.seth, now, outcome);
  tail_.note_answer(now);
  if (outcome.rtt_ns >= 0) timer_.set_sample(outcome.rtt_ns);
  return outcome;
}

AckOutcome Requester::on_nack(const wire::mrc::Neth& nack, Nanos now) {
  AckOutcome outcome;
  ++counters_.naks_rx;
  if (fault_ != QpFault::none) return outcome;
  if (nack.reason == NackReason::unexpected_event) {
    fail(QpFault::remote_operational);
    return outcome;
  }
  const auto value = static_cast<uint16_t>(nack.entropy);
  if (nack.reason == NackReason::trimmed) entropy_.tell(value, EntropyEvent::marked);
  tail_.note_answer(now);
  // Of an earlier transmission, when it names another value than the last one took.
  if (!sent_.has(nack.nack_psn) || sent_.at(nack.nack_psn).entropy != value) return outcome;
  if (!sent_.lose(nack.nack_psn)) return outcome;
  timer_.restart(now);
  outcome.nak = true;
  ++counters_.packet_seq_err;
  if (nack.reason == NackReason::trimmed || nack.reason == NackReason::trimmed_last_hop) ++counters_.trimmed_resent;
  return outcome;
}

// The peer has taken every message up to this one, so every packet of them has arrived.
AckOutcome Requester::on_acknowledgement(const wire::mrc::Aeth& aeth, Nanos now) {
  AckOutcome outcome;
  ++counters_.acks_rx;
  if (fault_ != QpFault::none) return outcome;
  if (aeth.syndrome != wire::kSyndromeAck) {
    fail(fault_of(aeth.syndrome));
    return outcome;
  }
  const auto taken = static_cast<uint16_t>(aeth.msn);
  if (static_cast<int16_t>(taken - acknowledged_msns_) <= 0 || static_cast<int16_t>(next_msn_ - taken) < 0) return outcome;
  acknowledged_msns_ = taken;
  tail_.note_answer(now);
  complete();
  if (psn_distance(first_unacknowledged_, sent_.oldest()) > 0) {
    const SentPacket& oldest = sent_.at(sent_.oldest());
    const bool alone = psn_distance(first_unacknowledged_, sent_.oldest()) == 1 && oldest.times == 1;
    const Nanos took_ns = now - oldest.sent_ns;
    arrived_before(first_unacknowledged_, now, outcome);
    if (alone) timer_.set_sample(took_ns);
  }
  outcome.bytes = uint64_t{outcome.packets} << mtu_shift_;
  timer_.note_progress(now);
  return outcome;
}

// A message is over when the peer has said that it took it: a SACK may come before its bytes are in their place.
void Requester::complete() {
  const WorkRequest* first = requests_.oldest();
  while (first != nullptr && static_cast<int16_t>(acknowledged_msns_ - first->msn) > 0) {
    const uint32_t end = advance(first->first_psn, static_cast<int32_t>(first->packets));
    if (psn_distance(end, sent_.next()) > 0) break;  // of what was never sent
    first_unacknowledged_ = end;
    AckOutcome told;
    requests_.complete_before(end, told);
    first = requests_.oldest();
  }
}

Nanos Requester::deadline() const {
  if (fault_ != QpFault::none || !waits()) return kNever;
  if (sent_.lost() > 0 && sent_.under_way() == 0) return kNever;  // all of it waits for its turn
  return std::min(timer_.deadline(), tail_.due_ns(timer_.patience_ns()));
}

void Requester::lose_older_than(Nanos sent_before_ns, bool silent) {
  for (uint32_t psn = sent_.oldest(); psn != sent_.next(); psn = advance(psn, 1)) {
    const SentPacket& packet = sent_.at(psn);
    if (packet.state != SentState::under_way || packet.sent_ns > sent_before_ns) continue;
    if (silent) entropy_.tell(packet.entropy, EntropyEvent::withdrawn);
    lose(psn);
  }
}

void Requester::on_timer(Nanos now) {
  if (deadline() > now) return;
  if (timer_.deadline() > now) {
    ++counters_.tail_probes;
    tail_.restart(now);
    tail_.note_probe();
    probe_wanted_ = true;
    return;
  }
  const Nanos waited_since_ns = now - (timer_.deadline() - timer_.base_ns());
  timer_.restart(now);
  tail_.restart(now);
  ++counters_.local_ack_timeout_err;
  if (timer_.adaptive()) ++(timer_.is_short() ? counters_.roce_adp_retrans : counters_.roce_adp_retrans_to);
  timer_.expire();
  if (!timer_.may_retry(now)) {
    fail(QpFault::retries_exceeded);
    return;
  }
  lose_older_than(waited_since_ns, true);
  probe_wanted_ = true;
}

bool Requester::probe_due(Nanos now) {
  if (fault_ != QpFault::none) return false;
  if (probe_wanted_) return true;
  if (sent_.under_way() == 0 || now - value_probed_ns_ < std::max(kValueProbeNs, timer_.smoothed_rtt_ns())) return false;
  probes_value_ = entropy_.next_to_probe(probed_value_);
  value_probed_ns_ = now;
  return probes_value_;
}

Outgoing Requester::probe() {
  Outgoing outgoing;
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.opcode = Opcode::probe;
  bth.dest_qpn = remote_qpn_;
  wire::mrc::Peth peth;
  peth.probe_id = static_cast<uint16_t>(probe_id_ + 1);
  peth.sender_id = static_cast<uint16_t>(counters_.local_qpn);
  peth.receiver_id = static_cast<uint16_t>(remote_qpn_);
  outgoing.packet.body = peth;
  outgoing.entropy = probes_value_ ? probed_value_ : entropy_.next();
  return outgoing;
}

void Requester::probe_sent(Nanos now) {
  ++probe_id_;
  probe_sent_ns_ = now;
  probe_wanted_ = false;
  probes_value_ = false;
}

void Requester::fail(QpFault fault) {
  fault_ = fault;
  requests_.flush();
}

}  // namespace etloop::mrc
