// Congestion control in a port's core: which queue pair may send now, when it is asked again, and what is written down.
#include <algorithm>

#include "core/core.h"

namespace etloop {

void Core::load_flow_controls() {
  std::vector<FlowPath> paths(qps_.size());
  const PlannedPort& port = plan_.ports[static_cast<size_t>(port_)];
  const uint32_t mtu = plan_.transport.path_mtu;
  const auto full_packet = static_cast<uint32_t>(wire::datagram_bytes(wire::Opcode::write_middle, mtu));
  const uint64_t packets = plan_.transport.window_packets == 0 ? 64 : plan_.transport.window_packets;
  for (uint32_t q = 0; q < qps_.size(); ++q) {
    if (!places_[q].sends_data) continue;
    paths[q] = {static_cast<uint64_t>(port.link_bps), packets * mtu, -1, mtu, full_packet + link_bytes(q)};
    if (plan_.series.interval_ns > 0 && (plan_.series.queue_pairs == 0 || watched_.size() < plan_.series.queue_pairs)) {
      watched_.push_back(q);
    }
  }
  flow_controls_.load(plan_.congestion, paths);
  if (!watched_.empty()) series_ = std::make_unique<RateSeries>(plan_.series.interval_ns, watched_.size());
}

uint32_t Core::link_bytes(uint32_t index) const {
  return (places_[index].peer_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6) +
         plan_.ports[static_cast<size_t>(port_)].tag_bytes;
}

// Cuts a run to what may leave now. 0: the queue pair rests, and a timer or a packet takes it up again.
uint32_t Core::allowed_packets(uint32_t index, PacketRun& run, Nanos horizon_ns, Clock& clock) {
  FlowControl* control = flow_controls_.of(index);
  if (control == nullptr) return run.count;
  const Nanos now = clock.now();
  // What lies ahead of the run counts; what is to be sent again behind it is no longer under way.
  const int32_t ahead = wire::psn_distance(run.head.psn, qps_[index].oldest_unacknowledged());
  const int64_t in_flight_bytes = static_cast<int64_t>(std::max(ahead, 0)) * plan_.transport.path_mtu;
  const uint32_t allowed = control->allowed(run.count, in_flight_bytes, now, horizon_ns);
  if (allowed == 0) arm_flow_timer(index, *control);
  if (horizon_ns != 0) run.departs_ns = control->departs_ns(now);
  return allowed;
}

void Core::arm_flow_timer(uint32_t index, FlowControl& control) {
  const Nanos due = control.wake_ns();
  if (due >= control.event_ns) return;  // a timer that comes too early arms the next
  control.event_ns = due;
  events_.push(due, EventKind::flow_timer, index);
}

void Core::on_flow_timer(uint32_t index, Nanos due_ns) {
  FlowControl& control = *flow_controls_.of(index);
  if (control.event_ns <= due_ns) control.event_ns = kNever;
  if (qps_[index].has_run()) queue_transmit(index);
}

void Core::flow_sent(uint32_t index, const PacketRun& run, int64_t fresh_packets, Nanos now) {
  FlowControl* control = flow_controls_.of(index);
  if (control == nullptr) return;
  const uint64_t datagram = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
  control->sent(run, run.count * (datagram + link_bytes(index)), static_cast<uint32_t>(fresh_packets),
                qps_[index].in_flight_bytes(), qps_[index].has_run(), now);
}

void Core::flow_acknowledged(uint32_t index, const AckOutcome& outcome, std::span<const etloop_cc_hop> hops, Nanos now) {
  FlowControl* control = flow_controls_.of(index);
  if (control != nullptr) control->acknowledged(outcome, qps_[index].in_flight_bytes(), hops, now);
}

void Core::flow_notified(uint32_t index, Nanos now) {
  FlowControl* control = flow_controls_.of(index);
  if (control == nullptr || plan_.congestion.algorithm->on_cnp == nullptr) {
    ++qps_[index].counters.rp_cnp_ignored;
    return;
  }
  ++qps_[index].counters.rp_cnp_handled;
  forget_held(index);
  control->notified(qps_[index].in_flight_bytes(), now);
}

void Core::flow_timed_out(uint32_t index, Nanos now) {
  FlowControl* control = flow_controls_.of(index);
  if (control != nullptr) control->timed_out(qps_[index].in_flight_bytes(), now);
}

void Core::flow_probed(uint32_t index, Nanos round_trip_ns, uint32_t window_packets) {
  FlowControl* control = flow_controls_.of(index);
  if (control != nullptr) control->set_path(round_trip_ns, uint64_t{window_packets} * plan_.transport.path_mtu);
}

void Core::write_series(Nanos now) {
  forget_held();  // rates are settled on the way
  CcRecord* row = series_->sample(now);
  for (const uint32_t q : watched_) {
    const FlowControl* control = flow_controls_.of(q);
    *row = CcRecord{};
    row->time_ns = now;
    row->in_flight_bytes = qps_[q].in_flight_bytes();
    row->tx_packets = qps_[q].counters.tx_packets;
    row->rtt_ns = qps_[q].smoothed_rtt_ns();
    row->connection = places_[q].connection;
    row->local_qpn = qps_[q].local_qpn();
    if (control != nullptr) {
      flow_controls_.of(q)->settle(now);
      row->rate_bps = static_cast<int64_t>(control->decision().rate_bps);
      row->window_bytes = static_cast<int64_t>(control->decision().window_bytes);
      row->acked_bytes = static_cast<int64_t>(control->acked_bytes());
      row->rtt_ns = control->last_rtt_ns();
    }
    ++row;
  }
  events_.push(series_->due_ns(), EventKind::series_due, 0);
}

}  // namespace etloop
