#include "uet/requester.h"

#include <algorithm>

namespace etloop::uet {

using multipath::Departure;
using multipath::PathMark;
using wire::uet::Control;
using wire::uet::ControlType;
using wire::uet::NackCode;
using wire::uet::Request;
using wire::uet::ReturnCode;

namespace {

constexpr uint32_t kMostDoublings = 8;
constexpr Nanos kSpreadStepNs = 50;
constexpr Nanos kLeastRepeatNs = 100'000;
// Unanswered credit requests after which the peer counts as gone.
constexpr uint32_t kMostCreditRequests = 16;

bool has_immediate(const WorkRequest& request) {
  return request.kind == WorkKind::data || request.kind == WorkKind::write_imm;
}

// A 32-bit PSN whose lower 24 bits are the plan's.
uint32_t first_wide_psn(uint32_t initial_psn, uint32_t number) {
  return (initial_psn & wire::kPsnMask) | ((number * 0x9E3779B9U) >> 25 << 24);
}

}  // namespace

PdcState after(PdcState state, PdcEvent event) {
  switch (event) {
    case PdcEvent::sends: return state == PdcState::closed ? PdcState::opening : state;
    case PdcEvent::answered: return state == PdcState::opening ? PdcState::open : state;
    case PdcEvent::rests: return state == PdcState::open ? PdcState::closing : state;
    case PdcEvent::ended: return state == PdcState::closing ? PdcState::closed : state;
  }
  return state;
}

Requester::Requester(uint32_t remote_qpn, multipath::PathStates& paths, const TransportSettings& params, FlowRecord& counters,
                     std::pmr::memory_resource& memory)
    : counters_(counters),
      sender_(remote_qpn, paths, params, counters, memory),
      ordered_(params.multipath.uet.order == DeliveryOrder::sent),
      sends_(params.multipath.uet.sends),
      path_mtu_(params.path_mtu_bytes),
      remote_qpn_(remote_qpn),
      job_id_(params.recovery.initial_psn & wire::kPsnMask),
      psns_(first_wide_psn(params.recovery.initial_psn, remote_qpn)),
      close_after_ns_(params.multipath.uet.close_after_ns) {}

void Requester::attach(PdcIds& ids, uint32_t end) {
  ids_ = &ids;
  end_ = end;
}

void Requester::post(const WorkRequest& asked) {
  WorkRequest request = asked;
  request.msn = next_message_++;
  sender_.post(request);
}

void Requester::open_pdc() {
  ids_->give_back(id_);  // release the previous id only now, so that late answers matched it
  id_ = ids_->take(end_, PdcRole::initiator);
  target_id_ = 0;
  start_psn_ = sender_.packets().next();
  openings_ = 0;
  opening_spread_ns_ = 0;
  change(PdcEvent::sends);
}

// A grant is self-describing; other messages go to a granted address, by which the receiver knows them: in a SEND it is the tag.
wire::uet::StandardRequest Requester::message_of(const Departure& departure) const {
  const WorkRequest& request = *departure.request;
  wire::uet::StandardRequest message;
  wire::uet::RequestStart& start = message.start;
  start.hd = departure.first && has_immediate(request);
  start.som = departure.first;
  start.eom = departure.last;
  start.message_id = request.msn;
  start.job_id = job_id_;
  if (sends_) {
    const bool tagged = request.kind != WorkKind::clear_to_send;
    start.opcode = tagged ? wire::uet::Operation::tagged_send : wire::uet::Operation::send;
    wire::uet::address_queue_pair(start, remote_qpn_);
    message.memory_key = tagged ? request.va : 0;
  } else {
    start.opcode = wire::uet::Operation::write;
    message.buffer_offset = request.va;
    message.memory_key = uint64_t{remote_qpn_} << 32 | request.rkey;
  }
  message.initiator = counters_.local_qpn;
  if (start.hd) message.header_data = request.kind == WorkKind::data ? request.bytes : request.imm;
  message.payload_length = static_cast<uint16_t>(departure.first ? 0 : departure.payload_bytes);
  message.message_offset = departure.first ? 0 : departure.offset_bytes;
  message.message_length = request.bytes;
  return message;
}

wire::uet::PdsType Requester::type_of_requests() const {
  if (credit_.account.is_open()) return ordered_ ? wire::uet::PdsType::rod_cc_request : wire::uet::PdsType::rud_cc_request;
  return ordered_ ? wire::uet::PdsType::rod_request : wire::uet::PdsType::rud_request;
}

void Requester::use_credit(uint64_t window_bytes, uint32_t link_bytes) {
  credit_.link_bytes = link_bytes;
  credit_.full_packet_bytes = link_bytes_of(path_mtu_);
  credit_.account.open(std::max<uint64_t>(window_bytes, credit_.full_packet_bytes));
}

uint32_t Requester::link_bytes_of(uint32_t payload_bytes) const {
  return static_cast<uint32_t>(Request::kBytes + wire::uet::CreditTarget::kBytes + wire::uet::StandardRequest::kBytes) +
         payload_bytes + credit_.link_bytes;
}

bool Requester::on_credit(uint32_t total, Nanos now) {
  credit_.heard_ns = now;
  credit_.asked = 0;
  return credit_.account.granted(total);
}

// Without credit and arrivals, a grant was lost, or the packet that requested it.
Nanos Requester::credit_due_ns() const {
  if (credit_.request_due || !starves()) return kNever;
  const Nanos wait_ns = std::max(kLeastRepeatNs, 4 * sender_.timer().smoothed_rtt_ns());
  return credit_.heard_ns + (wait_ns << std::min(credit_.asked, kMostDoublings));
}

Outgoing Requester::next(uint32_t planes) {
  if (state_ == PdcState::closed) open_pdc();
  const Departure departure = sender_.next(planes);
  Outgoing outgoing;
  Request request;
  request.type = type_of_requests();
  request.retransmitted = departure.again;
  // Without credit no later packet would reveal the loss.
  request.ack_request = departure.asks || departure.last || credit_.account.ends_with(link_bytes_of(departure.payload_bytes));
  request.syn = state_ == PdcState::opening;
  request.psn = psns_.widen(departure.psn);
  // Responses to acknowledged requests may be discarded.
  request.clear_psn_offset = static_cast<int16_t>(wire::psn_distance(sender_.packets().oldest(), departure.psn) - 1);
  request.spdcid = id_;
  if (request.syn) request.psn_offset = static_cast<uint16_t>(wire::psn_distance(departure.psn, start_psn_));
  else request.dpdcid = target_id_;
  if (credit_.account.is_open()) {
    const uint64_t behind_bytes = uint64_t{sender_.waiting_packets() - 1} * credit_.full_packet_bytes;
    request.credit = {0, credit_.account.target(behind_bytes, link_bytes_of(departure.payload_bytes))};
  }
  outgoing.packet.pds = request;
  outgoing.packet.ses = message_of(departure);
  outgoing.packet.payload_bytes = departure.payload_bytes;
  outgoing.packet.payload = departure.payload;
  outgoing.entropy = departure.entropy;
  outgoing.narrow_psn = departure.psn;
  return outgoing;
}

SentRequest Requester::sent(const Outgoing& outgoing, Nanos now) {
  credit_.account.spend(link_bytes_of(outgoing.payload_bytes()));
  credit_.heard_ns = now;
  return sender_.sent(outgoing.narrow_psn, outgoing.entropy, outgoing.asks(), now);
}

// The close command has the PSN after all others.
bool Requester::is_close_answer(const wire::uet::Ack& ack) const {
  return state_ == PdcState::closing && !ack.answers_probe && ack.cack_psn == psns_.widen(sender_.packets().next());
}

void Requester::note_error(ReturnCode code, Nanos now) {
  switch (code) {
    case ReturnCode::null:
    case ReturnCode::ok: return;
    case ReturnCode::bad_key:
    case ReturnCode::bad_job:
    case ReturnCode::bad_process:
    case ReturnCode::bad_index:
    case ReturnCode::bad_address:
    case ReturnCode::bad_generation:
    case ReturnCode::permission_violation: sender_.note_error(QpFault::remote_access, now); return;
    case ReturnCode::unsupported_operation:
    case ReturnCode::unsupported_size:
    case ReturnCode::too_long: sender_.note_error(QpFault::remote_invalid_request, now); return;
    default: sender_.note_error(QpFault::remote_operational, now); return;
  }
}

bool Requester::came_after_failure() {
  if (sender_.fault() == QpFault::none) return false;
  ++counters_.came_after_failure;
  return true;
}

void Requester::answered(uint16_t target_id) {
  if (state_ != PdcState::opening || target_id == 0) return;
  target_id_ = target_id;
  change(PdcEvent::answered);
  if (probe_owed_) sender_.want_probe();
  probe_owed_ = false;
}

AckOutcome Requester::on_ack(const wire::uet::Ack& ack, const wire::uet::Response* response, Nanos now) {
  ++counters_.acks_rx;
  if (came_after_failure()) return {};
  answered(ack.spdcid);
  if (is_close_answer(ack)) {
    change(PdcEvent::ended);
    return {};
  }
  if (!psns_.is_near(ack.cack_psn)) {
    ++counters_.stale_answers;
    return {};
  }
  multipath::ArrivalReport report;
  report.cumulative_psn = WidePsn::narrow(ack.cack_psn);
  report.cause_psn = WidePsn::narrow(ack.cack_psn + static_cast<uint32_t>(int32_t{ack.ack_psn_offset}));
  if (ack.state && ack.state->cc_type == wire::uet::CcType::credit) {
    on_credit(wire::uet::credit_state(ack.state->cc_state).credit, now);
  }
  if (ack.state) {
    report.bitmap_psn = WidePsn::narrow(ack.cack_psn + static_cast<uint32_t>(int32_t{ack.state->sack_psn_offset}));
    report.bitmap = ack.state->sack_bitmap;
  }
  report.answers_probe = ack.answers_probe;
  report.probe_id = ack.probe_opaque;
  report.mark = ack.marked ? PathMark::skip_once : PathMark::none;
  report.names_resend = true;
  report.resent = ack.retransmitted;
  const AckOutcome outcome = sender_.on_report(report, now);
  const multipath::SentPackets& packets = sender_.packets();
  psns_.move_to(packets.oldest());
  sender_.complete_before(packets.oldest());
  if (response != nullptr) note_error(response->return_code, now);
  if (sender_.idle()) rested_ns_ = now;
  return outcome;
}

AckOutcome Requester::on_nack(const wire::uet::Nack& nack, Nanos now) {
  AckOutcome outcome;
  ++counters_.naks_rx;
  if (came_after_failure()) return outcome;
  answered(nack.spdcid);
  // All requests were acknowledged: late copies that arrived after the close command are rejected now.
  if (state_ == PdcState::closing) return outcome;
  if (wire::uet::action_of(nack.nack_code) == wire::uet::NackAction::close) {
    sender_.note_error(QpFault::remote_operational, now);
    return outcome;
  }
  sender_.note_answer(now);
  const bool trimmed = nack.nack_code == NackCode::trimmed || nack.nack_code == NackCode::trimmed_last_hop ||
                       nack.nack_code == NackCode::trimmed_ack;
  // The NACK names the out-of-order packet; the expected one is missing.
  const bool out_of_order = ordered_ && nack.nack_code == NackCode::rod_out_of_order;
  // A request that the peer has no room for waits for the timer: an immediate retransmission would be rejected again.
  if (!trimmed && !out_of_order && nack.nack_code != NackCode::loss_inferred && nack.nack_code != NackCode::packet_not_received) {
    return outcome;
  }
  const uint32_t wide_psn = out_of_order ? nack.payload : nack.psn;
  const uint32_t psn = WidePsn::narrow(wide_psn);
  const multipath::SentPackets& packets = sender_.packets();
  if (!psns_.is_near(wide_psn) || !packets.has(psn)) {
    ++counters_.stale_answers;
    return outcome;
  }
  if (nack.nack_code == NackCode::trimmed) {
    sender_.entropy().paths().apply(packets.at(psn).entropy, multipath::EntropyEvent::marked);
  }
  // Refers to an earlier transmission.
  if (nack.retransmitted != (packets.at(psn).times > 1)) return outcome;
  if (!sender_.lose(psn, now)) return outcome;
  // Credit control handles congestion of the last hop.
  outcome.nak = nack.nack_code != NackCode::trimmed_last_hop || !credit_.account.is_open();
  ++counters_.packet_seq_err;
  if (trimmed) ++counters_.trimmed_resent;
  return outcome;
}

bool Requester::control_due(Nanos now) {
  if (sender_.fault() != QpFault::none) return false;
  return close_due_ || credit_.request_due || (state_ == PdcState::open && sender_.probe_due(now));
}

// After many unanswered requests use another plane: all recently proven paths may be on one that is down.
uint16_t Requester::value_to_ask_by(uint32_t times) {
  return times == 0 ? sender_.entropy().next_proven() : sender_.entropy().next_plane(asked_by_);
}

Outgoing Requester::control() {
  Outgoing outgoing;
  Control control;
  control.rod = ordered_;
  control.spdcid = id_;
  control.dpdcid = target_id_;
  if (close_due_) {
    control.control_type = ControlType::close_command;
    control.ack_request = true;
    control.retransmitted = closes_sent_ > 0;
    control.psn = psns_.widen(sender_.packets().next());
    outgoing.entropy = value_to_ask_by(closes_sent_);
  } else if (credit_.request_due) {
    control.control_type = ControlType::credit_request;
    control.psn = psns_.widen(sender_.packets().next()) - 1;
    control.payload = credit_.account.target(uint64_t{sender_.waiting_packets()} * credit_.full_packet_bytes, 0);
    outgoing.entropy = value_to_ask_by(credit_.asked);
  } else {
    control.control_type = ControlType::probe;
    control.probe_opaque = sender_.last_probe().next_id();
    control.psn = psns_.widen(sender_.packets().next()) - 1;
    control.payload = psns_.wide();
    outgoing.entropy = sender_.probe_value();
  }
  outgoing.packet.pds = control;
  return outgoing;
}

void Requester::control_sent(const Outgoing& control, Nanos now) {
  if (close_due_ || credit_.request_due) asked_by_ = control.entropy;
  if (!close_due_ && credit_.request_due) {
    credit_.request_due = false;
    credit_.heard_ns = now;
    if (++credit_.asked > kMostCreditRequests) sender_.give_up();
    return;
  }
  if (!close_due_) {
    sender_.probe_sent(control.entropy, now);
    return;
  }
  close_due_ = false;
  const AnswerTimer& timer = sender_.timer();
  const Nanos wait_ns = std::max({kLeastRepeatNs, 4 * timer.smoothed_rtt_ns(), timer.least_wait_ns()});
  close_repeats_ns_ = now + (wait_ns << std::min(closes_sent_, kMostDoublings));
  ++closes_sent_;
}

Nanos Requester::deadline() const {
  if (sender_.fault() != QpFault::none) return kNever;
  if (state_ == PdcState::closing) return close_due_ ? kNever : close_repeats_ns_;
  if (rests()) return close_after_ns_ == 0 ? kNever : rested_ns_ + close_after_ns_;
  const Nanos deadline = std::min(sender_.deadline(), credit_due_ns());
  return state_ == PdcState::opening && deadline != kNever ? deadline + opening_spread_ns_ : deadline;
}

// Randomize: initiators that open at the same moment and lose the same burst would otherwise collide again.
Nanos Requester::spread(uint32_t tries) const {
  const uint32_t mixed = (counters_.local_qpn + tries * 0x9E3779B9U) * 0x85EBCA6BU;
  return static_cast<Nanos>(mixed >> 24) * kSpreadStepNs << std::min(tries, kMostDoublings);
}

void Requester::on_timer(Nanos now) {
  if (deadline() > now) return;
  if (rests()) {
    change(PdcEvent::rests);
    closes_sent_ = 0;
    close_due_ = true;
  } else if (state_ == PdcState::closing) {
    close_due_ = true;
  } else {
    if (credit_due_ns() <= now) credit_.request_due = true;
    sender_.on_timer(now);
    // Only a request opens a context at its target.
    if (state_ == PdcState::opening && sender_.resend_for_probe()) {
      probe_owed_ = true;
      opening_spread_ns_ = spread(++openings_);
    }
  }
}

}  // namespace etloop::uet
