#include "core/packets/faults.h"

#include <algorithm>
#include <utility>

namespace etloop {

using wire::Opcode;
using wire::Role;

namespace {

constexpr uint8_t kCongestionExperienced = 0x03;
constexpr uint8_t kUnaskedRnrTimer = 1;      // 10 us
constexpr size_t kMostHeld = 1U << 14;       // beyond this, packets pass unaffected
constexpr uint32_t kNoEnd = UINT32_MAX;

bool is_one_of(FaultPackets packets, const wire::Packet& packet) {
  const Role role = wire::shape(packet.opcode).role;
  const bool is_answer = role == Role::acknowledgement;
  const bool is_nak = is_answer && (packet.syndrome & wire::kSyndromeKindMask) != 0;
  const bool is_grant = packet.opcode == Opcode::write_only;  // the engine's data always has an immediate
  switch (packets) {
    case FaultPackets::any: return role != Role::datagram;  // probes are exempt: they test the path
    case FaultPackets::data:
      return ((role == Role::write || role == Role::send) && !is_grant) ||
             (role == Role::response && packet.opcode != Opcode::atomic_acknowledge);
    case FaultPackets::clear_to_send: return is_grant;
    case FaultPackets::ack: return (is_answer && !is_nak) || packet.opcode == Opcode::atomic_acknowledge;
    case FaultPackets::nak: return is_nak;
    case FaultPackets::cnp: return role == Role::notification;
    case FaultPackets::request: return wire::is_request(packet.opcode);
  }
  return false;
}

// Return packet i of a run as a run of one.
PacketRun single_of(const PacketRun& run, uint32_t i) {
  PacketRun single = run;
  single.count = 1;
  single.head.psn = (run.head.psn + i) & wire::kPsnMask;
  if (run.count > 1) single.head.ack_req = run.ack_every != 0 && (single.head.psn + 1) % run.ack_every == 0;
  return single;
}

}  // namespace

void FaultInjector::add_end(const FaultEnd& end) {
  EndState state{end, {}, {}, 0};
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    if (concerns(rules_[i], end)) (rules_[i].direction == FaultDirection::sent ? state.sent : state.received).add(i);
  }
  if (end.flow >= end_of_flow_.size()) end_of_flow_.resize(end.flow + 1, kNoEnd);
  end_of_flow_[end.flow] = static_cast<uint32_t>(ends_.size());
  ends_.push_back(std::move(state));
}

const FaultRule* FaultInjector::select(uint32_t end, FaultChoice& choice, const wire::Packet& packet) {
  return choice.choose(rules_, ends_[end].end.draws_as,
                       [&packet](const FaultRule& rule) { return is_one_of(rule.packets, packet); });
}

void FaultInjector::note(uint32_t end, FaultAction action) {
  ++counts_[static_cast<size_t>(action)];
  ++ends_[end].done;
}

TxResult FaultInjector::attach(TxPort& port, Nanos now) {
  port_ = &port;
  now_ = now;
  release_due();
  return flush();
}

Nanos FaultInjector::next_due() const {
  Nanos due_ns = kNever;  // the backlog waits for the port, not for a time
  for (const Outgoing& held : held_) due_ns = std::min(due_ns, held.due_ns);
  for (const Incoming& held : held_received_) due_ns = std::min(due_ns, held.due_ns);
  return due_ns;
}

int32_t FaultInjector::due_rule(Nanos now) const {
  const auto number = [this](const FaultRule* rule) { return static_cast<int32_t>(rule - rules_.data()); };
  for (const Outgoing& held : held_) {
    if (held.due_ns <= now) return number(held.rule);
  }
  for (const Incoming& held : held_received_) {
    if (held.due_ns <= now) return number(held.rule);
  }
  return -1;
}

void FaultInjector::release_due() {
  std::stable_sort(held_.begin(), held_.end(), [](const Outgoing& a, const Outgoing& b) { return a.due_ns < b.due_ns; });
  size_t due = 0;
  while (due < held_.size() && held_[due].due_ns <= now_) backlog_.push_back(std::move(held_[due++]));
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(due));
}

TxResult FaultInjector::flush() {
  while (!backlog_.empty()) {
    Outgoing& next = backlog_.front();
    if (!next.payload.empty()) next.run.head.payload = next.payload.data();
    if (const TxResult result = port_->send(next.run); result != TxResult::sent) return result;
    backlog_.pop_front();
  }
  return TxResult::sent;
}

void FaultInjector::enqueue(const PacketRun& run) {
  Outgoing& out = backlog_.emplace_back();
  out.run = run;
  if (run.head.payload != nullptr) {
    out.payload.assign(run.head.payload, run.head.payload + run.head.payload_bytes);
  }
}

void FaultInjector::hold(const FaultRule& rule, uint32_t end, const PacketRun& run) {
  Outgoing& held = held_.emplace_back();
  held.run = run;
  if (run.head.payload != nullptr) {
    held.payload.assign(run.head.payload, run.head.payload + run.head.payload_bytes);
  }
  held.end = end;
  held.rule = &rule;
  held.due_ns = now_ + rule.delay_ns;
  held.behind = rule.action == FaultAction::reorder ? rule.behind_packets : 0;
}

// Packets of an endpoint passed: release the held packets that have been overtaken by enough of them.
void FaultInjector::let_past(uint32_t end, uint32_t packets) {
  for (Outgoing& held : held_) {
    if (held.end != end || held.behind == 0) continue;
    held.behind -= std::min(held.behind, packets);
    if (held.behind == 0) held.due_ns = now_;
  }
}

void FaultInjector::apply(const FaultRule& rule, uint32_t end, PacketRun&& single) {
  switch (rule.action) {
    case FaultAction::drop: break;
    case FaultAction::duplicate:
      enqueue(single);
      enqueue(single);
      break;
    case FaultAction::reorder:
    case FaultAction::delay:
      if (held_.size() >= kMostHeld) {
        enqueue(single);
        return;
      }
      hold(rule, end, single);
      break;
    case FaultAction::corrupt_icrc:
      single.corrupt_icrc = true;
      enqueue(single);
      break;
    case FaultAction::mark_ce:
      single.traffic_class = static_cast<int16_t>(
          (single.traffic_class == kFlowClass ? ends_[end].end.traffic_class : single.traffic_class) | kCongestionExperienced);
      enqueue(single);
      break;
    case FaultAction::send_nak:
    case FaultAction::send_rnr:
    case FaultAction::send_cnp:  // these rules apply to received packets
    case FaultAction::trim:
      enqueue(single);
      return;
  }
  note(end, rule.action);
}

bool FaultInjector::waits_behind(uint32_t end) const {
  return std::any_of(held_.begin(), held_.end(), [end](const Outgoing& held) { return held.end == end && held.behind > 0; });
}

// Enqueue packets [from, to) of a run unchanged.
void FaultInjector::pass_on(const PacketRun& run, uint32_t end, uint32_t from, uint32_t to) {
  PacketRun part = single_of(run, from);
  part.count = to - from;
  enqueue(part);
  let_past(end, part.count);
  release_due();
}

TxResult FaultInjector::send(const PacketRun& run) {
  if (const TxResult result = flush(); result != TxResult::sent) return result;
  const uint32_t end = run.flow < end_of_flow_.size() ? end_of_flow_[run.flow] : kNoEnd;
  if (end == kNoEnd || (ends_[end].sent.empty() && held_.empty())) return port_->send(run);
  // From here on the run is accepted; what the port does not accept now leaves before anything else.
  uint32_t passed = 0;  // packets [passed, i) of the run pass together
  for (uint32_t i = 0; i < run.count; ++i) {
    PacketRun single = single_of(run, i);
    const FaultRule* rule = select(end, ends_[end].sent, single.head);
    const bool alone = rule != nullptr || waits_behind(end);
    if (alone && passed < i) pass_on(run, end, passed, i);
    if (alone) passed = i + (rule != nullptr ? 1 : 0);
    if (rule != nullptr) apply(*rule, end, std::move(single));
    if (rule == nullptr && alone) {
      pass_on(run, end, i, i + 1);
      passed = i + 1;
    }
  }
  if (passed < run.count) pass_on(run, end, passed, run.count);
  return flush() == TxResult::failed ? TxResult::failed : TxResult::sent;
}

void FaultInjector::answer_unasked(const FaultRule& rule, uint32_t end, const wire::Packet& packet,
                                   const Answering& answering) {
  PacketRun run;
  run.flow = ends_[end].end.flow;
  run.head.dest_qpn = answering.remote_qpn;
  if (rule.action == FaultAction::send_cnp) {
    run.head.opcode = Opcode::cnp;
    run.head.becn = true;
  } else {
    run.head.opcode = Opcode::acknowledge;
    // A NAK acknowledges all packets before its PSN. Beyond a gap, the packet's own PSN would acknowledge packets that never
    // arrived and would never be retransmitted.
    const bool beyond_gap = wire::psn_distance(packet.psn, answering.expected_psn) > 0;
    run.head.psn = beyond_gap ? answering.expected_psn : packet.psn;
    run.head.msn = answering.msn;
    run.head.syndrome = rule.action == FaultAction::send_nak
                            ? wire::kSyndromeNakSequence
                            : static_cast<uint8_t>(wire::kSyndromeRnr | kUnaskedRnrTimer);
  }
  mark(run, rule.action == FaultAction::send_cnp ? notifications_ : acknowledgements_);
  enqueue(run);
}

uint32_t FaultInjector::on_received(uint32_t end, const wire::Packet& packet, const Answering& answering, Datagram& datagram,
                                    Nanos now) {
  FaultChoice& choice = ends_[end].received;
  if (choice.empty() && held_received_.empty()) return 1;
  const FaultRule* rule = select(end, choice, packet);
  for (Incoming& held : held_received_) {
    if (held.end == end && held.behind > 0 && --held.behind == 0) held.due_ns = now;
  }
  if (rule == nullptr) return 1;
  switch (rule->action) {
    case FaultAction::drop: note(end, rule->action); return 0;
    case FaultAction::duplicate: note(end, rule->action); return 2;
    case FaultAction::mark_ce:
      datagram.traffic_class |= kCongestionExperienced;
      note(end, rule->action);
      return 1;
    case FaultAction::send_nak:
    case FaultAction::send_rnr:
    case FaultAction::send_cnp:
      if (backlog_.size() >= kMostHeld) return 1;
      answer_unasked(*rule, end, packet, answering);
      note(end, rule->action);
      return 1;
    case FaultAction::corrupt_icrc:  // these rules apply to sent packets
    case FaultAction::trim: return 1;  // multipath transports only
    case FaultAction::reorder:
    case FaultAction::delay: break;
  }
  if (held_received_.size() >= kMostHeld) return 1;
  Incoming& held = held_received_.emplace_back();
  held.datagram = datagram;
  held.datagram.hops = {};
  held.content.assign(datagram.bytes.begin(), datagram.bytes.end());
  held.rule = rule;
  held.due_ns = now + rule->delay_ns;
  held.end = end;
  held.behind = rule->action == FaultAction::reorder ? rule->behind_packets : 0;
  note(end, rule->action);
  return 0;
}

bool FaultInjector::take_released(Nanos now, Datagram& datagram, std::vector<uint8_t>& content) {
  const auto due = std::find_if(held_received_.begin(), held_received_.end(),
                                [now](const Incoming& held) { return held.due_ns <= now; });
  if (due == held_received_.end()) return false;
  datagram = due->datagram;
  content = std::move(due->content);
  datagram.bytes = content;
  held_received_.erase(due);
  return true;
}

}  // namespace etloop
