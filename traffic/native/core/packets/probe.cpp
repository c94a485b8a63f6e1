#include "core/packets/probe.h"

#include <algorithm>

namespace etloop {

void Prober::add(int32_t connection, int32_t ordinal, uint32_t qp) {
  Target target{};
  target.qp = qp;
  target.result.connection = connection;
  target.result.ordinal = ordinal;
  targets_.push_back(target);
}

void Prober::start(ProbeRounds rounds) {
  const auto rounds_per_target = static_cast<uint32_t>(kMeasuringProbes / std::max<size_t>(targets_.size(), 1));
  rounds_ = rounds == ProbeRounds::one ? 1 : std::clamp<uint32_t>(rounds_per_target, 1, kMostRounds);
  running_ = true;
}

int64_t Prober::next(Nanos now) {
  if (!running_) return -1;
  for (size_t i = 0; i < outstanding_.size();) {
    Target& target = targets_[outstanding_[i]];
    if (target.result.verdict == ProbeVerdict::pending) {
      if (target.attempts != 0 && now < target.sent_ns + target.timeout_ns) {
        ++i;
        continue;
      }
      if (target.attempts < most_attempts() || has_short_attempts(target)) return outstanding_[i];
      any_given_up_ = true;
      settle(target, target.answers_short ? ProbeVerdict::only_short : ProbeVerdict::no_reply);
    }
    outstanding_[i] = outstanding_.back();
    outstanding_.pop_back();
  }
  if (outstanding_.size() < kProbesAtOnce && next_target_ < targets_.size()) {
    outstanding_.push_back(static_cast<uint32_t>(next_target_));
    return static_cast<int64_t>(next_target_++);
  }
  return -1;
}

void Prober::sent(size_t target, Nanos now, Nanos timeout_ns) {
  Target& probed = targets_[target];
  ++(is_short(target) ? probed.short_attempts : probed.attempts);
  if (probed.attempts > 1) probed.was_retried = true;
  probed.timeout_ns = timeout_ns;
  probed.sent_ns = now;
}

void Prober::too_large(size_t target) { settle(targets_[target], ProbeVerdict::too_large); }

void Prober::unreachable(size_t target) {
  if (targets_[target].result.verdict == ProbeVerdict::pending) settle(targets_[target], ProbeVerdict::no_reply);
}

void Prober::on_reply(uint32_t target, uint8_t seen_class, uint8_t expected_class, Nanos now) {
  if (target >= targets_.size() || targets_[target].result.verdict != ProbeVerdict::pending) return;
  Target& probed = targets_[target];
  probed.result.seen_traffic_class = seen_class;
  // Ignore a duplicate reply while no probe is outstanding.
  if (probed.attempts == 0) return;
  const Nanos round_trip_ns = now - probed.sent_ns;
  const bool is_least = probed.replies == 0 || round_trip_ns < probed.result.round_trip_ns;
  if (is_least && !(probed.was_retried && probed.replies != 0)) probed.result.round_trip_ns = round_trip_ns;
  ++probed.replies;
  // The device may mark congestion (ECN bits 11) on an ECT packet; only the DSCP must be unchanged.
  const bool preserved = (seen_class >> 2) == (expected_class >> 2);
  if (preserved && probed.replies < rounds_ && !probed.was_retried) {
    probed.attempts = 0;
    return;
  }
  settle(probed, preserved ? ProbeVerdict::good : ProbeVerdict::wrong_traffic_class);
}

void Prober::on_short_reply(uint32_t target) {
  if (target < targets_.size()) targets_[target].answers_short = true;
}

void Prober::settle(Target& target, ProbeVerdict verdict) {
  target.result.verdict = verdict;
  ++settled_;
}

Nanos Prober::pending_deadline() const {
  if (outstanding_.size() < kProbesAtOnce && next_target_ < targets_.size()) return 0;
  Nanos earliest = kNever;
  for (const uint32_t index : outstanding_) {
    const Target& target = targets_[index];
    const bool waits = target.result.verdict == ProbeVerdict::pending && target.attempts != 0;
    earliest = std::min(earliest, waits ? target.sent_ns + target.timeout_ns : Nanos{0});
  }
  return earliest;
}

}  // namespace etloop
