#include "cc/flow_control.h"

#include <algorithm>

namespace etloop {

FlowControl::FlowControl(const CongestionParams& params, const FlowPath& path, void* state)
    : table_(params.algorithm),
      state_(state),
      path_{params.parameters.data(), path.line_rate_bps, path.most_window_bytes, path.base_rtt_ns, path.mtu_bytes,
            path.packet_bytes},
      pacer_(params.pacing.catch_up_ns),
      burst_bytes_(params.pacing.burst_bytes),
      limit_bps_(params.pacing.limit_bps == 0 ? UINT64_MAX : params.pacing.limit_bps) {}

void FlowControl::set_path(Nanos base_rtt_ns, uint64_t most_window_bytes) {
  if (begun_) return;
  path_.base_rtt_ns = base_rtt_ns;
  path_.most_window_bytes = most_window_bytes;
}

void FlowControl::begin(Nanos now) {
  begun_ = true;
  table_->init(state_, &path_, now, &decision_);
  decided(now);
}

void FlowControl::decided(Nanos now) {
  // A rate of at least the line rate needs no pacing: the link does it.
  const auto unlimited = [](uint64_t rate_bps) { return rate_bps == 0 ? UINT64_MAX : rate_bps; };
  const uint64_t rate = std::min(unlimited(decision_.rate_bps), limit_bps_);
  pacer_.set_rate(rate >= path_.line_rate_bps ? 0 : rate, now);
  timer_ns_ = table_->next_timer_ns == nullptr ? kNever : table_->next_timer_ns(state_);
}

void FlowControl::settle(Nanos now) {
  if (timer_ns_ > now) return;
  table_->on_timer(state_, &path_, now, &decision_);
  decided(now);
}

uint32_t FlowControl::burst_packets() const {
  const auto bytes = static_cast<uint64_t>(static_cast<double>(pacer_.rate_bps()) * kBurstNs / 8e9);
  return static_cast<uint32_t>(std::max<uint64_t>(1, std::min<uint64_t>(bytes, burst_bytes_) / path_.packet_bytes));
}

Nanos FlowControl::ahead_of(Nanos horizon_ns) const {
  if (horizon_ns == 0 || pacer_.rate_bps() == 0) return 0;
  const bool closed_loop = table_->on_ack != nullptr || table_->on_cnp != nullptr || table_->on_nak != nullptr ||
                       table_->on_timeout != nullptr;
  const uint64_t burst_bits = uint64_t{burst_packets()} * path_.packet_bytes * 8;
  const auto burst_ns = static_cast<Nanos>(burst_bits * 1'000'000'000 / pacer_.rate_bps());
  return std::min({horizon_ns, closed_loop ? kClosedLoopAheadNs : kOpenLoopAheadNs, kMostBurstsAhead * burst_ns});
}

uint32_t FlowControl::allowed(uint32_t packets, int64_t in_flight_bytes, bool answer_comes, Nanos now, Nanos horizon_ns) {
  if (!begun_) begin(now);
  settle(now);
  window_closed_ = exceeds_window_ = false;
  if (decision_.window_bytes != 0 && in_flight_bytes > 0) {
    const int64_t room = static_cast<int64_t>(std::min<uint64_t>(decision_.window_bytes, INT64_MAX)) - in_flight_bytes;
    if (room < path_.mtu_bytes && answer_comes) {
      window_closed_ = true;
      busy_ = false;
      return 0;
    }
    exceeds_window_ = room < path_.mtu_bytes;
    packets = static_cast<uint32_t>(std::clamp<int64_t>(room / path_.mtu_bytes, 1, packets));
  } else if (decision_.window_bytes != 0) {
    packets = static_cast<uint32_t>(
        std::clamp<uint64_t>(decision_.window_bytes / path_.mtu_bytes, 1, packets));
  }
  if (pacer_.rate_bps() == 0) return packets;
  if (!busy_) pacer_.begin_busy(now);
  busy_ = true;
  ahead_ns_ = ahead_of(horizon_ns);
  if (!pacer_.due(now, ahead_ns_)) return 0;
  return std::min(packets, burst_packets());
}

// Packets in flight after the last one that requests an acknowledgement, including the run.
uint32_t FlowControl::unrequested_with(const PacketRun& run) const {
  const uint32_t asked = last_asked(run);
  return asked == kNoPacket ? unrequested_packets_ + run.count : run.head.psn + run.count - 1 - asked;
}

void FlowControl::ask(PacketRun& run) const {
  if (decision_.window_bytes == 0) return;
  const uint64_t half_window = decision_.window_bytes / path_.mtu_bytes / 2;
  if (exceeds_window_ || unrequested_with(run) >= std::max<uint64_t>(half_window, 1)) ask_at_end(run);
}

// Wake `ahead_ns_ / 2` before the next departure: one wake-up hands over several bursts and may be late by that half.
Nanos FlowControl::wake_ns() const {
  return window_closed_ ? timer_ns_ : std::min(pacer_.next_ns() - ahead_ns_ / 2, timer_ns_);
}

void FlowControl::sent(const PacketRun& run, uint64_t wire_bytes, uint32_t fresh_packets, int64_t in_flight_bytes, bool more,
                       Nanos now) {
  unrequested_packets_ = unrequested_with(run);
  if (ahead_ns_ != 0) handed_until_ns_ = std::max(handed_until_ns_, pacer_.next_ns());
  pacer_.sent(wire_bytes);
  busy_ = busy_ && more;
  sent_total_bytes_ += uint64_t{fresh_packets} * path_.mtu_bytes;
  if (table_->on_sent == nullptr) return;
  const etloop_cc_sent event{now, wire_bytes, sent_total_bytes_, static_cast<uint64_t>(in_flight_bytes)};
  table_->on_sent(state_, &path_, &event, &decision_);
  decided(now);
}

etloop_cc_signal FlowControl::signal(int64_t in_flight_bytes, Nanos now) const {
  return {now, acked_total_bytes_, sent_total_bytes_, static_cast<uint64_t>(in_flight_bytes)};
}

void FlowControl::acknowledged(const AckOutcome& outcome, int64_t in_flight_bytes, std::span<const etloop_cc_hop> hops,
                               Nanos now) {
  if (!begun_) return;
  const uint64_t bytes = uint64_t{outcome.packets} * path_.mtu_bytes;
  acked_total_bytes_ += bytes;
  if (outcome.rtt_ns >= 0) last_rtt_ns_ = outcome.rtt_ns;
  settle(now);
  if (outcome.packets > 0 && table_->on_ack != nullptr) {
    const etloop_cc_ack event{now,
                              outcome.rtt_ns,
                              bytes,
                              acked_total_bytes_,
                              sent_total_bytes_,
                              static_cast<uint64_t>(in_flight_bytes),
                              outcome.ecn_echo ? 1U : 0U,
                              static_cast<uint32_t>(hops.size()),
                              hops.data()};
    table_->on_ack(state_, &path_, &event, &decision_);
  }
  if (outcome.nak && table_->on_nak != nullptr) {
    const etloop_cc_signal event = signal(in_flight_bytes, now);
    for (uint32_t lost = std::max(outcome.lost_packets, 1U); lost > 0; --lost) {
      table_->on_nak(state_, &path_, &event, &decision_);
    }
  }
  decided(now);
}

void FlowControl::notified(int64_t in_flight_bytes, Nanos now) {
  if (!begun_) return;
  settle(now);
  if (table_->on_cnp == nullptr) return;
  const etloop_cc_signal event = signal(in_flight_bytes, now);
  table_->on_cnp(state_, &path_, &event, &decision_);
  decided(now);
}

void FlowControl::timed_out(int64_t in_flight_bytes, Nanos now) {
  if (!begun_) return;
  settle(now);
  if (table_->on_timeout == nullptr) return;
  const etloop_cc_signal event = signal(in_flight_bytes, now);
  table_->on_timeout(state_, &path_, &event, &decision_);
  decided(now);
}

}  // namespace etloop
