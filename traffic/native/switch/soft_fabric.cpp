#include "switch/soft_fabric.h"

#include <algorithm>

namespace etloop {

// Adds the switch's index to the reports of the switch to its sink.
struct SoftFabric::Node final : SwitchSink {
  Node(SoftFabric& owner, size_t number, const SwitchConfig& config, Nanos begin_ns)
      : fabric(owner), index(number), model(config, *this, begin_ns, owner.events_, static_cast<uint16_t>(number + 1)) {}

  void transmit(size_t port, const SwitchFrame& frame, Nanos, Nanos end_ns) override {
    fabric.transmitted(index, port, frame, end_ns);
  }
  void drop(size_t, const SwitchFrame& frame, SwitchDrop, Nanos) override {
    --fabric.inside_;
    fabric.sink_.release(frame);
  }
  void pause(size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns) override {
    fabric.paused(index, port, priority, quanta, end_ns);
  }
  uint64_t hash_key(const SwitchFrame& frame, HashFields fields) override { return fabric.sink_.hash_key(frame, fields); }
  usid::Head segment_of(const SwitchFrame& frame) override { return fabric.sink_.segment_of(frame); }
  usid::Head next_segment(const SwitchFrame& frame) override { return fabric.sink_.next_segment(frame); }

  SoftFabric& fabric;
  size_t index;
  SwitchModel model;
};

std::string validate(const FabricConfig& config) {
  for (const SwitchConfig& one : config.switches) {
    if (std::string wrong = validate(one); !wrong.empty()) return one.name + ": " + wrong;
  }
  const auto is_there = [&](const FabricEnd& end) {
    return end.switch_index < config.switches.size() && end.port < config.switches[end.switch_index].ports.size();
  };
  std::vector<std::pair<uint32_t, uint32_t>> taken;
  const auto take = [&](const FabricEnd& end) {
    taken.emplace_back(end.switch_index, end.port);
    return is_there(end);
  };
  for (const FabricLink& link : config.links) {
    const bool both = take(link.a) && take(link.b);
    if (!both) return "a link names a switch port that does not exist";
  }
  for (const FabricAttachment& attachment : config.attachments) {
    if (!take(attachment.end)) return "an attachment names a switch port that does not exist";
  }
  std::sort(taken.begin(), taken.end());
  if (std::adjacent_find(taken.begin(), taken.end()) != taken.end()) return "two links or attachments name one switch port";
  for (const FabricOutage& outage : config.outages) {
    if (!is_there(outage.end) || outage.from_ns < 0 || outage.until_ns < outage.from_ns) return "an outage cannot be";
  }
  if (config.detection_ns < 0 || config.convergence_ns < config.detection_ns) {
    return "convergence_ns: must be at least detection_ns, which is at least 0";
  }
  if (config.convergence_ns != kNever) {
    for (const SwitchConfig& one : config.switches) {
      if (one.routes.size() != config.attachments.size()) return one.name + ": has not a route for each attachment";
    }
  }
  if (config.attachments.empty()) return "no port is attached";
  return config.card_bytes <= 0 ? "card_bytes: must be above 0" : "";
}

SoftFabric::SoftFabric(const FabricConfig& config, FabricSink& sink, Nanos begin_ns)
    : config_(config),
      sink_(sink),
      events_(event_spacing_ns(config.switches)),
      cards_(config.attachments.size()),
      now_ns_(begin_ns == kNever ? 0 : begin_ns),
      instant_(most_turns_at_an_instant(config.attachments.size() + 2 * config.links.size())) {
  for (size_t i = 0; i < config.switches.size(); ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i, config.switches[i], begin_ns));
    peers_.emplace_back(config.switches[i].ports.size());
  }
  for (const FabricLink& link : config.links) {
    const auto cable = static_cast<uint32_t>(cables_.size());
    cables_.push_back({.end = link.a});
    peers_[link.a.switch_index][link.a.port] = {Peer::Kind::switch_port, link.b, 0, nodes_[link.b.switch_index].get(), cable};
    peers_[link.b.switch_index][link.b.port] = {Peer::Kind::switch_port, link.a, 0, nodes_[link.a.switch_index].get(), cable};
  }
  for (size_t i = 0; i < config.attachments.size(); ++i) {
    const FabricEnd& end = config.attachments[i].end;
    peers_[end.switch_index][end.port] = {Peer::Kind::attachment, {0, static_cast<uint32_t>(i)}, 0, nullptr};
    const SwitchPortConfig& port = config.switches[end.switch_index].ports[end.port];
    cards_[i].line = FrameLine(port.rate_bps);
    cards_[i].propagation_ns = port.propagation_ns;
    cards_[i].end = end;
  }
  for (uint32_t s = 0; s < peers_.size(); ++s) {
    for (uint32_t p = 0; p < peers_[s].size(); ++p) {
      Peer& peer = peers_[s][p];
      peer.propagation_ns = config.switches[s].ports[p].propagation_ns;
      if (peer.kind == Peer::Kind::switch_port) continue;
      peer.cable = static_cast<uint32_t>(cables_.size());
      cables_.push_back({.end = {s, p}});
    }
  }
  if (config.convergence_ns != kNever && !config.links.empty()) routes_.emplace(config);
  for (size_t i = 0; i < config.attachments.size(); ++i) {
    const SwitchConfig& own = config.switches[config.attachments[i].end.switch_index];
    for (size_t dscp = 0; dscp < own.dscp_to_class.size(); ++dscp) {
      cards_[i].priority_of[dscp] = own.group_to_priority[own.class_to_group[own.dscp_to_class[dscp]]];
    }
  }
  if (begin_ns != kNever) begin(begin_ns);
}

SoftFabric::~SoftFabric() = default;

void SoftFabric::push(Nanos at_ns, Kind kind, size_t number, uint8_t lane, uint16_t quanta) {
  events_.push({at_ns, kOwner, static_cast<uint32_t>(number), quanta, lane, static_cast<uint8_t>(kind)});
}

// Prefetch the next event's state: it is rarely cached.
inline void SoftFabric::expect_next() const {
  if (events_.empty()) return;
  const FabricEvent& next = events_.front();
  if (const uint16_t owner = FabricEvents::owner_of(next); owner != kOwner) {
    nodes_[owner - 1]->model.expect(next);
  } else if (static_cast<Kind>(next.kind) == Kind::card) {
    prefetch(&cards_[next.number], 2 * kLineBytes);
  }
}

void SoftFabric::advance(Nanos until_ns) {
  if (!stalled_.empty()) [[unlikely]] return;
  while (events_.next_ns() <= until_ns && !events_.empty()) {
    if (!instant_.passes(now_ns_, [] { return int64_t{0}; })) [[unlikely]] {
      stalled_ = instant_.failure(describe(events_.front()));
      return;
    }
    const FabricEvent event = events_.pop();
    now_ns_ = std::max(now_ns_, event.at_ns);
    expect_next();
    if (const uint16_t owner = FabricEvents::owner_of(event); owner == kOwner) {
      take(event);
    } else {
      nodes_[owner - 1]->model.take(event);
    }
  }
  now_ns_ = std::max(now_ns_, until_ns);
}

void SoftFabric::take(const FabricEvent& event) {
  switch (static_cast<Kind>(event.kind)) {
    case Kind::card: {
      Card& card = cards_[event.number];
      if (card.event_ns == event.at_ns) card.event_ns = kNever;
      card_send(event.number, event.at_ns);
      return;
    }
    case Kind::card_pause: card_paused(event.number, event.lane, quanta_of(event), event.at_ns); return;
    case Kind::link_up: link_changes(event.number, true, event.at_ns); return;
    case Kind::link_down: link_changes(event.number, false, event.at_ns); return;
    case Kind::link_noticed:
      if (cables_[event.number].changed_ns + config_.detection_ns == event.at_ns) link_noticed(event.number, event.at_ns);
      return;
    case Kind::link_settled:
      if (cables_[event.number].changed_ns + config_.convergence_ns == event.at_ns) link_settled(event.number, event.at_ns);
      return;
  }
}

std::string SoftFabric::describe(const FabricEvent& event) const {
  if (const uint16_t owner = FabricEvents::owner_of(event); owner != kOwner) {
    return "switch " + config_.switches[owner - 1].name + ", port " + std::to_string(event.port) + ": " +
           text(static_cast<SwitchModel::Kind>(event.kind));
  }
  switch (static_cast<Kind>(event.kind)) {
    case Kind::card: return "the card of attachment " + std::to_string(event.number);
    case Kind::card_pause: return "a pause for the card of attachment " + std::to_string(event.number);
    case Kind::link_up:
    case Kind::link_down:
    case Kind::link_noticed:
    case Kind::link_settled: return "a change of link " + std::to_string(event.number);
  }
  return "an event of the network";
}

void SoftFabric::set_link(const FabricEnd& end, bool up, Nanos at_ns) {
  at_ns = std::max(at_ns, now_ns_);
  advance(at_ns);
  link_changes(cable_at(end), up, at_ns);
}

void SoftFabric::set_link_later(const FabricEnd& end, bool up, Nanos at_ns) {
  push(std::max(at_ns, now_ns_), up ? Kind::link_up : Kind::link_down, cable_at(end));
}

// Call `notify` for the switch ends of a cable.
template <typename Notify>
void SoftFabric::notify_switches(const FabricEnd& end, Notify notify) {
  notify(nodes_[end.switch_index]->model, end.port);
  const Peer& peer = peers_[end.switch_index][end.port];
  if (peer.kind == Peer::Kind::switch_port) notify(peer.node->model, peer.end.port);
}

void SoftFabric::link_changes(uint32_t number, bool up, Nanos at_ns) {
  Cable& cable = cables_[number];
  if (cable.up == up) return;
  cable.up = up;
  cable.changed_ns = at_ns;
  sink_.link_news(cable.end, up ? LinkNews::up : LinkNews::down, at_ns);
  notify_switches(cable.end, [up](SwitchModel& model, size_t port) { model.on_unnoticed_link(port, up); });
  // A link that comes up is noticed at once: both ends take part in the negotiation.
  if (up || config_.detection_ns == 0) {
    if (cable.noticed_up != up) link_noticed(number, at_ns);
  } else {
    push(at_ns + config_.detection_ns, Kind::link_noticed, number);
  }
  if (routes_ && cable.routed_up != up && number < config_.links.size()) {
    push(at_ns + config_.convergence_ns, Kind::link_settled, number);
  }
}

void SoftFabric::link_noticed(uint32_t number, Nanos at_ns) {
  Cable& cable = cables_[number];
  if (cable.noticed_up == cable.up) return;
  cable.noticed_up = cable.up;
  if (!cable.up) sink_.link_news(cable.end, LinkNews::noticed, at_ns);
  notify_switches(cable.end, [&](SwitchModel& model, size_t port) { model.on_link(port, cable.up, at_ns); });
  const Peer& peer = peers_[cable.end.switch_index][cable.end.port];
  if (peer.kind == Peer::Kind::attachment) end_pauses(peer.end.port, at_ns);
}

void SoftFabric::link_settled(uint32_t number, Nanos at_ns) {
  Cable& cable = cables_[number];
  if (cable.routed_up == cable.up) return;
  cable.routed_up = cable.up;
  routes_->use(number, cable.up);
  sink_.link_news(cable.end, cable.up ? LinkNews::used_again : LinkNews::routed_around, at_ns);
  if (settles_another(at_ns)) return;  // process all links that change at the same time first
  routes_->recompute();
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->model.set_ways(routes_->of(i));
}

bool SoftFabric::settles_another(Nanos at_ns) const {
  if (events_.empty() || events_.next_ns() != at_ns) return false;
  const FabricEvent& next = events_.front();
  if (FabricEvents::owner_of(next) != kOwner || static_cast<Kind>(next.kind) != Kind::link_settled) return false;
  const Cable& cable = cables_[next.number];
  return cable.routed_up != cable.up && cable.changed_ns + config_.convergence_ns == at_ns;
}

// ---- cards

bool SoftFabric::from_host(size_t attachment, const SwitchFrame& frame, Nanos at_ns) {
  at_ns = std::max(at_ns, now_ns_);
  advance(at_ns);
  Card& card = cards_[attachment];
  CardCounters& count = card.counters;
  if (count.waiting_bytes + frame.frame_bytes > config_.card_bytes) {
    ++count.refused_frames;
    return false;
  }
  ++count.frames;
  count.bytes += frame.frame_bytes;
  count.waiting_bytes += frame.frame_bytes;
  count.waiting_watermark_bytes = std::max(count.waiting_watermark_bytes, count.waiting_bytes);
  const uint8_t priority = card.priority_of[frame.dscp & 63];
  card.queues[priority].push(frame);
  card.filled |= static_cast<uint8_t>(1U << priority);
  ++inside_;
  card_send(attachment, at_ns);
  return true;
}

void SoftFabric::schedule_card(size_t attachment, Nanos at_ns) {
  Card& card = cards_[attachment];
  if (at_ns >= card.event_ns) return;
  card.event_ns = at_ns;
  push(at_ns, Kind::card, attachment);
}

void SoftFabric::card_send(size_t attachment, Nanos now) {
  Card& card = cards_[attachment];
  if (card.line.free_ns() > now) {
    schedule_card(attachment, card.line.free_ns());
    return;
  }
  CardQueue* next = nullptr;
  Nanos resumes_ns = kNever;
  for (size_t turn = 1; turn <= kPriorities && next == nullptr; ++turn) {
    const size_t priority = (card.last_priority + turn) % kPriorities;
    if ((card.filled >> priority & 1) == 0) continue;
    if (card.paused_until_ns[priority] > now) {
      resumes_ns = std::min(resumes_ns, card.paused_until_ns[priority]);
      continue;
    }
    next = &card.queues[priority];
    card.last_priority = static_cast<uint8_t>(priority);
  }
  if (next == nullptr) {
    if (resumes_ns != kNever) schedule_card(attachment, resumes_ns);
    return;
  }
  const SwitchFrame frame = next->pop();
  if (next->empty()) card.filled &= static_cast<uint8_t>(~(1U << card.last_priority));
  card.counters.waiting_bytes -= frame.frame_bytes;
  const Nanos sent_ns = card.line.take(frame.frame_bytes, now);
  nodes_[card.end.switch_index]->model.expect_frame(card.end.port, frame, sent_ns + card.propagation_ns);
  if (card.counters.waiting_bytes > 0) schedule_card(attachment, sent_ns);
  sink_.card_sends(attachment, now);
}

void SoftFabric::card_paused(size_t attachment, uint8_t priority, uint16_t quanta, Nanos now) {
  Card& card = cards_[attachment];
  const FabricEnd& end = config_.attachments[attachment].end;
  const SwitchPortConfig& port = config_.switches[end.switch_index].ports[end.port];
  Nanos& until_ns = card.paused_until_ns[priority];
  Nanos& since_ns = card.paused_since_ns[priority];
  if (until_ns > since_ns) card.counters.paused_ns += std::min(until_ns, now) - since_ns;
  since_ns = now;
  until_ns = now + pause_ns(quanta, port.rate_bps);
  card_send(attachment, now);
}

// A link loss ends the pauses of the card: no resume frame would arrive.
void SoftFabric::end_pauses(size_t attachment, Nanos now) {
  for (uint8_t priority = 0; priority < kPriorities; ++priority) {
    if (cards_[attachment].paused_until_ns[priority] <= now) continue;
    card_paused(attachment, priority, 0, now);
    sink_.pause(attachment, priority, 0, now);
  }
}

void SoftFabric::pause_from_host(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) {
  at_ns = std::max(at_ns, now_ns_);
  advance(at_ns);
  const FabricEnd& end = config_.attachments[attachment].end;
  const SwitchPortConfig& port = config_.switches[end.switch_index].ports[end.port];
  const Nanos heard_ns = at_ns + line_ns(kPauseFrameBytes, port.rate_bps) + port.propagation_ns;
  nodes_[end.switch_index]->model.expect_pause(end.port, priority, quanta, heard_ns);
}

// ---- what switches send

void SoftFabric::transmitted(size_t from_switch, size_t port, const SwitchFrame& frame, Nanos end_ns) {
  const Peer& peer = peers_[from_switch][port];
  const Nanos at_ns = end_ns + peer.propagation_ns;
  switch (peer.kind) {
    case Peer::Kind::none:
      --inside_;
      sink_.release(frame);
      return;
    case Peer::Kind::switch_port:
      peer.node->model.expect_frame(peer.end.port, frame, at_ns);
      return;
    case Peer::Kind::attachment: {
      CardCounters& count = cards_[peer.end.port].counters;
      ++count.delivered_frames;
      count.delivered_bytes += frame.frame_bytes;
      --inside_;
      sink_.deliver(peer.end.port, frame, at_ns);
      return;
    }
  }
}

void SoftFabric::paused(size_t from_switch, size_t port, uint8_t priority, uint16_t quanta, Nanos end_ns) {
  const Peer& peer = peers_[from_switch][port];
  if (!cables_[peer.cable].up) return;
  const Nanos at_ns = end_ns + peer.propagation_ns;
  if (peer.kind == Peer::Kind::switch_port) {
    peer.node->model.expect_pause(peer.end.port, priority, quanta, at_ns);
  }
  if (peer.kind != Peer::Kind::attachment) return;
  if (config_.attachments[peer.end.port].honours_pause) {
    push(at_ns, Kind::card_pause, peer.end.port, priority, quanta);
  }
  sink_.pause(peer.end.port, priority, quanta, at_ns);
}

// ---- counters

void SoftFabric::begin(Nanos now) {
  for (const FabricOutage& outage : config_.outages) {
    set_link_later(outage.end, false, now + outage.from_ns);
    if (outage.until_ns < kNever - now) set_link_later(outage.end, true, now + outage.until_ns);
  }
  for (const std::unique_ptr<Node>& node : nodes_) node->model.begin(now);
  for (Card& card : cards_) {
    const int64_t waiting_bytes = card.counters.waiting_bytes;
    card.counters = {.waiting_bytes = waiting_bytes, .waiting_watermark_bytes = waiting_bytes};
    for (Nanos& since_ns : card.paused_since_ns) since_ns = std::max(since_ns, now);
  }
}

CardCounters SoftFabric::card(size_t attachment, Nanos now) const {
  const Card& card = cards_[attachment];
  CardCounters found = card.counters;
  for (size_t priority = 0; priority < kPriorities; ++priority) {
    const Nanos since_ns = card.paused_since_ns[priority];
    const Nanos until_ns = std::min(card.paused_until_ns[priority], std::max(now, now_ns_));
    if (until_ns > since_ns) found.paused_ns += until_ns - since_ns;
  }
  return found;
}

SwitchCounters SoftFabric::counters(size_t switch_index, Nanos now) const {
  return nodes_[switch_index]->model.counters(std::max(now, now_ns_));
}

const SwitchModel& SoftFabric::model(size_t switch_index) const { return nodes_[switch_index]->model; }

}  // namespace etloop
