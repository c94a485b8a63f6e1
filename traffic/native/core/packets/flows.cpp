#include "core/packets/flows.h"

#include "plan/planes.h"
#include "wire/wire.h"

namespace etloop {

void Flows::load() {
  std::vector<FlowPath> paths(queue_pairs_.size());
  const uint32_t mtu = plan_.transport.path_mtu_bytes;
  const auto full_packet = static_cast<uint32_t>(wire::datagram_bytes(wire::Opcode::write_middle, mtu));
  // What keeps to one path keeps to one port.
  const bool keeps_one = plan_.transport.multipath.uet.order == DeliveryOrder::sent;
  const auto line_bps = static_cast<uint64_t>(keeps_one ? port_at(plan_, port_).link_bps : card_bps(plan_, port_));
  const uint64_t packets = plan_.transport.window_packets == 0 ? 64 : plan_.transport.window_packets;
  for (uint32_t q = 0; q < queue_pairs_.size(); ++q) {
    if (!queue_pairs_.place(q).sends_data) continue;
    paths[q] = {line_bps, packets * mtu, -1, mtu, full_packet + link_bytes(q)};
    if (plan_.series.interval_ns > 0 && (plan_.series.queue_pairs == 0 || watched_.size() < plan_.series.queue_pairs)) {
      watched_.push_back(q);
    }
  }
  controls_.load(plan_.congestion, paths);
  if (!watched_.empty()) series_ = std::make_unique<RateSeries>(plan_.series.interval_ns, watched_.size());
}

void Flows::start(Nanos now) {
  if (series_ == nullptr) return;
  series_->start(now);
  events_.push(now, EventKind::series_due, 0);
}

uint32_t Flows::allowed(uint32_t index, PacketRun& run, Nanos horizon_ns, Clock& clock) {
  FlowControl* control = controls_.of(index);
  if (control == nullptr) return run.count;
  const Nanos now = clock.now();
  const int64_t in_flight_bytes = int64_t{queue_pairs_[index].under_way_before(run.head.psn)} * plan_.transport.path_mtu_bytes;
  const bool answer_comes = queue_pairs_[index].answer_comes();
  const uint32_t packets = control->allowed(run.count, in_flight_bytes, answer_comes, now, horizon_ns);
  if (packets == 0) arm_timer(index, *control);
  if (horizon_ns != 0) run.departs_ns = control->departs_ns(now);
  return packets;
}

void Flows::arm_timer(uint32_t index, FlowControl& control) {
  const Nanos due = control.wake_ns();
  if (due >= control.event_ns) return;  // a timer that comes too early arms the next
  control.event_ns = due;
  events_.push(due, EventKind::flow_timer, index);
}

void Flows::sent(uint32_t index, const PacketRun& run, int64_t fresh_packets, Nanos now) {
  FlowControl* control = controls_.of(index);
  if (control == nullptr) return;
  const Qp& qp = queue_pairs_[index];
  const uint64_t datagram = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
  control->sent(run, run.count * (datagram + link_bytes(index)), static_cast<uint32_t>(fresh_packets), qp.in_flight_bytes(),
                qp.has_run(), now);
}

void Flows::acknowledged(uint32_t index, const AckOutcome& outcome, std::span<const etloop_cc_hop> hops, Nanos now) {
  FlowControl* control = controls_.of(index);
  if (control != nullptr) control->acknowledged(outcome, queue_pairs_[index].in_flight_bytes(), hops, now);
}

bool Flows::notified(uint32_t index, Nanos now) {
  FlowControl* control = controls_.of(index);
  if (control == nullptr || plan_.congestion.algorithm->on_cnp == nullptr) return false;
  control->notified(queue_pairs_[index].in_flight_bytes(), now);
  return true;
}

void Flows::timed_out(uint32_t index, Nanos now) {
  FlowControl* control = controls_.of(index);
  if (control != nullptr) control->timed_out(queue_pairs_[index].in_flight_bytes(), now);
}

void Flows::probed(uint32_t index, Nanos round_trip_ns, uint32_t window_packets) {
  FlowControl* control = controls_.of(index);
  if (control != nullptr) control->set_path(round_trip_ns, uint64_t{window_packets} * plan_.transport.path_mtu_bytes);
}

void Flows::write_series(Nanos now) {
  CcRecord* row = series_->sample(now);
  for (const uint32_t q : watched_) {
    const Qp& qp = queue_pairs_[q];
    FlowControl* control = controls_.of(q);
    *row = CcRecord{};
    row->time_ns = now;
    const EndProgress progress = progress_of(q);
    row->in_flight_bytes = progress.in_flight_bytes;
    row->tx_packets = qp.counters.tx_packets;
    row->rtt_ns = progress.smoothed_rtt_ns;
    row->connection = queue_pairs_.place(q).connection;
    row->local_qpn = qp.local_qpn();
    if (control != nullptr) {
      control->settle(now);
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
