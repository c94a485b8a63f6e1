#include "uet/responder.h"

#include <algorithm>
#include <bit>

namespace etloop::uet {

using multipath::Cause;
using multipath::Placement;
using wire::psn_distance;
using wire::uet::Ack;
using wire::uet::Control;
using wire::uet::ControlType;
using wire::uet::Nack;
using wire::uet::NackCode;
using wire::uet::Operation;
using wire::uet::PdsType;
using wire::uet::Request;
using wire::uet::ReturnCode;
using wire::uet::StandardRequest;

Responder::Responder(uint32_t local_qpn, const TransportSettings& params, uint32_t pattern_rkey, FlowRecord& counters)
    : counters_(counters),
      receiver_(params, counters),
      ordered_(params.multipath.uet.order == DeliveryOrder::sent),
      sends_(params.multipath.uet.sends),
      local_qpn_(local_qpn),
      memory_key_(uint64_t{local_qpn} << 32 | pattern_rkey),
      job_id_(params.recovery.initial_psn & wire::kPsnMask),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu_bytes))),
      psns_(params.recovery.initial_psn & wire::kPsnMask),
      credit_params_(params.multipath.uet.credit),
      trim_answer_(params.recovery.trimming.answer) {}

void Responder::attach(PdcIds& ids, uint32_t end) {
  ids_ = &ids;
  end_ = end;
}

void Responder::refuse(const Request& request, NackCode code) {
  if (code == NackCode::psn_out_of_window) ++counters_.out_of_window;
  else if (wire::uet::action_of(code) == wire::uet::NackAction::close) ++counters_.refused_requests;
  if (nacks_.size() == kMostWaiting) return;
  nacks_.push_back({code, request.psn, request.retransmitted, request.spdcid, psns_.wide()});
}

// A PDC begins at the end of the previous one, and the first at the plan's PSN: a late SYN opens none.
bool Responder::opens(const Request& request) {
  const uint32_t start = request.psn - request.psn_offset;
  const bool expected = opened_before_ ? start == psns_.wide() : WidePsn::narrow(start) == expected_psn();
  if (open_ || !expected || receiver_.ahead() > 0) {
    refuse(request, NackCode::invalid_syn);
    return false;
  }
  ids_->give_back(id_);  // release the previous id only now, so that late packets matched it
  id_ = ids_->take(end_, PdcRole::target);
  peer_id_ = request.spdcid;
  psns_ = WidePsn(start);
  open_ = opened_before_ = true;
  close_answer_due_ = false;
  return true;
}

// Whether a request belongs to the open PDC, near the expected PSN.
bool Responder::belongs(const Request& request) {
  if (wire::uet::is_ordered(request.type) != ordered_) {
    refuse(request, NackCode::mode_mismatch);
    return false;
  }
  if (request.syn && (!open_ || request.spdcid != peer_id_) && !opens(request)) return false;
  if (!open_ || request.spdcid != peer_id_ || (!request.syn && request.dpdcid != id_)) {
    refuse(request, NackCode::invalid_dpdcid);
    return false;
  }
  if (!psns_.is_near(request.psn)) {
    refuse(request, NackCode::psn_out_of_window);
    return false;
  }
  return true;
}

// Ordered delivery accepts only the expected packet. Packets of one path do not overtake each other: a lower PSN than the
// previous one, or a retransmission, means that the sender went back, and the missing PSN is reported again. For all other early
// packets one report is enough.
bool Responder::is_out_of_order(const Request& request) {
  const uint32_t psn = WidePsn::narrow(request.psn);
  if (!ordered_ || psn_distance(psn, expected_psn()) <= 0) return false;
  ++counters_.out_of_sequence;
  const int32_t behind = psn_distance(psn, gap_.ahead_psn);
  const bool of_same_round = gap_.is_known && (behind > 0 || (behind == 0 && request.retransmitted == gap_.resent));
  gap_ = {true, psn, request.retransmitted};
  if (!of_same_round) refuse(request, NackCode::rod_out_of_order);
  return true;
}

std::optional<ReturnCode> Responder::wrong(const StandardRequest& message, uint32_t payload_bytes) const {
  const wire::uet::RequestStart& start = message.start;
  const bool sent = start.opcode == Operation::send || start.opcode == Operation::tagged_send;
  if (start.rel != sends_ || !(sends_ ? sent : start.opcode == Operation::write)) {
    return ReturnCode::unsupported_operation;
  }
  if (start.job_id != job_id_) return ReturnCode::bad_job;
  if (sends_ && wire::uet::queue_pair_at(start) != local_qpn_) return ReturnCode::bad_index;
  if (!sends_ && message.memory_key != memory_key_ && message.message_length > 0) return ReturnCode::bad_key;
  if (!wire::uet::lengths_agree(message, payload_bytes, 1U << mtu_shift_)) return ReturnCode::unsupported_size;
  return std::nullopt;
}

void Responder::refuse_message(const StandardRequest& message, const Cause& cause, ReturnCode code) {
  ++counters_.refused_requests;
  responses_.push_back({code, message.start.message_id, 0, cause});
  const bool access = code == ReturnCode::bad_key || code == ReturnCode::bad_job || code == ReturnCode::bad_index;
  fault_ = access ? QpFault::refused_access : QpFault::refused_request;
}

void Responder::on_request(const Request& request, const StandardRequest& message, uint32_t payload_bytes,
                           const uint8_t* payload, const Arrival& arrival) {
  ++counters_.rx_packets;  // count every request: otherwise it would seem lost in the network
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return;
  }
  const bool first_of_pdc = !open_;
  if (!belongs(request)) return;
  const uint32_t psn = WidePsn::narrow(request.psn);
  const Cause cause{psn, arrival.value, arrival.marked, request.retransmitted};
  const bool known = receiver_.was_placed(psn) || receiver_.lies_beyond(psn);
  if (const auto code = wrong(message, payload_bytes); !known && code) {
    refuse_message(message, cause, *code);
    return;
  }
  if (!known && is_out_of_order(request)) return;
  switch (receiver_.place(cause, payload_bytes)) {
    case Placement::beyond_window: refuse(request, NackCode::psn_out_of_window); return;
    case Placement::duplicate: receiver_.cause_answer(cause); return;
    case Placement::placed: break;
  }
  latest_ = cause;
  gap_ = {};
  if (message.start.som || message.start.eom) keep_message(psn, message, payload);
  const bool is_asked = receiver_.advance(request.ack_request);
  psns_.move_to(expected_psn());
  // A complete message is answered at delivery, together with all before it.
  const bool whole = message.start.eom && psn_distance(psn, expected_psn()) < 0;
  if (whole) return;
  if (is_asked || arrival.marked || request.retransmitted || first_of_pdc || receiver_.answer_due_by_bytes()) {
    receiver_.cause_answer(cause);
  }
}

// The first packet of a message has its length and destination: an address, or the receive named by a tag. The last one has its
// length.
void Responder::keep_message(uint32_t psn, const StandardRequest& message, const uint8_t* payload) {
  Delivered delivered;
  delivered.va = message.start.opcode == Operation::write ? message.buffer_offset : message.memory_key;
  delivered.bytes = message.message_length;
  delivered.has_imm = message.start.hd;
  delivered.imm = static_cast<uint32_t>(message.header_data);
  const uint32_t mtu = 1U << mtu_shift_;
  const uint32_t packets = std::max(1U, message.message_length / mtu + (message.message_length % mtu != 0 ? 1U : 0U));
  const multipath::Ending here{psn, message.start.message_id};
  if (!message.start.som) {
    receiver_.keep_message(here, delivered, {}, multipath::MessagePart::last);
  } else if (message.start.eom) {
    receiver_.keep_message(here, delivered, {payload, payload == nullptr ? 0U : message.message_length});
  } else {
    receiver_.keep_message({(psn + packets - 1) & wire::kPsnMask, here.message_id}, delivered, {}, multipath::MessagePart::first);
  }
}

bool Responder::next_delivered(Delivered& delivered) {
  multipath::Ending ending;
  if (!receiver_.next_delivered(delivered, ending)) {
    if (receiver_.is_broken()) fault_ = QpFault::refused_request;
    return false;
  }
  if (responses_.size() == kMostWaiting) responses_.erase(responses_.begin());
  responses_.push_back({ReturnCode::ok, ending.message_id, delivered.bytes, receiver_.with_bitmap(latest_)});
  return true;
}

void Responder::on_trimmed(const Request& request, bool last_hop) {
  ++counters_.trimmed_received;
  if (fault_ != QpFault::none) ++counters_.came_after_failure;
  if (fault_ != QpFault::none || trim_answer_ == TrimAnswer::none) return;
  const bool from_peer = open_ && request.spdcid == peer_id_ && psns_.is_near(request.psn);
  const uint32_t psn = WidePsn::narrow(request.psn);
  if (from_peer && receiver_.was_placed(psn)) {
    receiver_.cause_answer({.psn = psn, .resent = request.retransmitted});
    return;
  }
  if (from_peer && is_out_of_order(request)) return;
  if (from_peer && ordered_) gap_ = {true, psn, request.retransmitted};  // later packets are out of order for a known reason
  refuse(request, last_hop ? NackCode::trimmed_last_hop : NackCode::trimmed);
}

void Responder::on_control(const Control& control, const Arrival& arrival) {
  if (fault_ != QpFault::none) {
    ++counters_.came_after_failure;
    return;
  }
  if (control.spdcid != peer_id_ || id_ == 0) {
    ++counters_.refused_requests;
    return;
  }
  switch (control.control_type) {
    case ControlType::probe:
      if (!open_) return;
      receiver_.cause_answer({.psn = control.probe_opaque, .value = arrival.value, .marked = arrival.marked, .of_probe = true});
      return;
    case ControlType::ack_request:
      if (open_) receiver_.cause_answer({.psn = (expected_psn() - 1) & wire::kPsnMask});
      return;
    case ControlType::close_command:
      // Not valid while packets of the PDC are missing: an initiator closes only after all are acknowledged.
      if (open_ && control.psn != psns_.wide()) return;
      open_ = false;
      close_answer_due_ = true;
      return;
    case ControlType::credit_request:
      credit_due_ = open_ && credit_params_.granted;
      return;
    case ControlType::noop:
    case ControlType::clear_command:  // no responses are stored
    case ControlType::clear_request:
    case ControlType::close_request:
    case ControlType::credit:
    case ControlType::negotiation: return;
  }
}

void Responder::grant(uint32_t total) {
  credit_total_ = total;
  credit_due_ = open_ && fault_ == QpFault::none;
}

Ack Responder::ack(const Cause& cause) const {
  const multipath::Arrivals arrivals = receiver_.arrivals(cause);
  Ack ack;
  ack.type = PdsType::ack_cc;
  ack.marked = cause.marked;
  ack.retransmitted = cause.resent;
  ack.answers_probe = cause.of_probe;
  if (cause.of_probe) ack.probe_opaque = static_cast<uint16_t>(cause.psn);
  else ack.ack_psn_offset = static_cast<int16_t>(arrivals.cause_offset);
  ack.cack_psn = psns_.widen(arrivals.cumulative_psn);
  ack.spdcid = id_;
  ack.dpdcid = peer_id_;
  wire::uet::AckState state;
  state.sack_psn_offset = static_cast<int16_t>(arrivals.bitmap_offset);
  state.sack_bitmap = arrivals.bitmap;
  const auto out_of_order = static_cast<uint16_t>(std::min<uint32_t>(arrivals.ahead, UINT16_MAX));
  if (credit_params_.alone) {
    state.cc_type = wire::uet::CcType::credit;
    state.cc_state = wire::uet::packed(wire::uet::CreditState{credit_total_, out_of_order});
    ack.state = state;
    return ack;
  }
  const wire::uet::NsccState nscc{.rcvd_bytes = arrivals.received_256bytes, .ooo_count = out_of_order};
  state.cc_state = wire::uet::packed(nscc);
  ack.state = state;
  return ack;
}

Outgoing Responder::answer() const {
  Outgoing outgoing;
  if (!nacks_.empty()) {
    const Refused& refused = nacks_.front();
    Nack nack;
    nack.nack_code = refused.code;
    nack.retransmitted = refused.resent;
    nack.psn = refused.psn;
    nack.spdcid = open_ && refused.peer_id == peer_id_ ? id_ : 0;
    nack.dpdcid = refused.peer_id;
    nack.payload = refused.code == NackCode::rod_out_of_order ? refused.expected_psn : 0;
    outgoing.packet.pds = nack;
  } else if (!responses_.empty()) {
    const Respond& respond = responses_.front();
    Ack answer = ack(respond.cause);
    answer.next_header = wire::uet::NextHeader::response;
    outgoing.packet.pds = answer;
    wire::uet::Response response;
    response.response = respond.code == ReturnCode::ok ? wire::uet::ResponseKind::normal : wire::uet::ResponseKind::response;
    response.return_code = respond.code;
    response.message_id = respond.message_id;
    response.job_id = job_id_;
    response.modified_length = respond.bytes;
    outgoing.packet.ses = response;
  } else if (receiver_.has_cause()) {
    outgoing.packet.pds = ack(receiver_.cause());
  } else if (credit_due_) {
    Control credit;
    credit.control_type = ControlType::credit;
    credit.rod = ordered_;
    credit.psn = psns_.wide();
    credit.spdcid = id_;
    credit.dpdcid = peer_id_;
    credit.payload = credit_total_;
    outgoing.packet.pds = credit;
  } else {
    Ack closed;
    closed.cack_psn = psns_.wide();  // PSN of the command
    closed.spdcid = id_;
    closed.dpdcid = peer_id_;
    outgoing.packet.pds = closed;
  }
  return outgoing;
}

void Responder::answer_sent() {
  if (!nacks_.empty()) {
    ++counters_.naks_tx;
    const NackCode code = nacks_.front().code;
    if (code == NackCode::trimmed || code == NackCode::trimmed_last_hop) ++counters_.trimmed_answered;
    nacks_.erase(nacks_.begin());
    return;
  }
  const bool acknowledges = !responses_.empty() || receiver_.has_cause() || !credit_due_;
  if (acknowledges) ++counters_.acks_tx;
  if (!responses_.empty()) {
    responses_.erase(responses_.begin());
  } else if (receiver_.has_cause()) {
    receiver_.cause_answered();
  } else if (credit_due_) {
    credit_due_ = false;
  } else {
    close_answer_due_ = false;
  }
}

}  // namespace etloop::uet
