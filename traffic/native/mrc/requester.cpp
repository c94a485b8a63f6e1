#include "mrc/requester.h"

namespace etloop::mrc {

using multipath::Departure;
using multipath::PathMark;
using wire::psn_distance;
using wire::mrc::EntropyMark;
using wire::mrc::NackReason;
using wire::mrc::Opcode;

namespace {

constexpr uint32_t advance(uint32_t psn, int32_t by) { return (psn + static_cast<uint32_t>(by)) & wire::kPsnMask; }

bool takes_receive(const WorkRequest& request) {
  return request.kind == WorkKind::data || request.kind == WorkKind::write_imm;
}

Opcode opcode_of(const Departure& departure) {
  const bool immediate = takes_receive(*departure.request);
  if (departure.first && departure.last) return immediate ? Opcode::write_only_imm : Opcode::write_only;
  if (departure.last) return immediate ? Opcode::write_last_imm : Opcode::write_last;
  return departure.first ? Opcode::write_first : Opcode::write_middle;
}

wire::mrc::Write write_of(const Departure& departure) {
  const WorkRequest& request = *departure.request;
  wire::mrc::Write write;
  write.meth = {request.rqmsn, request.msn};
  write.reth = {request.va + departure.offset_bytes, request.rkey, request.bytes};
  if (departure.last && takes_receive(request)) {
    write.imm = {request.kind == WorkKind::data ? request.bytes : request.imm};
  }
  write.payload_bytes = departure.payload_bytes;
  write.payload = departure.payload;
  return write;
}

PathMark mark_of(EntropyMark mark) {
  switch (mark) {
    case EntropyMark::none: return PathMark::none;
    case EntropyMark::skip_once: return PathMark::skip_once;
    case EntropyMark::skip_always: return PathMark::skip_always;
  }
  return PathMark::none;
}

// The IBTA's codes, which MRC's transport acknowledgement uses.
QpFault fault_of(uint8_t syndrome) {
  switch (syndrome) {
    case wire::kSyndromeNakInvalidRequest: return QpFault::remote_invalid_request;
    case wire::kSyndromeNakRemoteAccess: return QpFault::remote_access;
    case wire::kSyndromeNakRemoteOperational: return QpFault::remote_operational;
    default: return QpFault::unexpected_syndrome;
  }
}

}  // namespace

bool Requester::came_after_failure() {
  if (fault() == QpFault::none) return false;
  ++counters_.came_after_failure;
  return true;
}

void Requester::post(const WorkRequest& asked) {
  WorkRequest request = asked;
  request.msn = next_msn_++;
  request.rqmsn = takes_receive(request) ? next_rqmsn_++ : 0;
  sender_.post(request);
}

Outgoing Requester::next(uint32_t planes) {
  const Departure departure = sender_.next(planes);
  Outgoing outgoing;
  outgoing.packet.body = write_of(departure);
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.opcode = opcode_of(departure);
  bth.dest_qpn = remote_qpn_;
  bth.psn = departure.psn;
  bth.rtx = departure.again;
  bth.sack_req = departure.asks;
  outgoing.entropy = departure.entropy;
  return outgoing;
}

AckOutcome Requester::on_sack(const wire::mrc::Sack& sack, Nanos now) {
  ++counters_.acks_rx;
  if (came_after_failure()) return {};
  const wire::mrc::Seth& seth = sack.seth;
  multipath::ArrivalReport report;
  report.cumulative_psn = seth.cack_psn;
  report.bitmap_psn = advance(seth.cack_psn, seth.sack_offset);
  report.bitmap = seth.sack_bitmap;
  report.cause_psn = advance(seth.cack_psn, seth.ack_psn_offset);
  report.answers_probe = seth.answers_probe;
  report.probe_id = seth.probe_id;
  report.mark = mark_of(seth.mark);
  report.names_value = true;
  report.value = static_cast<uint16_t>(seth.entropy);
  return sender_.on_report(report, now);
}

AckOutcome Requester::on_nack(const wire::mrc::Neth& nack, Nanos now) {
  AckOutcome outcome;
  ++counters_.naks_rx;
  if (came_after_failure()) return outcome;
  if (nack.reason == NackReason::unexpected_event) {
    sender_.note_error(QpFault::remote_operational, now);
    return outcome;
  }
  const multipath::SentPackets& packets = sender_.packets();
  if (!packets.has(nack.nack_psn)) {
    ++counters_.stale_answers;
    return outcome;
  }
  const auto value = static_cast<uint16_t>(nack.entropy);
  if (nack.reason == NackReason::trimmed) sender_.entropy().paths().apply(value, multipath::EntropyEvent::marked);
  sender_.note_answer(now);
  // Refers to an earlier transmission if its value is not that of the last one.
  if (packets.at(nack.nack_psn).entropy != value) return outcome;
  if (!sender_.lose(nack.nack_psn, now)) return outcome;
  outcome.nak = true;
  ++counters_.packet_seq_err;
  if (nack.reason == NackReason::trimmed || nack.reason == NackReason::trimmed_last_hop) ++counters_.trimmed_resent;
  return outcome;
}

// The peer completed all messages up to this one: all their packets have arrived.
AckOutcome Requester::on_acknowledgement(const wire::mrc::Aeth& aeth, Nanos now) {
  AckOutcome outcome;
  ++counters_.acks_rx;
  if (came_after_failure()) return outcome;
  if (aeth.syndrome != wire::kSyndromeAck) {
    sender_.note_error(fault_of(aeth.syndrome), now);
    return outcome;
  }
  const auto completed = static_cast<uint16_t>(aeth.msn);
  if (static_cast<int16_t>(completed - acknowledged_msns_) <= 0 || static_cast<int16_t>(next_msn_ - completed) < 0) {
    ++counters_.stale_answers;
    return outcome;
  }
  sender_.note_answer(now);
  complete(completed, now, outcome);
  return outcome;
}

// A message completes only when the peer reports it: a SACK may precede the placement of its bytes.
void Requester::complete(uint16_t completed, Nanos now, AckOutcome& outcome) {
  acknowledged_msns_ = completed;
  const WorkRequest* first = sender_.oldest_request();
  while (first != nullptr && static_cast<int16_t>(completed - first->msn) > 0) {
    const uint32_t end = advance(first->first_psn, static_cast<int32_t>(first->packets));
    if (psn_distance(end, sender_.packets().next()) > 0) break;  // acknowledges packets never sent
    sender_.complete_before(end);
    first = sender_.oldest_request();
  }
  sender_.learn_of_completed(now, outcome);
}

Outgoing Requester::probe() {
  Outgoing outgoing;
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.opcode = Opcode::probe;
  bth.dest_qpn = remote_qpn_;
  wire::mrc::Peth peth;
  peth.probe_id = sender_.last_probe().next_id();
  peth.spdcid = static_cast<uint16_t>(counters_.local_qpn);
  peth.dpdcid = static_cast<uint16_t>(remote_qpn_);
  outgoing.packet.body = peth;
  outgoing.entropy = sender_.probe_value();
  return outgoing;
}

}  // namespace etloop::mrc
