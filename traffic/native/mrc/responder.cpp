#include "mrc/responder.h"

namespace etloop::mrc {

using multipath::Placement;
using wire::psn_distance;
using wire::mrc::NackReason;
using wire::mrc::Opcode;

namespace {

bool ends_message(Opcode opcode) { return opcode != Opcode::write_first && opcode != Opcode::write_middle; }

}  // namespace

void Responder::refuse(uint32_t psn, uint16_t value, NackReason reason) {
  if (nacks_.size() < kMostWaiting) nacks_.push_back({psn, value, reason});
}

void Responder::refuse_message(uint8_t syndrome, QpFault fault) {
  ++counters_.refused_requests;
  syndrome_ = syndrome;
  fault_ = fault;
}

void Responder::on_write(const wire::mrc::Bth& bth, const wire::mrc::Write& write, uint16_t value, bool marked) {
  ++counters_.rx_packets;  // count every request: otherwise it would seem lost in the network
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return;
  }
  const bool known = receiver_.was_placed(bth.psn);
  if (!known && !receiver_.lies_beyond(bth.psn) && write.reth.rkey != pattern_rkey_ && write.reth.dma_bytes > 0) {
    refuse_message(wire::kSyndromeNakRemoteAccess, QpFault::refused_access);
    return;
  }
  if (!known && !receiver_.lies_beyond(bth.psn) && !fills_its_place(bth, write)) {
    refuse_message(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
    return;
  }
  const multipath::Cause cause{bth.psn, value, marked, bth.rtx};
  switch (receiver_.place(cause, write.payload_bytes)) {
    case Placement::beyond_window:
      ++counters_.out_of_window;
      refuse(bth.psn, value, NackReason::psn_out_of_window);
      return;
    case Placement::duplicate:
      acknowledge_due_ = acknowledge_due_ || (psn_distance(bth.psn, expected_psn()) < 0 && msn() > 0);
      receiver_.cause_answer(cause);
      return;
    case Placement::placed: break;
  }
  if (ends_message(bth.opcode)) keep_end(bth, write);
  const bool is_asked = receiver_.advance(bth.sack_req);
  if (is_asked || marked || bth.rtx || receiver_.answer_due_by_bytes()) {
    receiver_.cause_answer(cause);
  }
}

// All packets of a message are full except the last, which has the rest.
bool Responder::fills_its_place(const wire::mrc::Bth& bth, const wire::mrc::Write& write) const {
  if (!ends_message(bth.opcode)) return write.payload_bytes == path_mtu_;
  const uint32_t bytes = write.reth.dma_bytes;
  return write.payload_bytes == (bytes == 0 ? 0 : (bytes - 1) % path_mtu_ + 1);
}

// The last packet of a message has the address of the whole.
void Responder::keep_end(const wire::mrc::Bth& bth, const wire::mrc::Write& write) {
  Delivered delivered;
  delivered.va = write.reth.va + write.payload_bytes - write.reth.dma_bytes;
  delivered.bytes = write.reth.dma_bytes;
  delivered.has_imm = write.imm.has_value();
  delivered.imm = write.imm ? write.imm->imm : 0;
  const size_t kept = write.payload == nullptr ? 0 : write.payload_bytes;
  receiver_.keep_message({.psn = bth.psn}, delivered, {write.payload, kept});
}

bool Responder::next_delivered(Delivered& delivered) {
  multipath::Ending ending;
  if (!receiver_.next_delivered(delivered, ending)) {
    if (receiver_.is_broken()) fault_ = QpFault::refused_request;
    return false;
  }
  acknowledge_due_ = true;
  return true;
}

void Responder::on_trimmed(const wire::mrc::CutPacket& packet, uint16_t value, bool last_hop) {
  ++counters_.trimmed_received;
  if (fault_ != QpFault::none) ++counters_.came_after_failure;
  if (fault_ != QpFault::none || trim_answer_ == TrimAnswer::none || !wire::mrc::is_write(packet.opcode)) return;
  if (receiver_.was_placed(packet.psn) || receiver_.lies_beyond(packet.psn)) return;
  refuse(packet.psn, value, last_hop ? NackReason::trimmed_last_hop : NackReason::trimmed);
}

void Responder::on_probe(const wire::mrc::Peth& probe, uint16_t value, bool marked) {
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return;
  }
  acknowledge_due_ = acknowledge_due_ || msn() > 0;
  receiver_.cause_answer({.psn = probe.probe_id, .value = value, .marked = marked, .of_probe = true});
}

wire::mrc::Sack Responder::sack(const multipath::Cause& cause) const {
  const multipath::Arrivals arrivals = receiver_.arrivals(cause);
  wire::mrc::Sack sack;
  wire::mrc::Seth& seth = sack.seth;
  seth.mark = cause.marked ? wire::mrc::EntropyMark::skip_once : wire::mrc::EntropyMark::none;
  seth.answers_probe = cause.of_probe;
  if (cause.of_probe) seth.probe_id = static_cast<uint16_t>(cause.psn);
  else seth.ack_psn_offset = static_cast<int16_t>(arrivals.cause_offset);
  seth.entropy = cause.value;
  seth.spdcid = static_cast<uint16_t>(remote_qpn_);
  seth.dpdcid = static_cast<uint16_t>(counters_.local_qpn);
  seth.cack_psn = arrivals.cumulative_psn;
  seth.sack_offset = static_cast<int16_t>(arrivals.bitmap_offset);
  seth.sack_bitmap = arrivals.bitmap;
  sack.cc_state.ooo_count = static_cast<uint16_t>(arrivals.ahead);
  sack.cc_state.rcvd_bytes = arrivals.received_256bytes;
  return sack;
}

wire::mrc::Neth Responder::nack(const Refused& refused) const {
  wire::mrc::Neth nack;
  nack.reason = refused.reason;
  nack.entropy = refused.value;
  nack.spdcid = static_cast<uint16_t>(remote_qpn_);
  nack.dpdcid = static_cast<uint16_t>(counters_.local_qpn);
  nack.nack_psn = refused.psn;
  return nack;
}

Outgoing Responder::answer() const {
  Outgoing outgoing;
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.dest_qpn = remote_qpn_;
  if (!nacks_.empty()) {
    bth.opcode = Opcode::nack;
    bth.psn = nacks_.front().psn;
    outgoing.packet.body = nack(nacks_.front());
  } else if (receiver_.has_cause()) {
    const wire::mrc::Sack answer = sack(receiver_.cause());
    bth.opcode = Opcode::sack;
    bth.psn = answer.seth.cack_psn;
    outgoing.packet.body = answer;
  } else {
    const uint8_t syndrome = syndrome_ == kNoSyndrome ? wire::kSyndromeAck : static_cast<uint8_t>(syndrome_);
    bth.opcode = Opcode::ack;
    bth.psn = (expected_psn() - 1) & wire::kPsnMask;
    outgoing.packet.body = wire::mrc::Aeth{syndrome, msn() & wire::kPsnMask};
  }
  return outgoing;
}

void Responder::answer_sent() {
  if (!nacks_.empty()) {
    ++counters_.naks_tx;
    const NackReason reason = nacks_.front().reason;
    const bool trimmed = reason == NackReason::trimmed || reason == NackReason::trimmed_last_hop;
    if (trimmed) ++counters_.trimmed_answered;
    nacks_.erase(nacks_.begin());
    return;
  }
  ++counters_.acks_tx;
  if (receiver_.has_cause()) {
    receiver_.cause_answered();
    return;
  }
  acknowledge_due_ = false;
  syndrome_ = kNoSyndrome;
}

}  // namespace etloop::mrc
