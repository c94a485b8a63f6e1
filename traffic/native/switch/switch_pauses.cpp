// SwitchModel: PFC (IEEE 802.1Qbb): pausing senders, being paused, and the watchdog.
#include <algorithm>

#include "switch/switch_model.h"

namespace etloop {

namespace {

Nanos refresh_ns(uint16_t quanta, int64_t rate_bps) { return std::max<Nanos>(1, pause_ns(quanta, rate_bps) / 2); }

}  // namespace

void SwitchModel::pause_or_resume(size_t port, size_t group, Nanos now) {
  Port& p = ports_[port];
  if (!p.up) return;
  const size_t priority = config_.group_to_priority[group];
  const auto bit = static_cast<uint8_t>(1U << priority);
  if ((p.xoff_sent & bit) != 0) {
    if (!may_resume(port, priority)) return;
    p.xoff_sent ^= bit;
    --paused_senders_;
    send_pause(port, priority, 0, now);
  } else if (buffer_.over_threshold(port, group)) {
    p.xoff_sent |= bit;
    ++paused_senders_;
    send_pause(port, priority, config_.pause_quanta, now);
  }
}

// Several groups may use one priority; all of them must have room again.
bool SwitchModel::may_resume(size_t port, size_t priority) const {
  for (size_t group = 0; group < kPriorities; ++group) {
    if (config_.group_to_priority[group] != priority || !buffer_.rules(port).groups[group].lossless) continue;
    if (!buffer_.under_resume(port, group)) return false;
  }
  return true;
}

// A PFC frame goes before all queues, after the frame on the line.
void SwitchModel::send_pause(size_t port, size_t priority, uint16_t quanta, Nanos now) {
  Port& p = ports_[port];
  const int64_t rate_bps = config_.ports[port].rate_bps;
  const Nanos sent_ns = p.line.take(kPauseFrameBytes, now);
  ++counters_[port].pfc_tx[priority];
  sink_.pause(port, static_cast<uint8_t>(priority), quanta, sent_ns);
  if (quanta == 0) return;
  p.xoff_ns[priority] = now;
  if (p.refresh_event[priority]) return;
  p.refresh_event[priority] = true;
  schedule(now + refresh_ns(quanta, rate_bps), Kind::refresh, port, priority);
}

// Repeat a pause after half of its duration, as long as it is needed.
void SwitchModel::refresh_pause(size_t port, size_t priority, Nanos now) {
  Port& p = ports_[port];
  p.refresh_event[priority] = false;
  if ((p.xoff_sent >> priority & 1) == 0 || !p.up) return;
  const Nanos due_ns = p.xoff_ns[priority] + refresh_ns(config_.pause_quanta, config_.ports[port].rate_bps);
  if (due_ns <= now) {
    send_pause(port, priority, config_.pause_quanta, now);
    return;
  }
  p.refresh_event[priority] = true;  // it was resumed and paused again meanwhile
  schedule(due_ns, Kind::refresh, port, priority);
}

void SwitchModel::on_pause(size_t port, uint8_t priority, uint16_t quanta, Nanos now) {
  if (!ports_[port].connected) return;
  ++counters_[port].pfc_rx[priority];
  if (!buffer_.rules(port).pfc || !config_.ports[port].honours_pause) return;
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
  if (until_ns < q.over_event_ns) {
    q.over_event_ns = until_ns;
    schedule(until_ns, Kind::pause_over, port, queue);
  }
  if (q.head != kNone && !q.watched && config_.watchdog_detect_ns > 0) {
    q.watched = true;
    schedule(now + config_.watchdog_detect_ns, Kind::watchdog, port, queue);
  }
}

void SwitchModel::end_pause(size_t port, size_t queue, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  if (q.over_event_ns == now) q.over_event_ns = kNever;
  if (q.paused_until_ns > now) {
    if (q.paused_until_ns >= q.over_event_ns) return;
    q.over_event_ns = q.paused_until_ns;
    schedule(q.paused_until_ns, Kind::pause_over, port, queue);
  } else if (q.paused_since_ns != kNever) {
    set_paused(port, queue, 0, now);
    kick(port, now);
  }
}

void SwitchModel::set_paused(size_t port, size_t queue, Nanos until_ns, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  const bool paused = until_ns > now;
  if (paused && q.paused_since_ns == kNever) q.paused_since_ns = now;
  if (!paused && q.paused_since_ns != kNever) {
    counters_[port].queues[queue].paused_ns += now - std::max(q.paused_since_ns, counted_from_ns(begin_ns_));
    q.paused_since_ns = kNever;
  }
  q.paused_until_ns = until_ns;
}

// The PFC watchdog (sonic-net/sonic-swss: pfcwd): a non-empty queue that stays paused is in a storm, until no pause arrives for
// the restoration time.
void SwitchModel::check_storm(size_t port, size_t queue, Nanos now) {
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
  QueueCounters& count = counters_[port].queues[queue];
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

}  // namespace etloop
