#include "switch_model.h"

#include <algorithm>
#include <cassert>

namespace etloop {

namespace {

constexpr uint8_t kCongestionExperienced = 3;
constexpr uint8_t kNotEcnCapable = 0;
constexpr size_t kFlowlets = 1 << 14;
constexpr int64_t kQuantumBytes = 2048;  // of weight 1; several rounds of small quanta cost time and change nothing

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

Nanos line_ns(int64_t frame_bytes, int64_t rate_bps) {
  const auto bits = static_cast<__int128>(frame_bytes + kLineOverheadBytes) * 8 * 1'000'000'000;
  return static_cast<Nanos>((bits + rate_bps - 1) / rate_bps);
}

Nanos pause_ns(uint16_t quanta, int64_t rate_bps) {
  return static_cast<Nanos>(static_cast<__int128>(quanta) * 512 * 1'000'000'000 / rate_bps);
}

uint64_t flow_key(const uint8_t (&src)[16], const uint8_t (&dst)[16], uint16_t src_port, uint16_t dst_port,
                  uint8_t protocol) {
  uint64_t key = 0x9E3779B97F4A7C15;
  for (size_t i = 0; i < 16; ++i) key = mixed(key + (uint64_t{src[i]} << 8 | dst[i]) + 1);
  return mixed(key + (uint64_t{src_port} << 24 | uint64_t{dst_port} << 8 | protocol));
}

size_t ecmp_choice(uint64_t flow_key, uint64_t seed, size_t ways) {
  return static_cast<size_t>(mixed(flow_key + mixed(seed + 0x9E3779B97F4A7C15)) % ways);
}

SwitchModel::SwitchModel(const SwitchConfig& config, SwitchSink& sink)
    : config_(config), sink_(sink), buffer_(config, counters_), random_state_(config.seed) {
  ports_.resize(config.ports.size());
  fault_seen_.assign(config.faults.size(), 0);
  if (config.balancing == LoadBalancing::flowlet) flowlets_.resize(kFlowlets);
}

uint64_t SwitchModel::random() { return mixed(random_state_ += 0x9E3779B97F4A7C15); }

bool SwitchModel::later(const Event& a, const Event& b) {
  return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
}

void SwitchModel::schedule(Nanos at_ns, Kind kind, size_t port, size_t lane, uint32_t packet) {
  events_.push_back({at_ns, order_++, kind, static_cast<uint16_t>(port), static_cast<uint8_t>(lane), packet});
  std::push_heap(events_.begin(), events_.end(), later);
}

uint32_t SwitchModel::take() {
  if (free_.empty()) {
    packets_.emplace_back();
    return static_cast<uint32_t>(packets_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  packets_[index] = {};
  return index;
}

void SwitchModel::on_frame(size_t port, const SwitchFrame& frame, Nanos now) {
  SwitchPortCounters& count = counters_.ports[port];
  ++count.rx_packets;
  count.rx_bytes += frame.frame_bytes;
  ++received_;
  const uint32_t packet = take();
  packets_[packet].frame = frame;
  packets_[packet].in_port = static_cast<uint16_t>(port);
  ++pending_;
  if (config_.latency_ns > 0) {
    schedule(now + config_.latency_ns, Kind::arrival, port, 0, packet);
  } else {
    arrived(packet, now);
  }
  check_conservation();
}

void SwitchModel::advance(Nanos now) {
  while (!events_.empty() && events_.front().at_ns <= now) {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = events_.back();
    events_.pop_back();
    switch (event.kind) {
      case Kind::arrival: arrived(event.packet, event.at_ns); break;
      case Kind::line_free:
        ports_[event.port].line_event = false;
        serve(event.port, event.at_ns);
        break;
      case Kind::pause_over:
        if (ports_[event.port].queues[event.lane].paused_until_ns <= event.at_ns) {
          set_paused(event.port, event.lane, 0, event.at_ns);
          kick(event.port, event.at_ns);
        }
        break;
      case Kind::refresh:
        if (ports_[event.port].xoff_sent[event.lane]) send_pause(event.port, event.lane, config_.pause_quanta, event.at_ns);
        break;
      case Kind::watchdog: look_for_storm(event.port, event.lane, event.at_ns); break;
    }
    check_conservation();
  }
}

// ---- in

void SwitchModel::arrived(uint32_t packet, Nanos now) {
  --pending_;
  Packet& p = packets_[packet];
  if (!ports_[p.in_port].up) {
    ++counters_.ports[p.in_port].link_dropped_packets;
    discard(packet, SwitchDrop::link_down, now);
    return;
  }
  const int32_t out = route(p.frame, now);
  if (out < 0) {
    ++counters_.ports[p.in_port].no_route_packets;
    discard(packet, SwitchDrop::no_route, now);
    return;
  }
  const auto out_port = static_cast<size_t>(out);
  if (faulted(packet, out_port, now)) return;
  const uint8_t traffic_class = config_.dscp_to_class[p.frame.dscp & 63];
  const size_t queue = config_.class_to_queue[traffic_class];
  p.group = config_.class_to_group[traffic_class];
  QueueCounters& out_count = counters_.ports[out_port].queues[queue];
  if (ports_[out_port].queues[queue].storm && config_.watchdog_action == WatchdogAction::drop) {
    ++out_count.watchdog_dropped_packets;
    discard(packet, SwitchDrop::watchdog, now);
    return;
  }
  const Admission admission = buffer_.admit(p.in_port, p.group, out_port, queue, p.frame.frame_bytes);
  if (admission == Admission::admitted) {
    enqueue(packet, out_port, queue, now);
    return;
  }
  if (trim(packet, out_port, now)) return;
  if (admission == Admission::group_full) {
    GroupCounters& group = counters_.ports[p.in_port].groups[p.group];
    ++group.dropped_packets;
    group.dropped_bytes += p.frame.frame_bytes;
  } else {
    ++out_count.dropped_packets;
    out_count.dropped_bytes += p.frame.frame_bytes;
  }
  discard(packet, admission == Admission::group_full ? SwitchDrop::group_full : SwitchDrop::queue_full, now);
}

bool SwitchModel::faulted(uint32_t packet, size_t out_port, Nanos now) {
  Packet& p = packets_[packet];
  for (size_t i = 0; i < config_.faults.size(); ++i) {
    const SwitchFault& fault = config_.faults[i];
    if (now < fault.from_ns || now >= fault.until_ns) continue;
    if (fault.in_port >= 0 && fault.in_port != p.in_port) continue;
    if (fault.out_port >= 0 && static_cast<size_t>(fault.out_port) != out_port) continue;
    ++fault_seen_[i];
    const bool turn = fault.every != 0 && fault_seen_[i] % fault.every == 0;
    const bool chance = fault.per_million != 0 && random() % 1'000'000 < fault.per_million;
    if (!turn && !chance) continue;
    if (fault.corrupt) {
      p.frame.corrupted = true;
      continue;
    }
    ++counters_.ports[p.in_port].fault_dropped_packets;
    discard(packet, SwitchDrop::fault, now);
    return true;
  }
  return false;
}

int32_t SwitchModel::route(const SwitchFrame& frame, Nanos now) {
  if (frame.destination >= config_.routes.size()) return -1;
  const std::vector<uint16_t>& ways = config_.routes[frame.destination];
  size_t up = 0;
  for (const uint16_t port : ways) up += ports_[port].up ? 1 : 0;
  if (up == 0) return -1;
  // The n-th of the ways whose link is up.
  const auto nth = [&](size_t n) {
    for (const uint16_t port : ways) {
      if (!ports_[port].up) continue;
      if (n-- == 0) return static_cast<int32_t>(port);
    }
    return -1;
  };
  if (up == 1) return nth(0);
  switch (config_.balancing) {
    case LoadBalancing::ecmp: return nth(ecmp_choice(frame.flow_key, config_.seed, up));
    case LoadBalancing::spray: return nth(static_cast<size_t>(random() % up));
    case LoadBalancing::flowlet: {
      Flowlet& flowlet = flowlets_[mixed(frame.flow_key + config_.seed) % kFlowlets];
      const bool goes_on = flowlet.used && flowlet.flow_key == frame.flow_key &&
                           now - flowlet.last_ns <= config_.flowlet_gap_ns && ports_[flowlet.port].up;
      if (!goes_on) flowlet = {frame.flow_key, now, static_cast<uint16_t>(nth(static_cast<size_t>(random() % up))), true};
      flowlet.last_ns = now;
      return flowlet.port;
    }
  }
  return -1;
}

bool SwitchModel::trim(uint32_t packet, size_t out_port, Nanos now) {
  Packet& p = packets_[packet];
  if (config_.trim_bytes == 0 || p.frame.trimmed || p.frame.frame_bytes <= config_.trim_bytes) return false;
  const uint8_t traffic_class = config_.dscp_to_class[config_.trim_dscp & 63];
  const size_t queue = config_.class_to_queue[traffic_class];
  const size_t group = config_.class_to_group[traffic_class];
  if (buffer_.admit(p.in_port, group, out_port, queue, config_.trim_bytes) != Admission::admitted) return false;
  ++counters_.ports[out_port].queues[config_.class_to_queue[config_.dscp_to_class[p.frame.dscp & 63]]].trimmed_packets;
  p.frame.trimmed = true;
  p.frame.dscp = config_.trim_dscp;
  p.frame.frame_bytes = static_cast<int32_t>(config_.trim_bytes);
  p.group = static_cast<uint8_t>(group);
  enqueue(packet, out_port, queue, now);
  return true;
}

void SwitchModel::enqueue(uint32_t packet, size_t out_port, size_t queue, Nanos now) {
  Packet& p = packets_[packet];
  Queue& q = ports_[out_port].queues[queue];
  p.next = kNone;
  if (q.tail == kNone) {
    q.head = packet;
  } else {
    packets_[q.tail].next = packet;
  }
  q.tail = packet;
  ++queued_packets_;
  if (!config_.queues[queue].mark_at_dequeue) {
    mark(p, out_port, queue, counters_.ports[out_port].queues[queue].current_bytes);
  }
  control_pause(p.in_port, p.group, now);
  if (q.paused_since_ns != kNever && !q.watched && config_.watchdog_detect_ns > 0) {
    q.watched = true;
    schedule(std::max(now, q.paused_since_ns) + config_.watchdog_detect_ns, Kind::watchdog, out_port, queue);
  }
  kick(out_port, now);
}

void SwitchModel::discard(uint32_t packet, SwitchDrop why, Nanos now) {
  ++dropped_;
  sink_.drop(packets_[packet].in_port, packets_[packet].frame, why, now);
  free_.push_back(packet);
}

// ---- out

void SwitchModel::kick(size_t port, Nanos now) {
  Port& p = ports_[port];
  if (p.line_event) return;
  if (p.free_ns > now) {
    p.line_event = true;
    schedule(p.free_ns, Kind::line_free, port, 0);
    return;
  }
  serve(port, now);
}

void SwitchModel::serve(size_t port, Nanos now) {
  Port& p = ports_[port];
  if (p.line_event || !p.up) return;
  if (p.free_ns > now) {
    kick(port, now);
    return;
  }
  const int queue = choose(p, now);
  if (queue < 0) return;
  send(port, static_cast<size_t>(queue), now);
  p.line_event = true;
  schedule(p.free_ns, Kind::line_free, port, 0);
}

int SwitchModel::choose(Port& port, Nanos now) {
  for (int queue = kPriorities - 1; queue >= 0; --queue) {
    const Queue& q = port.queues[queue];
    if (config_.queues[static_cast<size_t>(queue)].strict && q.head != kNone && q.paused_until_ns <= now) return queue;
  }
  return choose_weighted(port, now);
}

// Deficit round robin (Shreedhar and Varghese 1996): a queue's turn goes on while its deficit covers its next frame.
int SwitchModel::choose_weighted(Port& port, Nanos now) {
  const auto eligible = [&](size_t queue) {
    const Queue& q = port.queues[queue];
    return !config_.queues[queue].strict && q.head != kNone && q.paused_until_ns <= now;
  };
  bool any = false;
  for (size_t queue = 0; queue < kPriorities; ++queue) any = any || eligible(queue);
  if (!any) return -1;
  while (true) {
    const size_t queue = port.turn;
    Queue& q = port.queues[queue];
    if (eligible(queue)) {
      if (!port.turn_begun) {
        q.deficit_bytes += kQuantumBytes * config_.queues[queue].weight;
        port.turn_begun = true;
      }
      const int64_t next_bytes = packets_[q.head].frame.frame_bytes;
      if (q.deficit_bytes >= next_bytes) {
        q.deficit_bytes -= next_bytes;
        return static_cast<int>(queue);
      }
    } else if (q.head == kNone) {
      q.deficit_bytes = 0;  // an idle queue saves nothing up
    }
    port.turn = (queue + 1) % kPriorities;
    port.turn_begun = false;
  }
}

void SwitchModel::send(size_t port, size_t queue, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  const uint32_t packet = q.head;
  Packet& p = packets_[packet];
  q.head = p.next;
  if (q.head == kNone) q.tail = kNone;
  QueueCounters& count = counters_.ports[port].queues[queue];
  if (config_.queues[queue].mark_at_dequeue) mark(p, port, queue, count.current_bytes);
  const int64_t bytes = p.frame.frame_bytes;
  buffer_.release(p.in_port, p.group, port, queue, bytes);
  ++count.packets;
  count.bytes += bytes;
  ++counters_.ports[port].tx_packets;
  counters_.ports[port].tx_bytes += bytes;
  --queued_packets_;
  ++sent_;
  ports_[port].free_ns = now + line_ns(bytes, config_.ports[port].rate_bps);
  const SwitchFrame frame = p.frame;
  const size_t in_port = p.in_port;
  const size_t group = p.group;
  free_.push_back(packet);
  sink_.transmit(port, frame, now, ports_[port].free_ns);
  control_pause(in_port, group, now);
}

// RFC 3168 marking by the length of the queue, the frame itself included; `queue_bytes` is that length.
void SwitchModel::mark(Packet& packet, size_t port, size_t queue, int64_t queue_bytes) {
  const QueueConfig& rule = config_.queues[queue];
  if (!rule.ecn || packet.frame.ecn == kNotEcnCapable || packet.frame.ecn == kCongestionExperienced) return;
  if (queue_bytes < rule.kmin_bytes) return;
  if (queue_bytes < rule.kmax_bytes) {
    const auto span = static_cast<uint64_t>(rule.kmax_bytes - rule.kmin_bytes);
    const auto above = static_cast<uint64_t>(queue_bytes - rule.kmin_bytes);
    const uint64_t per_billion = uint64_t{rule.pmax_per_million} * 1000 * above / span;
    if (random() % 1'000'000'000 >= per_billion) return;
  }
  packet.frame.ecn = kCongestionExperienced;
  QueueCounters& count = counters_.ports[port].queues[queue];
  ++count.ecn_marked_packets;
  count.ecn_marked_bytes += packet.frame.frame_bytes;
}

void SwitchModel::flush(size_t port, size_t queue, SwitchDrop why, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  while (q.head != kNone) {
    const uint32_t packet = q.head;
    const Packet& p = packets_[packet];
    q.head = p.next;
    const size_t in_port = p.in_port;
    const size_t group = p.group;
    buffer_.release(in_port, group, port, queue, p.frame.frame_bytes);
    --queued_packets_;
    discard(packet, why, now);
    control_pause(in_port, group, now);
  }
  q.tail = kNone;
}

void SwitchModel::on_link(size_t port, bool up, Nanos now) {
  Port& p = ports_[port];
  p.up = up;
  for (size_t queue = 0; queue < kPriorities; ++queue) {
    if (!up) {
      const int64_t before = queued_packets_;
      flush(port, queue, SwitchDrop::link_down, now);
      counters_.ports[port].link_dropped_packets += before - queued_packets_;
    }
    set_paused(port, queue, 0, now);
  }
  for (bool& sent : p.xoff_sent) sent = false;
  if (up) {
    for (size_t group = 0; group < kPriorities; ++group) control_pause(port, group, now);
    kick(port, now);
  }
  check_conservation();
}

// ---- PFC

void SwitchModel::control_pause(size_t port, size_t group, Nanos now) {
  if (!config_.pfc || !config_.groups[group].lossless || !ports_[port].up) return;
  const size_t priority = config_.group_to_priority[group];
  bool& sent = ports_[port].xoff_sent[priority];
  if (!sent && buffer_.over_threshold(port, group)) {
    sent = true;
    send_pause(port, priority, config_.pause_quanta, now);
  } else if (sent && buffer_.under_resume(port, group)) {
    sent = false;
    send_pause(port, priority, 0, now);
  }
}

// A PFC frame goes before all queues, after the frame that is on the line.
void SwitchModel::send_pause(size_t port, size_t priority, uint16_t quanta, Nanos now) {
  Port& p = ports_[port];
  const int64_t rate_bps = config_.ports[port].rate_bps;
  p.free_ns = std::max(p.free_ns, now) + line_ns(kPauseFrameBytes, rate_bps);
  ++counters_.ports[port].pfc_tx[priority];
  sink_.pause(port, static_cast<uint8_t>(priority), quanta, p.free_ns);
  // Said again before half of it is over, as long as it holds.
  if (quanta != 0) schedule(now + std::max<Nanos>(1, pause_ns(quanta, rate_bps) / 2), Kind::refresh, port, priority);
}

void SwitchModel::on_pause(size_t port, uint8_t priority, uint16_t quanta, Nanos now) {
  ++counters_.ports[port].pfc_rx[priority];
  if (!config_.pfc) return;
  const size_t queue = config_.priority_to_queue[priority];
  Queue& q = ports_[port].queues[queue];
  q.last_pause_ns = now;
  if (q.storm && config_.watchdog_action == WatchdogAction::forward) return;
  const Nanos until_ns = quanta == 0 ? 0 : now + pause_ns(quanta, config_.ports[port].rate_bps);
  set_paused(port, queue, until_ns, now);
  if (until_ns == 0) {
    kick(port, now);
    return;
  }
  schedule(until_ns, Kind::pause_over, port, queue);
  if (q.head != kNone && !q.watched && config_.watchdog_detect_ns > 0) {
    q.watched = true;
    schedule(now + config_.watchdog_detect_ns, Kind::watchdog, port, queue);
  }
}

void SwitchModel::set_paused(size_t port, size_t queue, Nanos until_ns, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  const bool paused = until_ns > now;
  if (paused && q.paused_since_ns == kNever) q.paused_since_ns = now;
  if (!paused && q.paused_since_ns != kNever) {
    counters_.ports[port].queues[queue].paused_ns += now - q.paused_since_ns;
    q.paused_since_ns = kNever;
  }
  q.paused_until_ns = until_ns;
}

// The PFC watchdog (sonic-net/sonic-swss: pfcwd): a queue that stays paused with something to send is in a storm, until no
// pause has come for the restoration time.
void SwitchModel::look_for_storm(size_t port, size_t queue, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  if (q.storm) {
    const Nanos calm_ns = q.last_pause_ns + config_.watchdog_restore_ns;
    if (now < calm_ns) {
      schedule(calm_ns, Kind::watchdog, port, queue);
      return;
    }
    q.storm = false;
    q.watched = false;
    kick(port, now);
    return;
  }
  if (q.paused_since_ns == kNever || q.head == kNone) {
    q.watched = false;
    return;
  }
  if (now - q.paused_since_ns < config_.watchdog_detect_ns) {
    schedule(q.paused_since_ns + config_.watchdog_detect_ns, Kind::watchdog, port, queue);
    return;
  }
  q.storm = true;
  QueueCounters& count = counters_.ports[port].queues[queue];
  ++count.watchdog_storms;
  if (config_.watchdog_action == WatchdogAction::drop) {
    const int64_t before = queued_packets_;
    flush(port, queue, SwitchDrop::watchdog, now);
    count.watchdog_dropped_packets += before - queued_packets_;
  } else {
    set_paused(port, queue, 0, now);
    kick(port, now);
  }
  schedule(now + std::max<Nanos>(1, config_.watchdog_restore_ns), Kind::watchdog, port, queue);
}

// ---- counters

Nanos SwitchModel::paused_ns(size_t port, size_t queue, Nanos now) const {
  const Nanos since_ns = ports_[port].queues[queue].paused_since_ns;
  return counters_.ports[port].queues[queue].paused_ns + (since_ns == kNever ? 0 : std::max<Nanos>(0, now - since_ns));
}

SwitchCounters SwitchModel::counters(Nanos now) const {
  SwitchCounters found = counters_;
  for (size_t port = 0; port < ports_.size(); ++port) {
    for (size_t queue = 0; queue < kPriorities; ++queue) found.ports[port].queues[queue].paused_ns = paused_ns(port, queue, now);
  }
  return found;
}

void SwitchModel::check_conservation() const {
  assert(received_ == sent_ + dropped_ + queued_packets_ + pending_);
  assert(counters_.pool_bytes >= 0 && counters_.pool_bytes <= config_.buffer_bytes);
}

}  // namespace etloop
