// Requester: builds packets of posted requests, and retransmits them.
#include "qp/requester.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace etloop {

using wire::Opcode;
using wire::psn_distance;

namespace {

constexpr uint32_t advance(uint32_t psn, uint32_t by) { return (psn + by) & wire::kPsnMask; }

// The opcodes of a message of several packets, and of a single one.
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

// Number of PSNs that a run takes.
uint32_t span_of(const PacketRun& run, uint32_t path_mtu) {
  if (run.head.opcode != Opcode::read_request || run.head.dma_bytes == 0) return run.count;
  return (run.head.dma_bytes + path_mtu - 1) / path_mtu;
}

}  // namespace

Requester::Requester(uint32_t remote_qpn, FlowId flow, const TransportSettings& params, FlowRecord& counters,
                     std::pmr::memory_resource& memory)
    : counters_(counters),
      una_(params.recovery.initial_psn & wire::kPsnMask),
      next_psn_(una_),
      sent_end_(una_),
      asked_end_(una_),
      path_mtu_(params.path_mtu_bytes),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu_bytes))),
      selective_(params.recovery.selective_repeat ? std::make_unique<Selective>(params) : nullptr),
      requests_(una_, mtu_shift_, memory),
      remote_qpn_(remote_qpn),
      flow_(flow),
      timer_(params, remote_qpn),
      reorders_(params.recovery.accept_out_of_order),
      ack_every_limit_(params.ack_every_packets),
      rnr_retry_limit_(params.recovery.rnr_retry_limit),
      outstanding_limit_(std::max(1U, params.recovery.outstanding_reads)) {
  set_window(params.window_packets == 0 ? 64 : params.window_packets);
}

void Requester::set_window(uint32_t packets) {
  window_ = packets == 0 ? 1 : packets;
  if (selective_ != nullptr) window_ = std::min(window_, kReorderWindow);
  // At least two acknowledgements per window: otherwise the window would close and wait for the timeout.
  ack_every_ = std::max(1U, std::min(ack_every_limit_, window_ / 2));
}

PacketRun Requester::next_run(uint32_t max_run) {
  if (!any_lost()) {
    const uint32_t room = window_ - static_cast<uint32_t>(psn_distance(next_psn_, una_));
    PacketRun run = build(requests_.next(), next_psn_, room, max_run);
    run.followed = advance(next_psn_, span_of(run, path_mtu_)) != requests_.end_psn();
    run.fills_window = run.count >= room;
    return run;
  }
  // The last missing packet requests an acknowledgement, so that its loss is noticed before the timeout.
  const Scoreboard::Range missing = selective_->board.first_lost();
  PacketRun run = build(requests_.at_psn(missing.psn), missing.psn, std::max(1U, missing.count - 1), max_run);
  if (missing.count <= span_of(run, path_mtu_)) run.head.ack_req = true;
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

const WorkRequest* Requester::run_sent(const PacketRun& run, Nanos now) {
  counters_.tx_packets += run.count;
  if (una_ == sent_end_) timer_.note_start(now);
  if (next_psn_ == una_) timer_.restart(now);
  const uint32_t span = span_of(run, path_mtu_);
  const uint32_t end = advance(run.head.psn, span);
  if (selective_ != nullptr) {
    const bool again = any_lost();
    const bool alone = selective_->board.under_way() == 0;
    if (alone) timer_.restart(now);
    selective_->board.sent(run.head.psn, span);
    if (const uint32_t asked = last_asked(run); asked != kNoPacket) {
      selective_->board.note_asked();
      selective_->probe.note_asked(now);
      // If packets may be reordered, or for a probe, the loss of the earlier transmission is not certain.
      if (again && alone && probing_ == 0 && !reorders_) selective_->repeated.note_sent(asked, now);
    }
    if (again) {
      counters_.retransmitted_packets += run.count;
      probing_ -= std::min<uint8_t>(probing_, 1);
      return nullptr;
    }
  }
  WorkRequest& request = requests_.next();
  if (const uint32_t asked = last_asked(run); asked != kNoPacket) {
    asked_end_ = waits_for_response(request.kind) ? end : advance(asked, 1);
  }
  const bool begins = run.head.psn == request.first_psn && sent_end_ == run.head.psn;
  if (psn_distance(end, sent_end_) > 0) {
    const auto fresh = static_cast<uint32_t>(psn_distance(end, sent_end_));
    if (span == run.count) counters_.retransmitted_packets += run.count - std::min(fresh, run.count);
    sent_end_ = end;
    if (!waits_for_response(request.kind)) {
      if (const uint32_t asked = last_asked(run); asked != kNoPacket) timer_.note_sent(asked, now);
    }
  } else {
    counters_.retransmitted_packets += run.count;
  }
  next_psn_ = end;
  if (psn_distance(end, request.first_psn) == static_cast<int32_t>(request.packets)) requests_.advance();
  if (!begins) return nullptr;
  if (request.kind == WorkKind::probe) return &request;
  if (request.kind != WorkKind::clear_to_send) ++counters_.tx_messages;
  if (request.kind != WorkKind::clear_to_send && !waits_for_response(request.kind)) {
    counters_.tx_payload_bytes += request.bytes;
  }
  return &request;
}

Nanos Requester::deadline() const {
  if (holding_) return hold_until_ns_;
  if (fault_ != QpFault::none || sent_end_ == una_) return kNever;
  if (any_lost() && selective_->board.under_way() == 0) return kNever;  // all lost, waiting to be retransmitted
  if (selective_ == nullptr || !selective_->board.answer_expected()) return timer_.deadline();
  return std::min(timer_.deadline(), selective_->probe.due_ns(timer_.patience_ns()));
}

bool Requester::may_retry(Nanos now) {
  if (timer_.may_retry(now)) return true;
  fail(reported_ != QpFault::none ? reported_ : QpFault::retries_exceeded);
  return false;
}

void Requester::on_timer(Nanos now) {
  if (deadline() > now) return;
  const bool was_timeout = timer_.deadline() <= now;
  if (holding_ || was_timeout) timer_.restart(now);
  if (selective_ != nullptr) selective_->probe.restart(now);
  if (holding_) {
    holding_ = false;
    timer_.note_start(now);
    return;
  }
  if (!was_timeout) {
    ++counters_.tail_probes;
    selective_->probe.note_probe();
    probe_both_ends();
    return;
  }
  ++counters_.local_ack_timeout_err;
  if (timer_.adaptive()) ++(timer_.is_short() ? counters_.roce_adp_retrans : counters_.roce_adp_retrans_to);
  timer_.expire();
  if (!may_retry(now)) return;
  if (selective_ != nullptr) {
    probe_both_ends();
  } else {
    rewind(una_);
  }
}

// Retransmit the oldest and the newest packet: their answers show what is missing in between.
void Requester::probe_both_ends() {
  timer_.forget_sent();
  selective_->board.doubt(una_);  // after a READ it may have arrived, and its acknowledgement be lost
  probing_ = 1;
  if (uint32_t newest = 0; selective_->board.newest(newest) && newest != una_) {
    selective_->board.lose(newest, 1);
    ++probing_;
  }
}

void Requester::fail(QpFault fault) {
  fault_ = fault;
  holding_ = false;
  if (selective_ != nullptr) selective_->board = Scoreboard();
  requests_.flush();
}

}  // namespace etloop
