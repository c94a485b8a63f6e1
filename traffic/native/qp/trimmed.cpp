// Packets that arrive without their payload, because a switch had no room for it: their headers say at once what is lost.
// No standard says how a RoCEv2 end answers them; docs/trimming.md.
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
    acknowledge_due_ = true;  // it was here before: the peer has not heard so
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
  // The header passed data that waits: the peer hears of it when its turn comes. Once a NAK is out all that follows comes again.
  if (nak_sent_ || (trims_.ahead && psn_distance(packet.psn, trims_.ahead_psn) >= 0)) return;
  trims_.ahead = true;
  trims_.ahead_psn = packet.psn;
}

void Responder::ask_for_trimmed(uint32_t psn) {
  if (early_.has(psn)) return;
  if (std::vector<uint32_t>& trimmed = replies().trimmed; trimmed.size() < kReorderWindow) trimmed.push_back(psn);
}

// Everything before it has arrived, or it has itself, sent again.
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

// Says nothing of packets before it, and nothing of how long it took.
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
