#include "soft_fabric.h"

#include <algorithm>

namespace etloop {

// A switch tells its sink what leaves by port; this adds which switch it was.
struct SoftFabric::Node final : SwitchSink {
  Node(SoftFabric& owner, size_t number, const SwitchConfig& config)
      : fabric(owner), index(number), model(config, *this) {}

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
    if (!both) return "a link names a switch port that is not there";
  }
  for (const FabricAttachment& attachment : config.attachments) {
    if (!take(attachment.end)) return "an attachment names a switch port that is not there";
  }
  std::sort(taken.begin(), taken.end());
  if (std::adjacent_find(taken.begin(), taken.end()) != taken.end()) return "two links or attachments name one switch port";
  for (const FabricOutage& outage : config.outages) {
    if (!is_there(outage.end) || outage.from_ns < 0 || outage.until_ns < outage.from_ns) return "an outage cannot be";
  }
  if (config.attachments.empty()) return "nothing is attached";
  return config.card_bytes <= 0 ? "card_bytes: must be above 0" : "";
}

SoftFabric::SoftFabric(const FabricConfig& config, FabricSink& sink, Nanos begin_ns)
    : config_(config), sink_(sink), cards_(config.attachments.size()), now_ns_(begin_ns) {
  for (size_t i = 0; i < config.switches.size(); ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i, config.switches[i]));
    peers_.emplace_back(config.switches[i].ports.size());
  }
  for (const FabricLink& link : config.links) {
    peers_[link.a.switch_index][link.a.port] = {Peer::Kind::switch_port, link.b};
    peers_[link.b.switch_index][link.b.port] = {Peer::Kind::switch_port, link.a};
  }
  for (size_t i = 0; i < config.attachments.size(); ++i) {
    const FabricEnd& end = config.attachments[i].end;
    peers_[end.switch_index][end.port] = {Peer::Kind::attachment, {0, static_cast<uint32_t>(i)}};
  }
  for (const FabricOutage& outage : config.outages) {
    push({begin_ns + outage.from_ns, 0, {}, outage.end, Kind::link, 0, 0});
    if (outage.until_ns < kNever - begin_ns) push({begin_ns + outage.until_ns, 0, {}, outage.end, Kind::link, 1, 0});
  }
}

SoftFabric::~SoftFabric() = default;

bool SoftFabric::later(const Event& a, const Event& b) {
  return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
}

void SoftFabric::push(Event event) {
  event.order = order_++;
  events_.push_back(event);
  std::push_heap(events_.begin(), events_.end(), later);
}

Nanos SoftFabric::next_event() const {
  Nanos next_ns = events_.empty() ? kNever : events_.front().at_ns;
  for (const auto& node : nodes_) next_ns = std::min(next_ns, node->model.next_event());
  return next_ns;
}

void SoftFabric::advance(Nanos until_ns) {
  while (true) {
    Nanos next_ns = events_.empty() ? kNever : events_.front().at_ns;
    Node* first = nullptr;
    for (const auto& node : nodes_) {
      if (node->model.next_event() >= next_ns) continue;
      next_ns = node->model.next_event();
      first = node.get();
    }
    if (next_ns > until_ns || next_ns == kNever) break;
    now_ns_ = std::max(now_ns_, next_ns);
    if (first != nullptr) {
      first->model.advance(next_ns);
      continue;
    }
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = events_.back();
    events_.pop_back();
    take(event);
  }
  now_ns_ = std::max(now_ns_, until_ns);
}

void SoftFabric::take(const Event& event) {
  switch (event.kind) {
    case Kind::card_sent:
      cards_[event.end.port].sending = false;
      card_send(event.end.port, event.at_ns);
      return;
    case Kind::card_resumes: card_send(event.end.port, event.at_ns); return;
    case Kind::frame_in: nodes_[event.end.switch_index]->model.on_frame(event.end.port, event.frame, event.at_ns); return;
    case Kind::pause_in:
      nodes_[event.end.switch_index]->model.on_pause(event.end.port, event.priority, event.quanta, event.at_ns);
      return;
    case Kind::card_pause: card_paused(event.end.port, event.priority, event.quanta, event.at_ns); return;
    case Kind::link: link_changes(event.end, event.priority != 0, event.at_ns); return;
  }
}

void SoftFabric::set_link(const FabricEnd& end, bool up, Nanos at_ns) {
  at_ns = std::max(at_ns, now_ns_);
  advance(at_ns);
  link_changes(end, up, at_ns);
}

void SoftFabric::link_changes(const FabricEnd& end, bool up, Nanos at_ns) {
  nodes_[end.switch_index]->model.on_link(end.port, up, at_ns);
  const Peer& peer = peers_[end.switch_index][end.port];
  if (peer.kind == Peer::Kind::switch_port) nodes_[peer.end.switch_index]->model.on_link(peer.end.port, up, at_ns);
}

// ---- cards

uint8_t SoftFabric::priority_of(const FabricAttachment& attachment, uint8_t dscp) const {
  const SwitchConfig& config = config_.switches[attachment.end.switch_index];
  return config.group_to_priority[config.class_to_group[config.dscp_to_class[dscp & 63]]];
}

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
  card.queues[priority_of(config_.attachments[attachment], frame.dscp)].push_back({frame, order_++});
  ++inside_;
  if (!card.sending) card_send(attachment, at_ns);
  return true;
}

void SoftFabric::card_send(size_t attachment, Nanos now) {
  Card& card = cards_[attachment];
  if (card.sending) return;
  Ring<Waiting>* oldest = nullptr;
  for (size_t priority = 0; priority < kPriorities; ++priority) {
    Ring<Waiting>& queue = card.queues[priority];
    if (queue.empty() || card.paused_until_ns[priority] > now) continue;
    if (oldest == nullptr || queue.front().order < oldest->front().order) oldest = &queue;
  }
  if (oldest == nullptr) return;
  const SwitchFrame frame = oldest->front().frame;
  oldest->pop_front();
  card.counters.waiting_bytes -= frame.frame_bytes;
  card.sending = true;
  const FabricEnd& end = config_.attachments[attachment].end;
  const SwitchPortConfig& port = config_.switches[end.switch_index].ports[end.port];
  const Nanos sent_ns = now + line_ns(frame.frame_bytes, port.rate_bps);
  push({sent_ns, 0, {}, {0, static_cast<uint32_t>(attachment)}, Kind::card_sent, 0, 0});
  push({sent_ns + port.propagation_ns, 0, frame, end, Kind::frame_in, 0, 0});
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
  push({until_ns, 0, {}, {0, static_cast<uint32_t>(attachment)}, Kind::card_resumes, 0, 0});
}

void SoftFabric::pause_from_host(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) {
  at_ns = std::max(at_ns, now_ns_);
  advance(at_ns);
  const FabricEnd& end = config_.attachments[attachment].end;
  const SwitchPortConfig& port = config_.switches[end.switch_index].ports[end.port];
  const Nanos heard_ns = at_ns + line_ns(kPauseFrameBytes, port.rate_bps) + port.propagation_ns;
  push({heard_ns, 0, {}, end, Kind::pause_in, priority, quanta});
}

// ---- what switches send

void SoftFabric::transmitted(size_t from_switch, size_t port, const SwitchFrame& frame, Nanos end_ns) {
  const Peer& peer = peers_[from_switch][port];
  const Nanos at_ns = end_ns + config_.switches[from_switch].ports[port].propagation_ns;
  switch (peer.kind) {
    case Peer::Kind::nobody:
      --inside_;
      sink_.release(frame);
      return;
    case Peer::Kind::switch_port: push({at_ns, 0, frame, peer.end, Kind::frame_in, 0, 0}); return;
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
  const Nanos at_ns = end_ns + config_.switches[from_switch].ports[port].propagation_ns;
  if (peer.kind == Peer::Kind::switch_port) push({at_ns, 0, {}, peer.end, Kind::pause_in, priority, quanta});
  if (peer.kind != Peer::Kind::attachment) return;
  if (config_.attachments[peer.end.port].honours_pause) {
    push({at_ns, 0, {}, peer.end, Kind::card_pause, priority, quanta});
  }
  sink_.pause(peer.end.port, priority, quanta, at_ns);
}

// ---- counters

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

size_t SoftFabric::waiting_frames(size_t attachment, uint8_t dscp) const {
  return cards_[attachment].queues[priority_of(config_.attachments[attachment], dscp)].size();
}

}  // namespace etloop
