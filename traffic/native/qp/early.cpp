// Requests out of their turn, and the answers that go back.
#include <algorithm>
#include <bit>
#include <cstring>

#include "qp/responder.h"

namespace etloop {

using wire::Opcode;
using wire::psn_distance;
using wire::Role;

namespace {

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }
constexpr size_t kFirstEarly = 16;

}  // namespace

void Responder::on_duplicate(const wire::Packet& packet) {
  ++counters_.duplicate_request;
  switch (wire::shape(packet.opcode).role) {
    case Role::read: {
      // Answered anew from memory, and only within numbers that were READ before; else it is an old ghost.
      Reply made;
      made.msn = msn_;
      if (!find_read(packet, made)) return;
      const auto behind = static_cast<uint32_t>(psn_distance(expected_psn_, packet.psn));
      if (made.packets <= behind) reply(made);
      return;
    }
    case Role::atomic:
      // Never carried out twice: the result is repeated, or there is silence if it is too old.
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
  const Kept kept = keeps_early_ ? keep(packet, ahead) : Kept::no;
  if (kept == Kept::no) {
    if (!nak_sent_) refuse(wire::kSyndromeNakSequence, QpFault::none);
    return;
  }
  const bool opens_gap = furthest_ == 0 || ahead > furthest_ + 1;
  furthest_ = std::max(furthest_, ahead);
  const bool asked_again = kept == Kept::again && packet.ack_req;  // the peer's timer: it does not know what is here
  if (early_count_ < reorder_packets_ && !asked_again) return;     // what is missing may only be late
  if (selective_ ? opens_gap || packet.ack_req || early_count_ == reorder_packets_ : !nak_sent_) {
    refuse(wire::kSyndromeNakSequence, QpFault::none);
  }
}

// Keeps a write that came ahead of its turn; what cannot be kept must come again.
Responder::Kept Responder::keep(const wire::Packet& packet, uint32_t ahead) {
  if (wire::shape(packet.opcode).role != Role::write || ahead > kReorderWindow) return Kept::no;
  if (ahead >= early_.size()) {
    std::vector<Early> larger(std::max(kFirstEarly, std::bit_ceil(size_t{ahead} + 1)));
    for (Early& held : early_) {
      if (held.here) larger[held.packet.psn & (larger.size() - 1)] = std::move(held);
    }
    early_ = std::move(larger);
  }
  Early& place = early_[packet.psn & (early_.size() - 1)];
  if (place.here) {
    ++counters_.duplicate_request;
    return Kept::again;
  }
  place.here = true;
  place.packet = packet;
  // The receive buffer is used again before its turn comes; bulk whose content nobody reads is not copied.
  const bool matters = resources_.memory != nullptr || packet.payload_bytes <= kClearToSendBytes;
  place.has_payload = packet.payload != nullptr && matters;
  if (place.has_payload) place.payload.assign(packet.payload, packet.payload + packet.payload_bytes);
  place.packet.payload = nullptr;
  ++early_count_;
  return Kept::new_one;
}

void Responder::put_bitmap() {
  std::fill(std::begin(bitmap_), std::end(bitmap_), uint8_t{0});
  const uint32_t seen = std::min<uint32_t>(furthest_, wire::kSelectiveBitmapBytes * 8);
  for (uint32_t i = 0; i < seen; ++i) {
    const uint32_t psn = advance(expected_psn_, i + 1);
    const Early& held = early_[psn & (early_.size() - 1)];
    if (held.here && held.packet.psn == psn) bitmap_[i / 8] = static_cast<uint8_t>(bitmap_[i / 8] | 1U << (i % 8));
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
  head.payload_bytes = last ? made.bytes - static_cast<uint32_t>(offset) : path_mtu_;
  if (made.source != nullptr && head.payload_bytes > 0) head.payload = made.source + offset;
  if (head.opcode == Opcode::read_response_middle) head.syndrome = 0, head.msn = 0;
  return run;
}

PacketRun Responder::answer() {
  // Answers keep the order of the requests: an acknowledgement stands for every READ before it.
  if (replies_ != nullptr && replies_->pending > 0) return reply_packet(replies_->queue[replies_->head]);
  PacketRun run;
  run.flow = flow_;
  run.head.opcode = Opcode::acknowledge;
  run.head.dest_qpn = remote_qpn_;
  run.head.msn = msn_;
  run.head.becn = echo_congestion_;
  if (!nak_due_) {
    run.head.psn = advance(expected_psn_, wire::kPsnMask);
    run.head.syndrome = wire::kSyndromeAck;
    return run;
  }
  run.head.psn = expected_psn_;
  run.head.syndrome = nak_syndrome_;
  if (selective_ && early_count_ > 0 && nak_syndrome_ == wire::kSyndromeNakSequence) {
    put_bitmap();
    run.head.opcode = Opcode::selective_nak;
    run.head.payload = bitmap_;
    run.head.payload_bytes = wire::kSelectiveBitmapBytes;
  }
  return run;
}

void Responder::answer_sent(const PacketRun& run) {
  const wire::Shape& shape = wire::shape(run.head.opcode);
  if (shape.role == Role::response) {
    Reply& front = replies_->queue[replies_->head];
    if (++front.sent == front.packets) {
      replies_->head = (replies_->head + 1) & (replies_->queue.size() - 1);
      --replies_->pending;
    }
    return;
  }
  ++(nak_due_ ? counters_.naks_tx : counters_.acks_tx);
  nak_due_ = false;
  acknowledge_due_ = false;
  echo_congestion_ = false;
}

}  // namespace etloop
