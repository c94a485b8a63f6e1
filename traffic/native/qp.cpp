#include "qp.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace etloop {

using wire::Opcode;
using wire::psn_distance;

namespace {

constexpr size_t kInitialRing = 16;
constexpr uint32_t kMaxBackoffShift = 10;

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

template <typename T>
void put_le(uint8_t* at, T value) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

const char* describe(QpFault fault) {
  switch (fault) {
    case QpFault::none: return "no fault";
    case QpFault::retries_exceeded: return "no acknowledgement after the last retry";
    case QpFault::remote_access: return "the peer answered with a remote access error";
    case QpFault::remote_invalid_request: return "the peer answered with an invalid request error";
    case QpFault::unexpected_syndrome: return "the peer answered with a syndrome that is not understood";
  }
  return "unknown fault";
}

Qp::Qp(uint32_t local_qpn, uint32_t remote_qpn, FlowId flow, const TransportParams& params, uint32_t accepted_rkey)
    : local_qpn_(local_qpn),
      remote_qpn_(remote_qpn),
      flow_(flow),
      path_mtu_(params.path_mtu),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu))),
      accepted_rkey_(accepted_rkey),
      window_(0),
      ack_every_(0),
      ack_every_limit_(params.ack_every),
      timeout_ns_(params.timeout_ns),
      retry_limit_(params.retry_limit),
      ring_(kInitialRing),
      una_(params.initial_psn & wire::kPsnMask),
      next_psn_(una_),
      sent_end_(una_),
      post_psn_(una_),
      expected_psn_(una_) {
  counters.local_qpn = local_qpn;
  counters.remote_qpn = remote_qpn;
  set_window(params.window_packets == 0 ? 64 : params.window_packets);
}

void Qp::set_window(uint32_t packets) {
  window_ = packets == 0 ? 1 : packets;
  // At least two acknowledgements per window, or the window would close and wait for the timeout.
  ack_every_ = std::max(1U, std::min(ack_every_limit_, window_ / 2));
}

void Qp::post(const WorkRequest& request) {
  if (tail_ - completed_ == ring_.size()) {
    std::vector<WorkRequest> larger(ring_.size() * 2);
    for (uint64_t i = completed_; i < tail_; ++i) larger[i & (larger.size() - 1)] = entry(i);
    ring_ = std::move(larger);
  }
  WorkRequest& slot = entry(tail_);
  slot = request;
  slot.first_psn = post_psn_;
  slot.packets = request.bytes == 0 ? 1 : (request.bytes + path_mtu_ - 1) >> mtu_shift_;
  post_psn_ = advance(post_psn_, slot.packets);
  ++tail_;
}

bool Qp::has_run() const {
  return sending_ != tail_ && fault_ == QpFault::none &&
         static_cast<uint32_t>(psn_distance(next_psn_, una_)) < window_;
}

PacketRun Qp::next_run(uint32_t max_run) {
  const WorkRequest& request = entry(sending_);
  const auto offset = static_cast<uint32_t>(psn_distance(next_psn_, request.first_psn));
  const uint32_t room = window_ - static_cast<uint32_t>(psn_distance(next_psn_, una_));
  assert(offset < request.packets && room > 0);

  PacketRun run;
  run.flow = flow_;
  run.ack_every = ack_every_;
  wire::Packet& head = run.head;
  head.dest_qpn = remote_qpn_;
  head.psn = next_psn_;
  head.payload_bytes = path_mtu_;
  const bool first = offset == 0;
  const bool last = offset + 1 == request.packets;
  if (first) {
    head.va = request.va;
    head.rkey = request.rkey;
    head.dma_bytes = request.bytes;
  }
  if (last) {
    head.payload_bytes = request.bytes - (offset << mtu_shift_);
    head.ack_req = true;
    if (request.kind == WorkKind::clear_to_send) {
      head.opcode = Opcode::write_only;
      put_le(inline_ + 0, request.grant_va);
      put_le(inline_ + 8, static_cast<uint64_t>(request.grant_bytes));
      put_le(inline_ + 16, request.grant_rkey);
      put_le(inline_ + 48, uint32_t{1});
      put_le(inline_ + 52, request.grant_tag);
      put_le(inline_ + 56, request.index);
      head.payload = inline_;
    } else if (request.kind == WorkKind::data) {
      head.opcode = first ? Opcode::write_only_imm : Opcode::write_last_imm;
      head.imm = request.imm;
    } else {
      head.opcode = first ? Opcode::write_only : Opcode::write_last;
    }
    return run;
  }
  if (first) {
    head.opcode = Opcode::write_first;
  } else {
    head.opcode = Opcode::write_middle;
    run.count = std::min({request.packets - 1 - offset, room, std::max(1U, max_run)});
  }
  head.ack_req = advance(next_psn_, 1) % ack_every_ == 0;
  return run;
}

const WorkRequest* Qp::run_sent(const PacketRun& run, Nanos now) {
  if (next_psn_ == una_) start_timer(now);
  const WorkRequest& request = entry(sending_);
  const bool begins = run.head.psn == request.first_psn && sent_end_ == run.head.psn;
  const uint32_t end = advance(next_psn_, run.count);
  counters.tx_packets += run.count;
  if (psn_distance(end, sent_end_) > 0) {
    const auto fresh = static_cast<uint32_t>(psn_distance(end, sent_end_));
    counters.retransmitted_packets += run.count - std::min(fresh, run.count);
    sent_end_ = end;
  } else {
    counters.retransmitted_packets += run.count;
  }
  next_psn_ = end;
  if (psn_distance(end, request.first_psn) == static_cast<int32_t>(request.packets)) ++sending_;
  if (!begins) return nullptr;
  if (carries_data(request.kind)) {
    ++counters.tx_messages;
    counters.tx_payload_bytes += request.bytes;
  }
  return &request;
}

void Qp::acknowledge_through(uint32_t psn, Nanos now) {
  const uint32_t end = advance(psn, 1);
  if (psn_distance(end, una_) <= 0) return;
  una_ = end;
  retries_ = 0;
  start_timer(now);
  while (head_ != tail_) {
    const WorkRequest& oldest = entry(head_);
    if (psn_distance(advance(oldest.first_psn, oldest.packets), una_) > 0) break;
    ++head_;
  }
  // After a rewind, the acknowledgement of earlier transmissions can overtake what would be sent again.
  if (psn_distance(next_psn_, una_) < 0) rewind(una_);
  if (sending_ < head_) sending_ = head_;
}

void Qp::rewind(uint32_t psn) {
  next_psn_ = psn;
  sending_ = head_;
  while (sending_ != tail_) {
    const WorkRequest& candidate = entry(sending_);
    if (psn_distance(advance(candidate.first_psn, candidate.packets), psn) > 0) break;
    ++sending_;
  }
}

void Qp::on_acknowledge(const wire::Packet& packet, Nanos now) {
  if (fault_ != QpFault::none) return;
  // Only what was sent and not yet acknowledged can be spoken of; anything else is a stale or foreign packet.
  if (psn_distance(packet.psn, sent_end_) >= 0) {
    // A NAK may name the first PSN not sent only after a rewind race; there is nothing to resend then.
    return;
  }
  const uint8_t syndrome = packet.syndrome;
  if ((syndrome & 0xE0) == 0x00) {
    ++counters.acks_rx;
    acknowledge_through(packet.psn, now);
    return;
  }
  ++counters.naks_rx;
  if (psn_distance(packet.psn, una_) < 0) return;
  switch (syndrome) {
    case wire::kSyndromeNakSequence:
      if (packet.psn != una_) acknowledge_through(advance(packet.psn, wire::kPsnMask), now);
      rewind(packet.psn);
      start_timer(now);
      return;
    case wire::kSyndromeNakInvalidRequest: fault_ = QpFault::remote_invalid_request; return;
    case wire::kSyndromeNakRemoteAccess: fault_ = QpFault::remote_access; return;
    default: fault_ = QpFault::unexpected_syndrome; return;
  }
}

bool Qp::pop_completed(WorkRequest& done) {
  if (completed_ == head_) return false;
  done = entry(completed_++);
  return true;
}

void Qp::reject(uint8_t syndrome) {
  nak_due_ = true;
  nak_sent_ = true;
  nak_syndrome_ = syndrome;
}

bool Qp::on_request(const wire::Packet& packet, Delivered& delivered) {
  ++counters.rx_packets;
  const int32_t ahead = psn_distance(packet.psn, expected_psn_);
  if (ahead < 0) {
    ++counters.duplicates_rx;
    acknowledge_due_ = true;
    return false;
  }
  if (ahead > 0) {
    ++counters.out_of_order_rx;
    if (!nak_sent_) reject(wire::kSyndromeNakSequence);
    return false;
  }

  const bool begins = packet.opcode == Opcode::write_first || packet.opcode == Opcode::write_only ||
                      packet.opcode == Opcode::write_only_imm;
  const bool ends = packet.opcode == Opcode::write_last || packet.opcode == Opcode::write_last_imm ||
                    packet.opcode == Opcode::write_only || packet.opcode == Opcode::write_only_imm;
  if (begins) {
    if (in_message_) {
      reject(wire::kSyndromeNakInvalidRequest);
      return false;
    }
    // A write of no bytes is not checked against a memory region (9.7.4.2: zero-length RDMA WRITE).
    if (packet.dma_bytes != 0 && packet.rkey != accepted_rkey_) {
      reject(wire::kSyndromeNakRemoteAccess);
      return false;
    }
    message_va_ = packet.va;
    message_bytes_ = packet.dma_bytes;
    message_received_ = 0;
  } else if (!in_message_) {
    reject(wire::kSyndromeNakInvalidRequest);
    return false;
  }
  const uint32_t left = message_bytes_ - message_received_;
  const bool fits = ends ? packet.payload_bytes == left && packet.payload_bytes <= path_mtu_
                         : packet.payload_bytes == path_mtu_ && path_mtu_ < left;
  if (!fits) {
    reject(wire::kSyndromeNakInvalidRequest);
    return false;
  }

  // A NAK found due in this batch but not yet sent still holds: what came ahead of its turn was dropped.
  nak_sent_ = nak_due_;
  expected_psn_ = advance(expected_psn_, 1);
  message_received_ += packet.payload_bytes;
  in_message_ = !ends;
  acknowledge_due_ = acknowledge_due_ || packet.ack_req;
  if (!ends) return false;
  msn_ = (msn_ + 1) & wire::kPsnMask;
  delivered.va = message_va_;
  delivered.bytes = message_bytes_;
  delivered.has_imm = packet.opcode == Opcode::write_last_imm || packet.opcode == Opcode::write_only_imm;
  delivered.imm = packet.imm;
  delivered.payload = begins ? packet.payload : nullptr;
  if (delivered.has_imm) {
    ++counters.rx_messages;
    counters.rx_payload_bytes += message_bytes_;
  }
  return true;
}

PacketRun Qp::acknowledgement() const {
  PacketRun run;
  run.flow = flow_;
  run.head.opcode = Opcode::acknowledge;
  run.head.dest_qpn = remote_qpn_;
  run.head.msn = msn_;
  if (nak_due_) {
    run.head.psn = expected_psn_;
    run.head.syndrome = nak_syndrome_;
  } else {
    run.head.psn = advance(expected_psn_, wire::kPsnMask);
    run.head.syndrome = wire::kSyndromeAck;
  }
  return run;
}

void Qp::acknowledgement_sent() {
  if (nak_due_) {
    ++counters.naks_tx;
  } else {
    ++counters.acks_tx;
  }
  nak_due_ = false;
  acknowledge_due_ = false;
}

Nanos Qp::deadline() const {
  if (fault_ != QpFault::none || sent_end_ == una_) return kNever;
  return timer_base_ + (timeout_ns_ << std::min(retries_, kMaxBackoffShift));
}

void Qp::on_timeout(Nanos now) {
  ++counters.timeouts;
  if (retries_ >= retry_limit_) {
    fault_ = QpFault::retries_exceeded;
    return;
  }
  ++retries_;
  rewind(una_);
  start_timer(now);
}

}  // namespace etloop
