// Sending: posted requests to packets, and the same packets again.
#include "qp/requester.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace etloop {

using wire::Opcode;
using wire::psn_distance;

namespace {

constexpr size_t kFirstRing = 4;
constexpr uint32_t kMostDoublings = 20;
constexpr Nanos kTimeBaseNs = 4096;  // timeouts are 4.096 us times a power of two

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

// The opcodes of a message of several packets and of one alone.
struct Forms {
  Opcode first, middle, last, only;
};

constexpr Forms forms(WorkKind kind) {
  switch (kind) {
    case WorkKind::data:
    case WorkKind::write_imm:
      return {Opcode::write_first, Opcode::write_middle, Opcode::write_last_imm, Opcode::write_only_imm};
    case WorkKind::clear_to_send:
    case WorkKind::probe:
    case WorkKind::write: return {Opcode::write_first, Opcode::write_middle, Opcode::write_last, Opcode::write_only};
    case WorkKind::send: return {Opcode::send_first, Opcode::send_middle, Opcode::send_last, Opcode::send_only};
    case WorkKind::send_imm:
      return {Opcode::send_first, Opcode::send_middle, Opcode::send_last_imm, Opcode::send_only_imm};
    case WorkKind::send_invalidate:
      return {Opcode::send_first, Opcode::send_middle, Opcode::send_last_invalidate, Opcode::send_only_invalidate};
    case WorkKind::read: return {Opcode::read_request, Opcode::read_request, Opcode::read_request, Opcode::read_request};
    case WorkKind::fetch_add: return {Opcode::fetch_add, Opcode::fetch_add, Opcode::fetch_add, Opcode::fetch_add};
    case WorkKind::compare_swap:
      return {Opcode::compare_swap, Opcode::compare_swap, Opcode::compare_swap, Opcode::compare_swap};
  }
  return {Opcode::write_first, Opcode::write_middle, Opcode::write_last, Opcode::write_only};
}

constexpr bool is_atomic(WorkKind kind) { return kind == WorkKind::fetch_add || kind == WorkKind::compare_swap; }

}  // namespace

Requester::Requester(uint32_t remote_qpn, FlowId flow, const TransportParams& params, FlowRecord& counters,
                     std::pmr::memory_resource& memory)
    : counters_(counters),
      una_(params.initial_psn & wire::kPsnMask),
      next_psn_(una_),
      sent_end_(una_),
      selective_(params.selective_repeat),
      adaptive_(params.adaptive_timeout),
      path_mtu_(params.path_mtu),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu))),
      ring_(&memory),
      remote_qpn_(remote_qpn),
      flow_(flow),
      timeout_ns_(params.timeout_ns),
      timeout_floor_ns_(std::min(params.timeout_floor_ns, params.timeout_ns)),
      post_psn_(una_),
      examined_to_(una_),
      recovered_to_(una_),
      ack_every_limit_(params.ack_every),
      retry_limit_(params.retry_limit),
      rnr_retry_limit_(params.rnr_retry),
      outstanding_limit_(std::max(1U, params.max_rd_atomic)) {
  set_window(params.window_packets == 0 ? 64 : params.window_packets);
}

void Requester::set_window(uint32_t packets) {
  window_ = packets == 0 ? 1 : packets;
  if (selective_) window_ = std::min(window_, kReorderWindow);
  // At least two acknowledgements per window, or the window would close and wait for the timeout.
  ack_every_ = std::max(1U, std::min(ack_every_limit_, window_ / 2));
}

void Requester::post(const WorkRequest& request) {
  if (ring_.empty()) ring_.resize(kFirstRing);
  if (tail_ - completed_ == ring_.size()) {
    std::pmr::vector<WorkRequest> larger(ring_.size() * 2, ring_.get_allocator());
    for (uint64_t i = completed_; i < tail_; ++i) larger[i & (larger.size() - 1)] = entry(i);
    ring_ = std::move(larger);
  }
  WorkRequest& slot = entry(tail_);
  slot = request;
  if (is_atomic(request.kind)) slot.bytes = kAtomicOperandBytes;
  slot.first_psn = post_psn_;
  slot.packets = slot.bytes == 0 ? 1 : (slot.bytes + path_mtu_ - 1) >> mtu_shift_;
  assert(slot.packets <= kMostPacketsPerRequest);
  post_psn_ = advance(post_psn_, slot.packets);
  if (waits_for_response(request.kind)) ++waiting_;
  ++tail_;
  if (fault_ != QpFault::none) fail(fault_);  // it goes the way of the others
}

// The posted request that a sequence number belongs to; requires one.
uint64_t Requester::position_of(uint32_t psn) const {
  uint64_t position = head_;
  while (psn_distance(advance(entry(position).first_psn, entry(position).packets), psn) <= 0) ++position;
  return position;
}

PacketRun Requester::next_run(uint32_t max_run) {
  if (resend_.empty()) {
    const uint32_t room = window_ - static_cast<uint32_t>(psn_distance(next_psn_, una_));
    return build(entry(sending_), next_psn_, room, max_run);
  }
  // The last of what is missing asks for an acknowledgement, so that its loss is noticed before the timeout.
  const PsnRange missing = resend_.front();
  PacketRun run = build(entry(position_of(missing.psn)), missing.psn, std::max(1U, missing.count - 1), max_run);
  if (missing.count <= span_of(run)) run.head.ack_req = true;
  return run;
}

void Requester::put_clear_to_send(const WorkRequest& request) {
  put_grant({request.grant_va, request.grant_bytes, request.grant_rkey, request.grant_tag, request.index}, inline_);
}

PacketRun Requester::build(const WorkRequest& request, uint32_t psn, uint32_t room, uint32_t max_run) {
  const auto offset = static_cast<uint32_t>(psn_distance(psn, request.first_psn));
  assert(offset < request.packets && room > 0);
  const Forms form = forms(request.kind);
  const bool first = offset == 0;
  const bool last = offset + 1 == request.packets;

  PacketRun run;
  run.flow = flow_;
  run.ack_every = ack_every_;
  wire::Packet& head = run.head;
  head.dest_qpn = remote_qpn_;
  head.psn = psn;
  if (waits_for_response(request.kind)) {
    head.opcode = form.only;
    head.ack_req = true;
    head.va = request.va + (uint64_t{offset} << mtu_shift_);
    head.rkey = request.rkey;
    head.swap_add = request.swap_add;
    head.compare = request.compare;
    if (request.kind == WorkKind::read) head.dma_bytes = request.bytes - (offset << mtu_shift_);
    return run;
  }
  head.opcode = first ? (last ? form.only : form.first) : (last ? form.last : form.middle);
  head.payload_bytes = last ? request.bytes - (offset << mtu_shift_) : path_mtu_;
  if (request.source != nullptr) head.payload = request.source + (size_t{offset} << mtu_shift_);
  const wire::Extensions has = wire::shape(head.opcode).has;
  if (has.reth) {
    head.va = request.va;
    head.rkey = request.rkey;
    head.dma_bytes = request.bytes;
  }
  if (has.imm) head.imm = request.kind == WorkKind::data ? request.bytes : request.imm;
  if (has.ieth) head.rkey = request.rkey;
  if (last) {
    head.ack_req = true;
    if (request.kind == WorkKind::clear_to_send) {
      put_clear_to_send(request);
      head.payload = inline_;
    }
    return run;
  }
  if (head.opcode == Opcode::write_middle && head.payload == nullptr) {
    run.count = std::min({request.packets - 1 - offset, room, std::max(1U, max_run)});
  }
  head.ack_req = advance(psn, 1) % ack_every_ == 0;
  return run;
}

// How many sequence numbers a run takes.
uint32_t Requester::span_of(const PacketRun& run) const {
  if (run.head.opcode != Opcode::read_request || run.head.dma_bytes == 0) return run.count;
  return (run.head.dma_bytes + path_mtu_ - 1) >> mtu_shift_;
}

const WorkRequest* Requester::run_sent(const PacketRun& run, Nanos now) {
  counters_.tx_packets += run.count;
  if (una_ == sent_end_) progress_ns_ = now;
  if (next_psn_ == una_) timer_base_ = now;
  const uint32_t span = span_of(run);
  const uint32_t end = advance(run.head.psn, span);
  if (!resend_.empty()) {
    counters_.retransmitted_packets += run.count;
    PsnRange& missing = resend_.front();
    if (missing.count <= span) {
      resend_.erase(resend_.begin());
    } else {
      missing = {end, missing.count - span};
    }
    return nullptr;
  }
  WorkRequest& request = entry(sending_);
  const bool begins = run.head.psn == request.first_psn && sent_end_ == run.head.psn;
  if (psn_distance(end, sent_end_) > 0) {
    const auto fresh = static_cast<uint32_t>(psn_distance(end, sent_end_));
    if (span == run.count) counters_.retransmitted_packets += run.count - std::min(fresh, run.count);
    sent_end_ = end;
    if (!waits_for_response(request.kind)) {
      if (const uint32_t asked = last_asked(run); asked != kNoPacket && sample_count_ < samples_.size()) {
        samples_[(sample_head_ + sample_count_++) % samples_.size()] = {asked, now};
      }
    }
  } else {
    counters_.retransmitted_packets += run.count;
  }
  next_psn_ = end;
  if (psn_distance(end, request.first_psn) == static_cast<int32_t>(request.packets)) {
    if (waits_for_response(request.kind)) ++outstanding_;
    ++sending_;
  }
  if (!begins) return nullptr;
  if (request.kind == WorkKind::probe) return &request;
  if (request.kind != WorkKind::clear_to_send) ++counters_.tx_messages;
  if (request.kind != WorkKind::clear_to_send && !waits_for_response(request.kind)) {
    counters_.tx_payload_bytes += request.bytes;
  }
  return &request;
}

bool Requester::pop_completed(WorkRequest& done) {
  if (completed_ == head_) return false;
  done = entry(completed_++);
  return true;
}

// The wait before the next retry: the spec's fixed timeout, or from what round trips took, doubling in silence. It stays
// doubled until a round trip is measured again (RFC 6298, 5.7): what is acknowledged after a resend says nothing of how long
// that took, and where round trips outgrew the wait, a wait that began anew would resend every window before its answer.
Nanos Requester::wait_ns() const {
  if (!adaptive_) return timeout_ns_;
  Nanos first_ns = smoothed_rtt_ns_ < 0 ? 0 : smoothed_rtt_ns_ + 4 * rtt_deviation_ns_;
  if (first_ns == 0 && timeout_floor_ns_ == 0) first_ns = timeout_ns_;
  first_ns = std::min(std::max(first_ns, timeout_floor_ns_), timeout_ns_);
  if (first_ns > timeout_floor_ns_) {
    Nanos step_ns = kTimeBaseNs;
    while (step_ns < first_ns) step_ns *= 2;
    first_ns = step_ns;
  }
  return std::min(timeout_ns_, first_ns << doublings_);
}

Nanos Requester::deadline() const {
  if (holding_) return hold_until_ns_;
  if (fault_ != QpFault::none || sent_end_ == una_) return kNever;
  return timer_base_ + wait_ns();
}

// Another try without progress. Adaptive: as long as all tries together last no longer than the fixed ones would, and never
// fewer of them: time that passed while this end did not run is not the peer's silence.
bool Requester::may_retry(Nanos now) {
  const bool tried_enough = retries_ >= retry_limit_;
  const bool exhausted =
      tried_enough && (!adaptive_ || now - progress_ns_ >= timeout_ns_ * static_cast<Nanos>(retry_limit_));
  if (!exhausted) {
    ++retries_;
    return true;
  }
  fail(QpFault::retries_exceeded);
  return false;
}

void Requester::on_timer(Nanos now) {
  if (deadline() > now) return;
  timer_base_ = now;
  if (holding_) {
    holding_ = false;
    progress_ns_ = now;
    return;
  }
  ++counters_.local_ack_timeout_err;
  if (adaptive_) ++(wait_ns() < timeout_ns_ ? counters_.roce_adp_retrans : counters_.roce_adp_retrans_to);
  doublings_ = std::min(doublings_ + 1, kMostDoublings);
  if (!may_retry(now)) return;
  if (!selective_) {
    rewind(una_);
    return;
  }
  // The oldest and the newest: the answer to both says what is missing between them.
  sample_count_ = 0;
  examined_to_ = una_;
  recovered_to_ = una_;
  resend_.assign(1, {una_, 1});
  const uint32_t newest = advance(sent_end_, wire::kPsnMask);
  if (newest != una_) resend_.push_back({newest, 1});
}

void Requester::fail(QpFault fault) {
  fault_ = fault;
  holding_ = false;
  resend_.clear();
  for (; head_ != tail_; ++head_) entry(head_).flushed = true;
  sending_ = head_;
  waiting_ = 0;
  outstanding_ = 0;
}

}  // namespace etloop
