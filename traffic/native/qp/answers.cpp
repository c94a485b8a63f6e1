// Requester: processing of acknowledgements, NAKs and responses.
#include <algorithm>
#include <cstring>

#include "qp/requester.h"

namespace etloop {

using wire::Opcode;
using wire::psn_distance;

namespace {

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

bool has_bit(const uint8_t* bitmap, uint32_t bit) { return (bitmap[bit / 8] >> (bit % 8) & 1) != 0; }

}  // namespace

AckOutcome Requester::on_answer(const wire::Packet& packet, Nanos now) {
  AckOutcome outcome;
  const bool is_response = wire::shape(packet.opcode).role == wire::Role::response;
  // Count every answer, even a NAK that is obsolete: otherwise it would seem lost in the network.
  if (!is_response) ++((packet.syndrome & wire::kSyndromeKindMask) != 0 ? counters_.naks_rx : counters_.acks_rx);
  // Valid answers refer to packets that were sent and not yet acknowledged; all others are stale or foreign.
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return outcome;
  }
  if (psn_distance(packet.psn, sent_end_) >= 0) {
    ++counters_.stale_answers;
    return outcome;
  }
  if (packet.opcode == Opcode::trimmed_nak) {
    on_trimmed(packet, now, outcome);
  } else if (is_response) {
    on_response(packet, now, outcome);
  } else {
    on_acknowledgement(packet, now, outcome);
  }
  return outcome;
}

void Requester::on_acknowledgement(const wire::Packet& packet, Nanos now, AckOutcome& outcome) {
  if ((packet.syndrome & wire::kSyndromeKindMask) != 0x00) {
    on_nak(packet, now, outcome);
    return;
  }
  outcome.ecn_echo = packet.becn;
  acknowledge_before(advance(packet.psn, 1), now, outcome);
  if (selective_ != nullptr) learn_arrivals(packet, now, outcome);
}

void Requester::on_nak(const wire::Packet& packet, Nanos now, AckOutcome& outcome) {
  if (psn_distance(packet.psn, una_) < 0) {
    ++counters_.stale_answers;
    return;
  }
  const bool progress = packet.psn != una_;
  const bool reached = acknowledge_before(packet.psn, now, outcome);
  const bool is_error = (packet.syndrome & wire::kSyndromeKindMask) != wire::kSyndromeRnr &&
                        packet.syndrome != wire::kSyndromeNakSequence;
  if (!reached && !is_error) return;
  outcome.ecn_echo = packet.becn;
  if ((packet.syndrome & wire::kSyndromeKindMask) == wire::kSyndromeRnr) {
    if (holding_) return;
    ++counters_.rnr_nak_retry_err;
    constexpr uint32_t kForEver = 7;
    if (rnr_retry_limit_ != kForEver && rnr_retries_ >= rnr_retry_limit_) {
      fail(QpFault::rnr_retries_exceeded);
      return;
    }
    ++rnr_retries_;
    recover(packet.psn, now);
    holding_ = true;
    hold_until_ns_ = now + rnr_timer_ns(packet.syndrome & wire::kRnrTimerMask);
    return;
  }
  switch (packet.syndrome) {
    case wire::kSyndromeNakSequence:
      ++counters_.packet_seq_err;
      if (selective_ != nullptr && packet.opcode == Opcode::selective_nak && packet.payload != nullptr) {
        timer_.restart(now);
        learn_arrivals(packet, now, outcome);
        return;
      }
      outcome.nak = true;
      if (progress || may_retry(now)) recover(packet.psn, now);
      return;
    // Anyone who sees a packet can forge these. A peer that sent one is silent from then on: its silence decides.
    case wire::kSyndromeNakInvalidRequest: reported_ = QpFault::remote_invalid_request; return;
    case wire::kSyndromeNakRemoteAccess: reported_ = QpFault::remote_access; return;
    case wire::kSyndromeNakRemoteOperational: reported_ = QpFault::remote_operational; return;
    default: reported_ = QpFault::unexpected_syndrome; return;
  }
}

// False: a response in between is missing, and is requested again.
bool Requester::acknowledge_before(uint32_t end, Nanos now, AckOutcome& outcome) {
  if (psn_distance(end, una_) <= 0) return true;
  const uint32_t reached = requests_.acknowledgeable_to(end, una_);
  advance_to(reached, now, outcome);
  if (reached == end) return true;
  implied_nak(now, outcome);
  return false;
}

void Requester::advance_to(uint32_t end, Nanos now, AckOutcome& outcome) {
  const int32_t moved = psn_distance(end, una_);
  if (moved <= 0) return;
  outcome.packets += static_cast<uint32_t>(moved);
  const uint32_t from = una_;
  una_ = end;
  reported_ = QpFault::none;
  rnr_retries_ = 0;
  timer_.note_progress(now);
  implied_nak_noted_ = false;
  requests_.complete_before(una_, outcome);
  timer_.measure(end, now, outcome.rtt_ns);
  if (selective_ != nullptr) {
    selective_->board.arrived_before(una_);
    selective_->learn_round_trip(from, static_cast<uint32_t>(moved), now, outcome);
  }
  // After a rewind, acknowledgements of earlier transmissions can overtake the retransmission.
  if (psn_distance(next_psn_, una_) < 0) rewind(una_);
}

void Requester::on_response(const wire::Packet& packet, Nanos now, AckOutcome& outcome) {
  if (!requests_.any_responses() || psn_distance(packet.psn, una_) < 0) {
    ++counters_.stale_answers;
    return;
  }
  WorkRequest& request = requests_.at_psn(packet.psn);
  if (!waits_for_response(request.kind)) {  // no request expects it
    ++counters_.stale_answers;
    return;
  }
  // An answered request acknowledges all requests before it.
  if (!acknowledge_before(request.first_psn, now, outcome)) return;
  if (packet.psn != una_) {
    implied_nak(now, outcome);
    return;
  }
  if (!take_response(request, packet)) {
    fail(QpFault::bad_response);
    return;
  }
  advance_to(advance(una_, 1), now, outcome);
}

bool Requester::take_response(WorkRequest& request, const wire::Packet& packet) {
  if (request.kind != WorkKind::read) {
    request.original = packet.original;
    return packet.opcode == Opcode::atomic_acknowledge;
  }
  const auto offset = static_cast<uint32_t>(psn_distance(packet.psn, request.first_psn));
  const bool last = offset + 1 == request.packets;
  const uint32_t expected_bytes = last ? request.bytes - (offset << mtu_shift_) : path_mtu_;
  const wire::Shape& shape = wire::shape(packet.opcode);
  if (packet.opcode == Opcode::atomic_acknowledge || shape.ends != last || packet.payload_bytes != expected_bytes) {
    return false;
  }
  counters_.read_response_bytes += packet.payload_bytes;
  if (request.into == nullptr) return true;
  uint8_t* into = request.into + (size_t{offset} << mtu_shift_);
  if (packet.payload != nullptr) {
    std::memcpy(into, packet.payload, packet.payload_bytes);
  } else {
    std::memset(into, wire::kPatternByte, packet.payload_bytes);
  }
  return true;
}

// A skipped response was lost, or its request was (9.7.5.2.3): request it again, once until the next progress.
void Requester::implied_nak(Nanos now, AckOutcome& outcome) {
  if (implied_nak_noted_) return;
  implied_nak_noted_ = true;
  ++counters_.implied_nak_seq_err;
  outcome.nak = true;
  recover(una_, now);
}

// Retransmit from `psn` on.
void Requester::recover(uint32_t psn, Nanos now) {
  timer_.restart(now);
  if (selective_ == nullptr) {
    rewind(psn);
    return;
  }
  timer_.forget_sent();
  selective_->board.lose(psn, static_cast<uint32_t>(psn_distance(sent_end_, psn)));
}

void Requester::rewind(uint32_t psn) {
  next_psn_ = psn;
  if (psn_distance(asked_end_, psn) > 0) asked_end_ = psn;
  timer_.forget_sent();
  requests_.rewind(psn);
}

// Learn arrivals from a selective NAK: bit i: packet.psn + 1 + i has arrived. An acknowledgement has no information about later
// packets, nor, if packets may be reordered, about the loss of earlier ones.
void Requester::learn_arrivals(const wire::Packet& packet, Nanos now, AckOutcome& outcome) {
  const bool names_packets = packet.opcode == Opcode::selective_nak;
  uint32_t bits = names_packets ? wire::kSelectiveBitmapBytes * 8 : 0;
  while (bits > 0 && !has_bit(packet.payload, bits - 1)) --bits;
  if (psn_distance(advance(packet.psn, bits), sent_end_) >= 0) return;  // refers to packets never sent
  selective_->probe.note_answer(now);
  for (uint32_t bit = 0; bit < bits;) {
    uint32_t end = bit;
    while (end < bits && has_bit(packet.payload, end)) ++end;
    const uint32_t psn = advance(packet.psn, 1 + bit);
    if (end > bit && selective_->board.arrived(psn, end - bit) > 0) {
      timer_.measure_arrived(psn, end - bit, now, outcome.rtt_ns);
      selective_->learn_round_trip(psn, end - bit, now, outcome);
    }
    bit = end + 1;
  }
  if ((reorders_ && !names_packets) || selective_->board.lose_overtaken() == 0) return;
  outcome.nak = true;
  timer_.forget_sent();
}

}  // namespace etloop
