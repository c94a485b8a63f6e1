#include "mrc/responder.h"

#include <algorithm>
#include <bit>

namespace etloop::mrc {

using wire::psn_distance;
using wire::mrc::NackReason;
using wire::mrc::Opcode;

namespace {

constexpr uint32_t kBitmapPackets = 64;
constexpr uint32_t kLeastCountedBytes = 1024;  // of a packet, towards the next SACK
constexpr uint64_t kReceivedUnit = 256;

constexpr uint32_t after(uint32_t psn) { return (psn + 1) & wire::kPsnMask; }
constexpr uint32_t before(uint32_t psn) { return (psn - 1) & wire::kPsnMask; }

bool ends_message(Opcode opcode) { return opcode != Opcode::write_first && opcode != Opcode::write_middle; }

}  // namespace

Responder::Responder(uint32_t remote_qpn, const TransportParams& params, uint32_t pattern_rkey, FlowRecord& counters)
    : counters_(counters),
      expected_psn_(params.initial_psn & wire::kPsnMask),
      newest_psn_(before(expected_psn_)),
      remote_qpn_(remote_qpn),
      pattern_rkey_(pattern_rkey),
      sack_bytes_(params.multipath.sack_bytes),
      window_(params.window_packets == 0 ? kMostMrcWindow : std::min(params.window_packets, kMostMrcWindow)),
      trim_answer_(params.trims.answer) {}

void Responder::cause_sack(const Cause& cause) {
  unsacked_bytes_ = 0;
  if (sacks_.size() == kMostWaiting) sacks_.erase(sacks_.begin());
  sacks_.push_back(cause);
}

void Responder::refuse(uint32_t psn, uint16_t value, NackReason reason) {
  if (nacks_.size() < kMostWaiting) nacks_.push_back({psn, value, reason});
}

void Responder::on_write(const wire::mrc::Bth& bth, const wire::mrc::Write& write, uint16_t value, bool marked) {
  if (fault_ != QpFault::none) return;
  ++counters_.rx_packets;
  const int32_t ahead = psn_distance(bth.psn, expected_psn_);
  if (ahead >= static_cast<int32_t>(window_)) {
    ++counters_.out_of_sequence;
    refuse(bth.psn, value, NackReason::psn_out_of_window);
    return;
  }
  if (ahead < 0 || has(bth.psn)) {
    ++counters_.duplicate_request;
    acknowledge_due_ = acknowledge_due_ || (ahead < 0 && messages_ > 0);
    cause_sack({bth.psn, value, marked});
    return;
  }
  if (write.reth.rkey != pattern_rkey_ && write.reth.dma_bytes > 0) {
    syndrome_ = wire::kSyndromeNakRemoteAccess;
    fault_ = QpFault::refused_access;
    return;
  }
  set(bth.psn);
  received_bytes_ += write.payload_bytes;
  if (ahead > 0) ++counters_.out_of_sequence;
  ++ahead_;
  if (psn_distance(bth.psn, newest_psn_) > 0) newest_psn_ = bth.psn;
  if (ends_message(bth.opcode)) keep_end(bth, write);
  if (ahead == 0) advance();
  unsacked_bytes_ += std::max(write.payload_bytes, kLeastCountedBytes);
  if (bth.sack_req || marked || bth.retransmitted || unsacked_bytes_ >= sack_bytes_) cause_sack({bth.psn, value, marked});
}

// The last packet of a message says where all of it went.
void Responder::keep_end(const wire::mrc::Bth& bth, const wire::mrc::Write& write) {
  Delivered delivered;
  delivered.va = write.reth.va + write.payload_bytes - write.reth.dma_bytes;
  delivered.bytes = write.reth.dma_bytes;
  delivered.has_imm = write.imm.has_value();
  delivered.imm = write.imm ? write.imm->value : 0;
  Whole whole{.psn = bth.psn, .has_content = write.payload != nullptr && write.payload_bytes == kClearToSendBytes && !write.imm,
              .content = {}, .delivered = delivered};
  if (whole.has_content) std::copy_n(write.payload, kClearToSendBytes, whole.content.begin());
  const auto at = std::partition_point(whole_.begin(), whole_.end(),
                                       [&](const Whole& other) { return psn_distance(other.psn, bth.psn) < 0; });
  whole_.insert(at, whole);
}

void Responder::advance() {
  while (has(expected_psn_)) {
    clear(expected_psn_);
    expected_psn_ = after(expected_psn_);
    --ahead_;
  }
}

bool Responder::next_delivered(Delivered& delivered) {
  if (whole_.empty() || psn_distance(whole_.front().psn, expected_psn_) >= 0) return false;
  delivered = whole_.front().delivered;
  content_ = whole_.front().content;
  if (whole_.front().has_content) delivered.payload = content_.data();
  whole_.erase(whole_.begin());
  ++messages_;
  acknowledge_due_ = true;
  ++counters_.rx_write_requests;
  if (delivered.has_imm) {
    ++counters_.rx_messages;
    counters_.rx_payload_bytes += delivered.bytes;
  }
  return true;
}

void Responder::on_trimmed(const wire::mrc::CutPacket& packet, uint16_t value) {
  ++counters_.trimmed_received;
  if (fault_ != QpFault::none || trim_answer_ == TrimAnswer::none || !wire::mrc::is_write(packet.opcode)) return;
  const int32_t ahead = psn_distance(packet.psn, expected_psn_);
  if (ahead < 0 || ahead >= static_cast<int32_t>(window_) || has(packet.psn)) return;
  refuse(packet.psn, value, NackReason::trimmed);
}

void Responder::on_probe(const wire::mrc::Peth& probe, uint16_t value, bool marked) {
  if (fault_ != QpFault::none) return;
  acknowledge_due_ = acknowledge_due_ || messages_ > 0;
  cause_sack({probe.probe_id, value, marked, true});
}

// The bitmap ends with the packet that caused it, where the window is longer than the bitmap: of what is behind that, later
// SACKs tell.
wire::mrc::Sack Responder::sack(const Cause& cause) const {
  wire::mrc::Sack sack;
  const uint32_t cumulative = before(expected_psn_);
  wire::mrc::Seth& seth = sack.seth;
  seth.mark = cause.marked ? wire::mrc::EntropyMark::skip_once : wire::mrc::EntropyMark::none;
  seth.answers_probe = cause.of_probe;
  const int32_t from_cumulative = psn_distance(cause.psn, cumulative);
  seth.ack_psn_offset = static_cast<int16_t>(cause.of_probe ? static_cast<int32_t>(cause.psn) : from_cumulative);
  seth.entropy = cause.value;
  seth.sender_id = static_cast<uint16_t>(remote_qpn_);
  seth.receiver_id = static_cast<uint16_t>(counters_.local_qpn);
  seth.cack_psn = cumulative;
  const int32_t reach = cause.of_probe ? 1 : from_cumulative;
  const int32_t offset = std::max(1, reach - static_cast<int32_t>(kBitmapPackets) + 1);
  seth.sack_offset = static_cast<int16_t>(offset);
  for (uint32_t i = 0; ahead_ > 0 && i < kBitmapPackets; ++i) {
    const uint32_t psn = (cumulative + static_cast<uint32_t>(offset) + i) & wire::kPsnMask;
    const bool inside = psn_distance(psn, expected_psn_) < static_cast<int32_t>(window_);
    if (inside && has(psn)) seth.sack_bitmap |= uint64_t{1} << i;
  }
  sack.cc_state.out_of_order = static_cast<uint16_t>(ahead_);
  sack.cc_state.received_256bytes =
      static_cast<uint32_t>((received_bytes_ + kReceivedUnit - 1) / kReceivedUnit) & wire::kPsnMask;
  return sack;
}

Outgoing Responder::answer() const {
  Outgoing outgoing;
  wire::mrc::Bth& bth = outgoing.packet.bth;
  bth.dest_qpn = remote_qpn_;
  if (!nacks_.empty()) {
    const Refused& refused = nacks_.front();
    wire::mrc::Neth nack;
    nack.reason = refused.reason;
    nack.entropy = refused.value;
    nack.sender_id = static_cast<uint16_t>(remote_qpn_);
    nack.receiver_id = static_cast<uint16_t>(counters_.local_qpn);
    nack.nack_psn = refused.psn;
    bth.opcode = Opcode::nack;
    bth.psn = refused.psn;
    outgoing.packet.body = nack;
  } else if (!sacks_.empty()) {
    const wire::mrc::Sack told = sack(sacks_.front());
    bth.opcode = Opcode::sack;
    bth.psn = told.seth.cack_psn;
    outgoing.packet.body = told;
  } else {
    const uint8_t syndrome = syndrome_ == kNoSyndrome ? wire::kSyndromeAck : static_cast<uint8_t>(syndrome_);
    bth.opcode = Opcode::acknowledge;
    bth.psn = before(expected_psn_);
    outgoing.packet.body = wire::mrc::Aeth{syndrome, messages_ & wire::kPsnMask};
  }
  return outgoing;
}

void Responder::answer_sent() {
  if (!nacks_.empty()) {
    ++counters_.naks_tx;
    const NackReason reason = nacks_.front().reason;
    if (reason == NackReason::trimmed) ++counters_.trimmed_answered;
    nacks_.erase(nacks_.begin());
    return;
  }
  ++counters_.acks_tx;
  if (!sacks_.empty()) {
    sacks_.erase(sacks_.begin());
    return;
  }
  acknowledge_due_ = false;
  syndrome_ = kNoSyndrome;
}

}  // namespace etloop::mrc
