#include "core/multipath/path_faults.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "wire/wire.h"

namespace etloop {

namespace {

constexpr uint8_t kCongestionExperienced = 0x03;
constexpr size_t kMostHeld = 1U << 14;  // beyond this, packets pass unaffected

bool is_one_of(FaultPackets asked, FaultPackets kind) {
  switch (asked) {
    case FaultPackets::any: return true;
    case FaultPackets::request: return kind == FaultPackets::data || kind == FaultPackets::clear_to_send;
    case FaultPackets::data:
    case FaultPackets::clear_to_send:
    case FaultPackets::ack:
    case FaultPackets::nak:
    case FaultPackets::cnp: return asked == kind;
  }
  return false;
}

auto matches_rule_of(const SprayedPacket& packet) {
  return [packet](const FaultRule& rule) {
    return is_one_of(rule.packets, packet.kind) && (rule.entropy_value < 0 || rule.entropy_value == packet.entropy_value);
  };
}

// Count a passing packet for the held packets of its endpoint. True: one of them must be sent now.
template <typename Held>
bool let_past(Held& held, uint32_t end, Nanos now) {
  bool released = false;
  for (auto& packet : held) {
    if (packet.end != end || packet.behind == 0 || --packet.behind > 0) continue;
    packet.due_ns = now;
    released = true;
  }
  return released;
}

}  // namespace

void PathFaults::add_end(const FaultEnd& end) {
  EndState state{end, {}, {}, 0};
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    if (concerns(rules_[i], end)) (rules_[i].direction == FaultDirection::sent ? state.sent : state.received).add(i);
  }
  ends_.push_back(std::move(state));
}

void PathFaults::note(uint32_t end, FaultAction action) {
  ++counts_[static_cast<size_t>(action)];
  ++ends_[end].done;
}

void PathFaults::hold(const FaultRule& rule, uint32_t end, const BuiltPacket& built, Nanos now) {
  Outgoing& held = held_.emplace_back();
  held.built = built;
  held.headers.assign(built.headers.begin(), built.headers.end());
  if (built.payload != nullptr) held.payload.assign(built.payload, built.payload + built.payload_bytes);
  held.rule = &rule;
  held.due_ns = now + rule.delay_ns;
  held.end = end;
  held.behind = rule.action == FaultAction::reorder ? rule.behind_packets : 0;
}

TxResult PathFaults::apply(const FaultRule& rule, TxPort& port, uint32_t end, const BuiltPacket& built, Nanos now) {
  BuiltPacket changed = built;
  switch (rule.action) {
    case FaultAction::drop: return TxResult::sent;
    case FaultAction::reorder:
    case FaultAction::delay:
      if (held_.size() + backlog_.size() >= kMostHeld) return port.send_built(built);
      hold(rule, end, built, now);
      return TxResult::sent;
    case FaultAction::duplicate: {
      const TxResult result = port.send_built(built);
      if (result == TxResult::sent) port.send_built(built);  // if the duplicate does not fit, it counts as lost on the way
      return result;
    }
    case FaultAction::corrupt_icrc: changed.corrupt_icrc = true; break;
    case FaultAction::mark_ce:
      changed.marks.traffic_class = static_cast<int16_t>(
          (built.marks.traffic_class == kFlowClass ? ends_[end].end.traffic_class : built.marks.traffic_class) |
          kCongestionExperienced);
      break;
    case FaultAction::send_nak:
    case FaultAction::send_rnr:
    case FaultAction::send_cnp:
    case FaultAction::trim: break;  // rejected with the plan, or for received packets
  }
  return port.send_built(changed);
}

TxResult PathFaults::send(TxPort& port, uint32_t end, const SprayedPacket& packet, const BuiltPacket& built, Nanos now) {
  EndState& state = ends_[end];
  if (state.sent.empty()) return port.send_built(built);
  const auto matches = matches_rule_of(packet);
  const FaultRule* rule = state.sent.choose(rules_, state.end.draws_as, matches);
  const TxResult result = rule == nullptr ? port.send_built(built) : apply(*rule, port, end, built, now);
  if (result != TxResult::sent) {
    state.sent.forget_last(rules_, matches);
    return result;
  }
  if (rule != nullptr) note(end, rule->action);
  const bool waits = rule != nullptr && (rule->action == FaultAction::reorder || rule->action == FaultAction::delay);
  if (!waits && let_past(held_, end, now)) send_due(port, now);
  return result;
}

TxResult PathFaults::send_due(TxPort& port, Nanos now) {
  release_due(now);
  for (auto next = backlog_.begin(); next != backlog_.end();) {
    next->built.headers = next->headers;
    if (!next->payload.empty()) next->built.payload = next->payload.data();
    const TxResult result = port.send_built(next->built);
    if (result == TxResult::sent) {
      next = backlog_.erase(next);
    } else if (result == TxResult::held) {
      ++next;  // another may leave on another plane or in another class
    } else {
      return result;
    }
  }
  return backlog_.empty() ? TxResult::sent : TxResult::held;
}

void PathFaults::release_due(Nanos now) {
  const auto due = std::stable_partition(held_.begin(), held_.end(), [now](const Outgoing& held) { return held.due_ns > now; });
  std::stable_sort(due, held_.end(), [](const Outgoing& a, const Outgoing& b) { return a.due_ns < b.due_ns; });
  std::move(due, held_.end(), std::back_inserter(backlog_));
  held_.erase(due, held_.end());
}

PathFaults::Fate PathFaults::on_received(uint32_t end, const SprayedPacket& packet, Datagram& datagram, Nanos now) {
  EndState& state = ends_[end];
  if (state.received.empty() && held_received_.empty()) return {};
  const FaultRule* rule = state.received.choose(rules_, state.end.draws_as, matches_rule_of(packet));
  let_past(held_received_, end, now);
  if (rule == nullptr) return {};
  switch (rule->action) {
    case FaultAction::drop: note(end, rule->action); return {0, false};
    case FaultAction::duplicate: note(end, rule->action); return {2, false};
    case FaultAction::trim: note(end, rule->action); return {1, true};
    case FaultAction::mark_ce:
      datagram.traffic_class |= kCongestionExperienced;
      note(end, rule->action);
      return {};
    case FaultAction::corrupt_icrc:
    case FaultAction::send_nak:
    case FaultAction::send_rnr:
    case FaultAction::send_cnp: return {};
    case FaultAction::reorder:
    case FaultAction::delay: break;
  }
  if (held_received_.size() >= kMostHeld) return {};
  Incoming& held = held_received_.emplace_back();
  held.datagram = datagram;
  held.datagram.hops = {};
  held.content.assign(datagram.bytes.begin(), datagram.bytes.end());
  held.rule = rule;
  held.due_ns = now + rule->delay_ns;
  held.end = end;
  held.behind = rule->action == FaultAction::reorder ? rule->behind_packets : 0;
  note(end, rule->action);
  return {0, false};
}

bool PathFaults::take_released(Nanos now, Datagram& datagram, std::vector<uint8_t>& content) {
  const auto due = std::find_if(held_received_.begin(), held_received_.end(),
                                [now](const Incoming& held) { return held.due_ns <= now; });
  if (due == held_received_.end()) return false;
  datagram = due->datagram;
  content = std::move(due->content);
  datagram.bytes = content;
  held_received_.erase(due);
  return true;
}

Nanos PathFaults::next_due() const {
  Nanos due_ns = kNever;  // the backlog waits for the port, not for a time
  for (const Outgoing& held : held_) due_ns = std::min(due_ns, held.due_ns);
  for (const Incoming& held : held_received_) due_ns = std::min(due_ns, held.due_ns);
  return due_ns;
}

int32_t PathFaults::due_rule(Nanos now) const {
  const auto number = [this](const FaultRule* rule) { return static_cast<int32_t>(rule - rules_.data()); };
  for (const Outgoing& held : held_) {
    if (held.due_ns <= now) return number(held.rule);
  }
  for (const Incoming& held : held_received_) {
    if (held.due_ns <= now) return number(held.rule);
  }
  return -1;
}

}  // namespace etloop
