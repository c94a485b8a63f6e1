// Requests in their turn: checked, placed, delivered.
#include "qp/responder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace etloop {

using wire::Opcode;
using wire::psn_distance;
using wire::Role;

namespace {

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

}  // namespace

Responder::Responder(uint32_t remote_qpn, FlowId flow, const TransportSettings& params, const QpResources& resources,
                     FlowRecord& counters)
    : counters_(counters),
      expected_psn_(params.recovery.initial_psn & wire::kPsnMask),
      mtu_shift_(static_cast<uint8_t>(std::countr_zero(params.path_mtu_bytes))),
      selective_(params.recovery.selective_repeat),
      trims_{params.recovery.trimming.answer},
      early_(params),
      resources_(resources),
      remote_qpn_(remote_qpn),
      flow_(flow),
      reply_limit_(std::max(1U, params.recovery.outstanding_reads)),
      rnr_timer_(params.recovery.min_rnr_timer_code & wire::kRnrTimerMask) {}

Responder::Step Responder::refuse(uint8_t syndrome, QpFault fault) {
  nak_due_ = true;
  nak_sent_ = true;
  nak_syndrome_ = syndrome;
  if (fault != QpFault::none) {
    fault_ = fault;
    ++counters_.refused_requests;
  }
  return Step::refused;
}

Responder::Step Responder::advance_by(uint32_t packets) {
  // A NAK found due in this batch but not yet sent still holds: what came ahead of its turn was dropped.
  nak_sent_ = nak_due_;
  expected_psn_ = advance(expected_psn_, packets);
  early_.advance(packets, expected_psn_);
  if (trims_.ahead) [[unlikely]] reach_trimmed();
  return Step::taken;
}

bool Responder::on_request(const wire::Packet& packet, Delivered& delivered) {
  ++counters_.rx_packets;  // whatever becomes of it, or it would look lost on the way
  if (fault_ != QpFault::none) {  // in the error state everything is dropped (9.7.7.2)
    ++counters_.came_after_failure;
    return false;
  }
  const int32_t ahead = psn_distance(packet.psn, expected_psn_);
  if (ahead < 0) {
    on_duplicate(packet);
    return false;
  }
  if (ahead > 0) {
    on_early(packet, static_cast<uint32_t>(ahead));
    return false;
  }
  const Step step = accept(packet, delivered);
  // Where something else is missing behind it, the peer learns what of its repetitions has arrived.
  if (reports_gaps()) acknowledge_due_ = true;
  return step == Step::whole || (step == Step::taken && !early_.empty() && next_delivered(delivered));
}

bool Responder::next_delivered(Delivered& delivered) {
  while (!early_.empty() && fault_ == QpFault::none) {
    const wire::Packet* next = early_.take(expected_psn_);
    if (next == nullptr) return false;
    const Step step = accept(*next, delivered);
    if (step != Step::taken) return step == Step::whole;
  }
  return false;
}

Responder::Step Responder::accept(const wire::Packet& packet, Delivered& delivered) {
  const wire::Shape& shape = wire::shape(packet.opcode);
  switch (shape.role) {
    case Role::write:
    case Role::send: return accept_carrier(packet, shape, delivered);
    case Role::read: return accept_read(packet);
    case Role::atomic: return accept_atomic(packet, delivered);
    case Role::unknown:
    case Role::response:
    case Role::acknowledgement:
    case Role::notification:
    case Role::datagram: break;
  }
  return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
}

// Checks what a FIRST or ONLY says of its message. False: refused.
bool Responder::begin_message(const wire::Packet& packet, const wire::Shape& shape) {
  message_.received = 0;
  message_.into = nullptr;
  if (shape.role == Role::send) {
    message_va_ = 0;
    message_.bytes = UINT32_MAX;  // a SEND says nothing of its length; the receive bounds it
    return take_receive();
  }
  message_va_ = packet.va;
  message_.bytes = packet.dma_bytes;
  // A write of no bytes is not checked against a memory region (9.7.4.2: zero-length RDMA WRITE).
  if (packet.dma_bytes == 0 || packet.rkey == resources_.pattern_rkey) return true;
  if (resources_.memory != nullptr && packet.rkey == resources_.memory->rkey()) {
    message_.into = resources_.memory->at(packet.va, packet.dma_bytes);
  }
  if (message_.into != nullptr) return true;
  refuse(wire::kSyndromeNakRemoteAccess, QpFault::refused_access);
  return false;
}

bool Responder::take_receive() {
  receive_ = Receive{};
  if (resources_.receives == nullptr || resources_.receives->take(receive_)) return true;
  ++counters_.out_of_buffer;
  refuse(static_cast<uint8_t>(wire::kSyndromeRnr | rnr_timer_), QpFault::none);
  return false;
}

Responder::Step Responder::accept_carrier(const wire::Packet& packet, const wire::Shape& shape, Delivered& delivered) {
  const Open kind = shape.role == Role::send ? Open::send : Open::write;
  const bool fits_sequence = shape.begins ? open_ == Open::nothing : open_ == kind;
  const bool fits_mtu = shape.ends ? packet.payload_bytes <= path_mtu() : packet.payload_bytes == path_mtu();
  if (!fits_sequence || !fits_mtu) return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
  if (shape.begins && !begin_message(packet, shape)) return Step::refused;
  if (kind == Open::send) {
    if (packet.payload_bytes > receive_.bytes - message_.received) {
      return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
    }
    if (receive_.into != nullptr) message_.into = receive_.into;
  } else {
    const uint32_t left = message_.bytes - message_.received;
    if (shape.ends ? packet.payload_bytes != left : packet.payload_bytes >= left) {
      return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
    }
    if (shape.has.imm && !take_receive()) return Step::refused;
  }
  store(packet);
  message_.received += packet.payload_bytes;
  open_ = shape.ends ? Open::nothing : kind;
  acknowledge_due_ = acknowledge_due_ || packet.ack_req;
  advance_by(1);
  if (!shape.ends) return Step::taken;

  msn_ = advance(msn_, 1);
  delivered.va = message_va_;
  delivered.is_atomic = false;
  delivered.bytes = message_.received;
  delivered.has_imm = shape.has.imm;
  delivered.imm = packet.imm;
  delivered.is_send = kind == Open::send;
  delivered.invalidates = shape.has.ieth;
  delivered.invalidated_rkey = shape.has.ieth ? packet.rkey : 0;
  delivered.receive = delivered.is_send || delivered.has_imm ? receive_.mark : 0;
  delivered.payload = shape.begins ? packet.payload : nullptr;
  if (kind == Open::write) ++counters_.rx_write_requests;
  if (delivered.has_imm || delivered.is_send) {
    ++counters_.rx_messages;
    counters_.rx_payload_bytes += message_.received;
  }
  return Step::whole;
}

void Responder::store(const wire::Packet& packet) {
  if (message_.into == nullptr || packet.payload_bytes == 0) return;
  if (packet.payload != nullptr) {
    std::memcpy(message_.into + message_.received, packet.payload, packet.payload_bytes);
  } else {
    std::memset(message_.into + message_.received, wire::kPatternByte, packet.payload_bytes);
  }
}

Responder::Replies& Responder::replies() {
  if (replies_ == nullptr) replies_ = std::make_unique<Replies>();
  return *replies_;
}

// False: as many wait as may; the peer asks again.
bool Responder::reply(const Reply& made) {
  Replies& all = replies();
  // Room for as many again: duplicates are answered behind what still waits.
  if (all.queue.empty()) all.queue.resize(std::bit_ceil(2 * reply_limit_));
  if (all.pending == all.queue.size()) return false;
  all.queue[(all.head + all.pending++) & (all.queue.size() - 1)] = made;
  return true;
}

// False: outside of what the peer may read.
bool Responder::find_read(const wire::Packet& packet, Reply& made) {
  made.is_read = true;
  made.psn = packet.psn;
  made.bytes = packet.dma_bytes;
  made.packets = packet.dma_bytes == 0 ? 1 : ((packet.dma_bytes - 1) >> mtu_shift_) + 1;
  if (packet.dma_bytes == 0 || packet.rkey == resources_.pattern_rkey) return true;
  if (resources_.memory == nullptr || packet.rkey != resources_.memory->rkey()) return false;
  made.source = resources_.memory->at(packet.va, packet.dma_bytes);
  return made.source != nullptr;
}

Responder::Step Responder::accept_read(const wire::Packet& packet) {
  Reply made;
  if (!find_read(packet, made)) return refuse(wire::kSyndromeNakRemoteAccess, QpFault::refused_access);
  if (open_ != Open::nothing || made.packets > kMostPacketsPerRequest) {
    return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
  }
  msn_ = advance(msn_, 1);  // a READ counts as it begins
  made.msn = msn_;
  // More at once than were agreed on is the peer's mistake (9.7.4.1.2).
  if (replies().pending >= reply_limit_ || !reply(made)) {
    return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
  }
  ++counters_.rx_read_requests;
  return advance_by(made.packets);
}

Responder::Step Responder::accept_atomic(const wire::Packet& packet, Delivered& delivered) {
  if (open_ != Open::nothing || packet.va % kAtomicOperandBytes != 0) {
    return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
  }
  std::array<uint8_t, kAtomicOperandBytes> forgotten;
  forgotten.fill(wire::kPatternByte);
  const bool on_pattern = packet.rkey == resources_.pattern_rkey;
  uint8_t* at = on_pattern ? forgotten.data() : nullptr;
  if (!on_pattern && resources_.memory != nullptr && packet.rkey == resources_.memory->rkey()) {
    at = resources_.memory->at(packet.va, kAtomicOperandBytes);
  }
  if (at == nullptr) return refuse(wire::kSyndromeNakRemoteAccess, QpFault::refused_access);
  if (replies().pending >= reply_limit_) return refuse(wire::kSyndromeNakInvalidRequest, QpFault::refused_request);
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  Reply made;
  made.psn = packet.psn;
  made.original = value;
  if (packet.opcode == Opcode::fetch_add) {
    value += packet.swap_add;
  } else if (value == packet.compare) {
    value = packet.swap_add;
  }
  std::memcpy(at, &value, sizeof value);
  msn_ = advance(msn_, 1);
  made.msn = msn_;
  Replies& all = replies();
  if (all.atomics.size() < reply_limit_) {
    all.atomics.push_back(made);
  } else {
    all.atomics[all.next_atomic++ % reply_limit_] = made;
  }
  reply(made);
  ++counters_.rx_atomic_requests;
  advance_by(1);
  if (!on_pattern) return Step::taken;
  delivered = Delivered{};
  delivered.va = packet.va;
  delivered.is_atomic = true;
  return Step::whole;
}

}  // namespace etloop
