// Trimmed packets: a switch without buffer space removed their payload; the headers show the loss at once. The answer of a RoCEv2
// end is not standardized; docs/trimming.md.
#include "qp/requester.h"
#include "qp/responder.h"

namespace etloop {

using wire::Opcode;
using wire::psn_distance;
using wire::Role;

void Responder::on_trimmed(const wire::CutPacket& packet) {
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return;
  }
  ++counters_.trimmed_received;
  const Role role = wire::shape(packet.opcode).role;
  if (trims_.answer == TrimAnswer::none || (role != Role::write && role != Role::send)) return;
  const int32_t ahead = psn_distance(packet.psn, expected_psn_);
  if (ahead < 0) {
    acknowledge_due_ = true;  // it arrived before: the peer does not know yet
    return;
  }
  if (trims_.answer == TrimAnswer::selective) {
    if (ahead <= static_cast<int32_t>(kReorderWindow)) ask_for_trimmed(packet.psn);
    return;
  }
  if (ahead == 0) {
    if (nak_sent_) return;
    ++counters_.trimmed_answered;
    refuse(wire::kSyndromeNakSequence, QpFault::none);
    return;
  }
  // The header overtook queued data: report it when its turn comes. After a NAK all later packets are retransmitted anyway.
  if (nak_sent_ || (trims_.ahead && psn_distance(packet.psn, trims_.ahead_psn) >= 0)) return;
  trims_.ahead = true;
  trims_.ahead_psn = packet.psn;
}

void Responder::ask_for_trimmed(uint32_t psn) {
  if (early_.has(psn)) return;
  if (std::vector<uint32_t>& trimmed = replies().trimmed; trimmed.size() < kReorderWindow) trimmed.push_back(psn);
}

// Called when all packets before the trimmed one, or its retransmission, have arrived.
void Responder::reach_trimmed() {
  const int32_t ahead = psn_distance(trims_.ahead_psn, expected_psn_);
  if (ahead > 0) return;
  trims_.ahead = false;
  if (ahead < 0) return;
  ++counters_.trimmed_answered;
  refuse(wire::kSyndromeNakSequence, QpFault::none);
}

PacketRun Responder::trimmed_answer() const {
  PacketRun run;
  run.flow = flow_;
  run.head.opcode = Opcode::trimmed_nak;
  run.head.dest_qpn = remote_qpn_;
  run.head.psn = replies_->trimmed.back();
  run.head.syndrome = wire::kSyndromeNakSequence;
  run.head.msn = msn_;
  return run;
}

void Responder::trimmed_answer_sent() {
  ++counters_.naks_tx;
  ++counters_.trimmed_answered;
  replies_->trimmed.pop_back();
}

// Carries no information about earlier packets or the round trip.
void Requester::on_trimmed(const wire::Packet& packet, Nanos now, AckOutcome& outcome) {
  if (selective_ == nullptr || psn_distance(packet.psn, una_) < 0) {
    ++counters_.stale_answers;
    return;
  }
  timer_.restart(now);
  selective_->probe.note_answer(now);
  outcome.ecn_echo = packet.becn;
  if (selective_->board.lose(packet.psn, 1) == 0) return;
  ++counters_.trimmed_resent;
  outcome.nak = true;
  timer_.forget_sent();
}

}  // namespace etloop
