#include "switch/switch_model.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace etloop {

namespace {

constexpr uint8_t kCongestionExperienced = 3;
constexpr uint64_t kMarkStream = 0x6D61726B73;  // streams with the same seed differ
constexpr uint64_t kFaultStream = 0x6661756C7473;
constexpr int64_t kQuantumBytes = 2048;  // of weight 1; smaller quanta cost several rounds and change nothing

}  // namespace

Nanos line_ns(int64_t frame_bytes, int64_t rate_bps) {
  return LineSpan::of(frame_bytes + kLineOverheadBytes, rate_bps).rounded_up_ns();
}

Nanos pause_ns(uint16_t quanta, int64_t rate_bps) { return LineSpan::of(int64_t{quanta} * 64, rate_bps).rounded_up_ns(); }

SwitchModel::SwitchModel(const SwitchConfig& config, SwitchSink& sink, Nanos begin_ns, FabricEvents& events, uint16_t owner)
    : config_(config),
      sink_(sink),
      counters_(config.ports.size()),
      buffer_(config),
      begin_ns_(begin_ns),
      events_(events),
      owner_(owner),
      ways_(config),
      random_{config.seed},
      mark_key_(mixed(config.mark_seed ^ kMarkStream)) {
  ports_.resize(config.ports.size());
  for (size_t port = 0; port < ports_.size(); ++port) ports_[port].line = FrameLine(config.ports[port].rate_bps);
  fault_seen_.assign(config.faults.size(), 0);
  pausing_groups_.assign(config.ports.size(), 0);
  for (size_t port = 0; port < ports_.size(); ++port) {
    const PortRules& rules = buffer_.rules(port);
    for (size_t number = 0; number < kPriorities; ++number) {
      if (rules.queues[number].strict) ports_[port].strict |= static_cast<uint8_t>(1U << number);
      if (rules.pfc && rules.groups[number].lossless) pausing_groups_[port] |= static_cast<uint8_t>(1U << number);
    }
  }
}

void SwitchModel::schedule(Nanos at_ns, Kind kind, size_t port, size_t lane, uint32_t number) {
  events_.push({at_ns, owner_, number, static_cast<uint16_t>(port), static_cast<uint8_t>(lane), static_cast<uint8_t>(kind)});
}

uint32_t SwitchModel::keep(const SwitchFrame& frame, size_t in_port) {
  auto index = static_cast<uint32_t>(packets_.size());
  if (free_.empty()) {
    packets_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  // Assign field by field: copying a just assembled struct would stall on store forwarding.
  Packet& kept = packets_[index];
  kept.frame = frame;
  kept.trimmed_here = false;
  kept.next = kNone;
  kept.in_port = static_cast<uint16_t>(in_port);
  kept.group = 0;
  return index;
}

void SwitchModel::on_frame(size_t port, const SwitchFrame& frame, Nanos now) {
  if (config_.latency_ns > 0) {
    expect_frame(port, frame, now);
    return;
  }
  arrived(keep(frame, port), now);
  check_conservation();
}

void SwitchModel::expect_frame(size_t port, const SwitchFrame& frame, Nanos at_ns) {
  schedule(at_ns + config_.latency_ns, Kind::arrival, port, 0, keep(frame, port));
}

void SwitchModel::expect_pause(size_t port, uint8_t priority, uint16_t quanta, Nanos at_ns) {
  schedule(at_ns, Kind::pause, port, priority, quanta);
}

void SwitchModel::take_rare(const FabricEvent& event) {
  switch (static_cast<Kind>(event.kind)) {
    case Kind::arrival:
    case Kind::line_free: break;  // in `take`
    case Kind::pause: on_pause(event.port, event.lane, static_cast<uint16_t>(event.number), event.at_ns); break;
    case Kind::pause_over: end_pause(event.port, event.lane, event.at_ns); break;
    case Kind::refresh: refresh_pause(event.port, event.lane, event.at_ns); break;
    case Kind::watchdog: check_storm(event.port, event.lane, event.at_ns); break;
  }
}

const char* text(SwitchModel::Kind kind) {
  using Kind = SwitchModel::Kind;
  switch (kind) {
    case Kind::arrival: return "a frame that arrives";
    case Kind::pause: return "a pause that arrives";
    case Kind::line_free: return "a line that falls free";
    case Kind::pause_over: return "a pause that is over";
    case Kind::refresh: return "a pause that is to be sent again";
    case Kind::watchdog: return "the watchdog of PFC";
  }
  return "an event";
}

// ---- in

void SwitchModel::arrived(uint32_t packet, Nanos now) {
  Packet& p = packets_[packet];
  ++received_;
  ++counters_[p.in_port].rx_packets;
  counters_[p.in_port].rx_bytes += p.frame.frame_bytes;
  if (!ports_[p.in_port].connected) {
    ++counters_[p.in_port].link_dropped_packets;
    discard(packet, SwitchDrop::link_down, now);
    return;
  }
  const int32_t out = route(p, now);
  if (out < 0) {
    ++counters_[p.in_port].no_route_packets;
    discard(packet, SwitchDrop::no_route, now);
    return;
  }
  const auto out_port = static_cast<size_t>(out);
  if (!config_.faults.empty() && faulted(packet, out_port, now)) [[unlikely]] return;
  const uint8_t traffic_class = config_.dscp_to_class[p.frame.dscp & 63];
  const size_t queue = config_.class_to_queue[traffic_class];
  p.group = config_.class_to_group[traffic_class];
  QueueCounters& out_count = counters_[out_port].queues[queue];
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
    GroupCounters& group = counters_[p.in_port].groups[p.group];
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
  const Nanos since_ns = now - begin_ns_;
  for (size_t i = 0; i < config_.faults.size(); ++i) {
    const SwitchFault& fault = config_.faults[i];
    if (since_ns < fault.from_ns || since_ns >= fault.until_ns) continue;
    if (fault.in_port >= 0 && fault.in_port != p.in_port) continue;
    if (fault.out_port >= 0 && static_cast<size_t>(fault.out_port) != out_port) continue;
    if (p.frame.frame_bytes <= fault.longer_than_bytes) continue;
    ++fault_seen_[i];
    const bool turn = fault.every != 0 && fault_seen_[i] % fault.every == 0;
    const bool chance = fault.per_million != 0 && fault_draw(i) % 1'000'000 < fault.per_million;
    if (!turn && !chance) continue;
    if (fault.corrupt) {
      if (!p.frame.corrupted) ++counters_[p.in_port].fault_corrupted_packets;
      p.frame.corrupted = true;
      continue;
    }
    ++counters_[p.in_port].fault_dropped_packets;
    discard(packet, SwitchDrop::fault, now);
    return true;
  }
  return false;
}

int32_t SwitchModel::route(const Packet& packet, Nanos now) {
  const SwitchFrame& frame = packet.frame;
  std::span<const uint16_t> ways;
  if (frame.segmented) [[unlikely]] {
    ways = ways_.open(config_.usids.follow(sink_.segment_of(frame), [&] { return sink_.next_segment(frame); }));
  } else {
    ways = ways_.to(frame.destination);
  }
  if (ways.empty()) return -1;
  const auto key = [&] {
    const HashFields fields = config_.ways.hash_fields;
    if (fields == kFiveTuple) [[likely]] return frame.flow_key;
    const uint64_t found = sink_.hash_key(frame, fields);
    return (fields & bit_of(HashField::in_port)) != 0 ? mixed(found + packet.in_port + 1) : found;
  };
  const size_t queue = config_.class_to_queue[config_.dscp_to_class[frame.dscp & 63]];
  const auto load = [&](uint16_t port) {
    return buffer_.lane(port, queue).queue_bytes + (ports_[port].line.free_ns() > now ? 1 : 0);
  };
  return ways_.choose(ways, frame.entropy, now, random_, key, load);
}

bool SwitchModel::trim(uint32_t packet, size_t out_port, Nanos now) {
  Packet& p = packets_[packet];
  const SwitchTrimming& rule = config_.trimming;
  // A packet that was trimmed before, here or elsewhere, is never trimmed again.
  if (rule.frame_bytes == 0 || p.frame.trimmed || rule.is_mark(p.frame.dscp)) return false;
  if ((rule.exempt_dscps >> (p.frame.dscp & 63) & 1) != 0) return false;
  const size_t refused_by = config_.class_to_queue[config_.dscp_to_class[p.frame.dscp & 63]];
  const uint8_t dscp = rule.dscp_at(config_.ports[out_port].to_host);
  const uint8_t traffic_class = config_.dscp_to_class[dscp & 63];
  const size_t queue = rule.queue >= 0 ? static_cast<size_t>(rule.queue) : config_.class_to_queue[traffic_class];
  // Nor are packets of the queue for trimmed packets, whose room the trimmed packet would need.
  if (!buffer_.rules(out_port).queues[refused_by].trims || queue == refused_by) return false;
  const size_t group = config_.class_to_group[traffic_class];
  const auto trimmed_bytes = std::min(p.frame.frame_bytes, static_cast<int32_t>(rule.frame_bytes));
  QueueCounters& refusing = counters_[out_port].queues[refused_by];
  ++refusing.trimmed_packets;
  if (buffer_.admit(p.in_port, group, out_port, queue, trimmed_bytes) != Admission::admitted) {
    ++refusing.trim_dropped_packets;
    return false;
  }
  // A packet not longer than the trimmed size stays whole, but is marked.
  p.frame.trimmed = trimmed_bytes < p.frame.frame_bytes;
  p.trimmed_here = true;
  p.frame.dscp = dscp;
  p.frame.frame_bytes = trimmed_bytes;
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
  ports_[out_port].filled |= static_cast<uint8_t>(1U << queue);
  ++queued_packets_;
  if (!buffer_.rules(out_port).queues[queue].mark_at_dequeue) {
    mark(p, out_port, queue, buffer_.lane(out_port, queue).queue_bytes);
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
  if (p.line.free_ns() > now) {
    p.line_event = true;
    schedule(p.line.free_ns(), Kind::line_free, port, 0);
    return;
  }
  serve(port, now);
}

void SwitchModel::serve(size_t port, Nanos now) {
  Port& p = ports_[port];
  if (p.line_event || !p.up) return;
  if (p.line.free_ns() > now) {
    kick(port, now);
    return;
  }
  const int queue = choose(port, now);
  if (queue < 0) return;
  // In this order: sending may cause a pause frame, which goes before the next frame.
  send(port, static_cast<size_t>(queue), now);
  if (p.filled == 0 || p.line_event) return;
  p.line_event = true;
  schedule(p.line.free_ns(), Kind::line_free, port, 0);
}

int SwitchModel::choose(size_t number, Nanos now) {
  Port& port = ports_[number];
  if ((port.filled & (port.filled - 1)) == 0) {  // at most one queue
    if (port.filled == 0) return -1;
    const int queue = std::countr_zero(port.filled);
    return port.queues[queue].paused_until_ns <= now ? queue : -1;
  }
  for (unsigned left = port.filled & port.strict; left != 0;) {
    const int queue = std::bit_width(left) - 1;
    if (port.queues[queue].paused_until_ns <= now) return queue;
    left &= ~(1U << queue);
  }
  return choose_weighted(number, now);
}

// Deficit round robin (Shreedhar and Varghese 1996): a queue's turn continues while its deficit covers its next frame.
int SwitchModel::choose_weighted(size_t number, Nanos now) {
  Port& port = ports_[number];
  unsigned ready = 0;
  for (unsigned left = port.filled & ~unsigned{port.strict}; left != 0; left &= left - 1) {
    const int queue = std::countr_zero(left);
    if (port.queues[queue].paused_until_ns <= now) ready |= 1U << queue;
  }
  if (ready == 0) return -1;
  if ((ready & (ready - 1)) == 0) return std::countr_zero(ready);  // the only ready queue
  while (true) {
    const size_t queue = port.turn;
    Queue& q = port.queues[queue];
    if ((ready >> queue & 1) != 0) {
      if (!port.turn_begun) {
        q.deficit_bytes += kQuantumBytes * buffer_.rules(number).queues[queue].weight;
        port.turn_begun = true;
      }
      const int64_t next_bytes = packets_[q.head].frame.frame_bytes;
      if (q.deficit_bytes >= next_bytes) {
        q.deficit_bytes -= next_bytes;
        return static_cast<int>(queue);
      }
    } else if (q.head == kNone) {
      q.deficit_bytes = 0;  // an idle queue saves no deficit
    }
    port.turn = static_cast<uint8_t>((queue + 1) % kPriorities);
    port.turn_begun = false;
  }
}

void SwitchModel::send(size_t port, size_t queue, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  const uint32_t packet = q.head;
  Packet& p = packets_[packet];
  q.head = p.next;
  if (q.head == kNone) {
    q.tail = kNone;
    ports_[port].filled &= static_cast<uint8_t>(~(1U << queue));
  } else {
    prefetch(&packets_[q.head]);
  }
  LaneUse& use = buffer_.lane(port, queue);
  if (buffer_.rules(port).queues[queue].mark_at_dequeue) mark(p, port, queue, use.queue_bytes);
  const int32_t bytes = p.frame.frame_bytes;
  buffer_.release(p.in_port, p.group, port, queue, bytes);
  --queued_packets_;
  const Nanos sent_ns = ports_[port].line.take(bytes, now);
  const size_t in_port = p.in_port;
  const size_t group = p.group;
  if (!ports_[port].connected) [[unlikely]] {  // link failure not noticed yet
    ++counters_[port].link_dropped_packets;
    discard(packet, SwitchDrop::link_down, now);
    control_pause(in_port, group, now);
    return;
  }
  if (p.trimmed_here) [[unlikely]] ++counters_[port].queues[queue].trim_sent_packets;
  ++use.sent_packets;
  use.sent_bytes += bytes;
  ++counters_[port].tx_packets;
  counters_[port].tx_bytes += bytes;
  ++sent_;
  const SwitchFrame frame = p.frame;
  free_.push_back(packet);
  sink_.transmit(port, frame, now, sent_ns);
  control_pause(in_port, group, now);
}

// RFC 3168 marking by queue length, including the frame itself.
void SwitchModel::mark_above_kmin(Packet& packet, size_t port, size_t queue, int64_t queue_bytes, uint64_t number) {
  const QueueConfig& rule = buffer_.rules(port).queues[queue];
  if (packet.frame.trimmed) return;  // trimming is already the congestion signal
  if (!rule.ecn || packet.frame.ecn == kCongestionExperienced) return;
  if (queue_bytes < rule.kmax_bytes) {
    const auto span = static_cast<uint64_t>(rule.kmax_bytes - rule.kmin_bytes);
    const auto above = static_cast<uint64_t>(queue_bytes - rule.kmin_bytes);
    const uint64_t per_billion = uint64_t{rule.pmax_per_million} * 1000 * above / span;
    if (mark_draw(port, queue, number) % 1'000'000'000 >= per_billion) return;
  }
  packet.frame.ecn = kCongestionExperienced;
  QueueCounters& count = counters_[port].queues[queue];
  ++count.ecn_marked_packets;
  count.ecn_marked_bytes += packet.frame.frame_bytes;
}

uint64_t SwitchModel::mark_draw(size_t port, size_t queue, uint64_t number) const {
  return mixed(mixed(mark_key_ + port * kPriorities + queue) + number);
}

uint64_t SwitchModel::fault_draw(size_t fault) const {
  return mixed(mixed(mixed(config_.fault_seed ^ kFaultStream) + fault) + static_cast<uint64_t>(fault_seen_[fault]));
}

// ---- counters

void SwitchModel::begin(Nanos now) {
  std::fill(counters_.begin(), counters_.end(), SwitchPortCounters{});
  buffer_.begin_counting();
  std::fill(fault_seen_.begin(), fault_seen_.end(), 0);
  begin_ns_ = now;
}

Nanos SwitchModel::paused_ns(size_t port, size_t queue, Nanos now) const {
  const Nanos since_ns = ports_[port].queues[queue].paused_since_ns;
  const Nanos still_ns = since_ns == kNever ? 0 : std::max<Nanos>(0, now - std::max(since_ns, counted_from_ns(begin_ns_)));
  return counters_[port].queues[queue].paused_ns + still_ns;
}

SwitchPortCounters SwitchModel::counted(size_t port) const {
  SwitchPortCounters found = counters_[port];
  for (size_t number = 0; number < kPriorities; ++number) {
    const LaneUse& use = buffer_.lane(port, number);
    QueueCounters& queue = found.queues[number];
    queue.packets = use.sent_packets;
    queue.bytes = use.sent_bytes;
    queue.current_bytes = use.queue_bytes;
    queue.watermark_bytes = use.queue_watermark_bytes;
    GroupCounters& group = found.groups[number];
    group.current_bytes = use.group_bytes;
    group.shared_watermark_bytes = use.shared_watermark_bytes;
    group.headroom_bytes = use.headroom_bytes;
    group.headroom_watermark_bytes = use.headroom_watermark_bytes;
  }
  return found;
}

SwitchCounters SwitchModel::counters(Nanos now) const {
  SwitchCounters found;
  for (size_t port = 0; port < ports_.size(); ++port) {
    found.ports.push_back(counted(port));
    for (size_t queue = 0; queue < kPriorities; ++queue) found.ports[port].queues[queue].paused_ns = paused_ns(port, queue, now);
  }
  found.pool_bytes = buffer_.used_bytes();
  found.pool_watermark_bytes = buffer_.watermark_bytes();
  return found;
}

}  // namespace etloop
