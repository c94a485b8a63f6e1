#include "qp/answer_timer.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr uint32_t kMostDoublings = 20;
constexpr uint32_t kMostProbeDoublings = 3;
// Of the least wait of a timeout, where nobody set that of a probe.
constexpr Nanos kProbesPerTimeout = 4;

}  // namespace

AnswerTimer::AnswerTimer(const TransportParams& params, uint32_t number)
    : timeout_ns_(params.timeout_ns),
      timeout_floor_ns_(std::min(params.timeout_floor_ns, params.timeout_ns)),
      tail_probe_ns_(params.tail_probe_ns < 0 ? timeout_floor_ns_ / kProbesPerTimeout : params.tail_probe_ns),
      retry_limit_(params.retry_limit),
      number_(number),
      adaptive_(params.adaptive_timeout) {}

void AnswerTimer::expire() { doublings_ = std::min(doublings_ + 1, kMostDoublings); }

// Two round trips and four deviations: what was lost in a queue that others fill is not asked for again before the queue is gone.
Nanos AnswerTimer::probe_ns() const {
  if (tail_probe_ns_ == 0 || !adaptive_) return kNever;
  const Nanos expected_ns = smoothed_rtt_ns_ < 0 ? 0 : 2 * smoothed_rtt_ns_ + 4 * rtt_deviation_ns_;
  return probe_base_ns_ + (std::max(expected_ns, tail_probe_ns_) << std::min(probes_, kMostProbeDoublings));
}

void AnswerTimer::measure_arrived(uint32_t psn, uint32_t count, Nanos now, Nanos& rtt_ns) {
  for (uint32_t i = sample_count_; i-- > 0;) {
    const Sample& sample = samples_[(sample_head_ + i) % samples_.size()];
    const int32_t offset = wire::psn_distance(sample.psn, psn);
    if (offset < 0 || offset >= static_cast<int32_t>(count)) continue;
    rtt_ns = now - sample.sent_ns;
    sample_head_ = (sample_head_ + i + 1) % static_cast<uint32_t>(samples_.size());
    sample_count_ -= i + 1;
    average(rtt_ns);
    return;
  }
}

void AnswerTimer::set_round_trip(Nanos round_trip_ns) {
  if (smoothed_rtt_ns_ < 0) average(round_trip_ns);
}

void AnswerTimer::average(Nanos rtt_ns) {
  doublings_ = 0;
  if (smoothed_rtt_ns_ < 0) {
    smoothed_rtt_ns_ = rtt_ns;
    rtt_deviation_ns_ = rtt_ns / 2;
    return;
  }
  const Nanos error_ns = rtt_ns - smoothed_rtt_ns_;
  rtt_deviation_ns_ += ((error_ns < 0 ? -error_ns : error_ns) - rtt_deviation_ns_) / 4;
  smoothed_rtt_ns_ += error_ns / 8;
}

// Adaptive: as long as all tries together last no longer than the fixed ones would, and never fewer of them: time that passed
// while this end did not run is not the peer's silence.
bool AnswerTimer::may_retry(Nanos now) {
  const bool tried_enough = retries_ >= retry_limit_;
  const bool exhausted =
      tried_enough && (!adaptive_ || now - progress_ns_ >= timeout_ns_ * static_cast<Nanos>(retry_limit_));
  if (!exhausted) ++retries_;
  return !exhausted;
}

}  // namespace etloop
