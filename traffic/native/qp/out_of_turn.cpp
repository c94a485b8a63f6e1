// Responder: duplicate and early requests, and the answers that are sent.
#include "qp/responder.h"

namespace etloop {

using wire::Opcode;
using wire::psn_distance;
using wire::Role;

namespace {

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

}  // namespace

void Responder::on_duplicate(const wire::Packet& packet) {
  ++counters_.duplicate_request;
  switch (wire::shape(packet.opcode).role) {
    case Role::read: {
      // Read memory again, but only within PSNs that were READ before; otherwise the packet is an old duplicate.
      Reply made;
      made.msn = msn_;
      if (!find_read(packet, made)) return;
      const auto behind = static_cast<uint32_t>(psn_distance(expected_psn_, packet.psn));
      if (made.packets <= behind) reply(made);
      return;
    }
    case Role::atomic:
      // Never executed twice: repeat the result, or stay silent if it is too old.
      if (replies_ == nullptr) return;
      for (const Reply& done : replies_->atomics) {
        if (done.psn == packet.psn) reply(done);
      }
      return;
    default: acknowledge_due_ = true;
  }
}

void Responder::on_early(const wire::Packet& packet, uint32_t ahead) {
  ++counters_.out_of_sequence;
  using Kept = EarlyPackets::Kept;
  const Kept kept = early_.keep(packet, ahead, resources_.memory != nullptr || packet.payload_bytes <= kClearToSendBytes);
  if (kept == Kept::no) {
    if (!nak_sent_) refuse(wire::kSyndromeNakSequence, QpFault::none);
    return;
  }
  if (kept == Kept::again) ++counters_.duplicate_request;
  early_.note_gap(ahead);
  const bool asked_again = kept == Kept::again && packet.ack_req;  // a timer retransmission: the peer does not know what arrived
  if (early_.missing_may_be_late() && !asked_again) return;        // the missing packets may only be late
  if (reports_gaps()) {
    acknowledge_due_ = true;  // the bitmap is built when the answer leaves; the gap may be filled by then
  } else if (selective_ || !nak_sent_) {
    refuse(wire::kSyndromeNakSequence, QpFault::none);
  }
}

PacketRun Responder::reply_packet(const Reply& made) const {
  PacketRun run;
  run.flow = flow_;
  wire::Packet& head = run.head;
  head.dest_qpn = remote_qpn_;
  head.psn = advance(made.psn, made.sent);
  head.syndrome = wire::kSyndromeAck;
  head.msn = made.msn;
  if (!made.is_read) {
    head.opcode = Opcode::atomic_acknowledge;
    head.original = made.original;
    return run;
  }
  const bool first = made.sent == 0;
  const bool last = made.sent + 1 == made.packets;
  head.opcode = first ? (last ? Opcode::read_response_only : Opcode::read_response_first)
                      : (last ? Opcode::read_response_last : Opcode::read_response_middle);
  const size_t offset = size_t{made.sent} << mtu_shift_;
  head.payload_bytes = last ? made.bytes - static_cast<uint32_t>(offset) : path_mtu();
  if (made.source != nullptr && head.payload_bytes > 0) head.payload = made.source + offset;
  if (head.opcode == Opcode::read_response_middle) head.syndrome = 0, head.msn = 0;
  return run;
}

PacketRun Responder::answer() {
  if (replies_ != nullptr && !replies_->trimmed.empty()) return trimmed_answer();  // covers no other packet
  // Keep the order of requests: an acknowledgement covers every READ before it.
  if (replies_ != nullptr && replies_->pending > 0) return reply_packet(replies_->queue[replies_->head]);
  PacketRun run;
  run.flow = flow_;
  run.head.opcode = Opcode::acknowledge;
  run.head.dest_qpn = remote_qpn_;
  run.head.msn = msn_;
  run.head.becn = echo_congestion_;
  if (reports_gaps() || (nak_due_ && selective_ && !early_.empty() && nak_syndrome_ == wire::kSyndromeNakSequence)) {
    early_.put_bitmap(expected_psn_, bitmap_);
    run.head.opcode = Opcode::selective_nak;
    run.head.psn = expected_psn_;
    run.head.syndrome = wire::kSyndromeNakSequence;
    run.head.payload = bitmap_;
    run.head.payload_bytes = wire::kSelectiveBitmapBytes;
  } else if (nak_due_) {
    run.head.psn = expected_psn_;
    run.head.syndrome = nak_syndrome_;
  } else {
    run.head.psn = advance(expected_psn_, wire::kPsnMask);
    run.head.syndrome = wire::kSyndromeAck;
  }
  return run;
}

void Responder::answer_sent(const PacketRun& run) {
  if (run.head.opcode == Opcode::trimmed_nak) {
    trimmed_answer_sent();
    return;
  }
  const wire::Shape& shape = wire::shape(run.head.opcode);
  if (shape.role == Role::response) {
    Reply& front = replies_->queue[replies_->head];
    if (++front.sent == front.packets) {
      replies_->head = (replies_->head + 1) & (replies_->queue.size() - 1);
      --replies_->pending;
    }
    return;
  }
  ++(run.head.syndrome != wire::kSyndromeAck ? counters_.naks_tx : counters_.acks_tx);
  nak_due_ = false;
  acknowledge_due_ = false;
  echo_congestion_ = false;
}

}  // namespace etloop
