#include "qp/answer_timer.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr uint8_t kMostDoublings = 20;

}  // namespace

AnswerTimer::AnswerTimer(const TransportSettings& params, uint32_t number)
    : adaptive_(params.recovery.adaptive_timeout),
      timeout_ns_(params.timeout_ns),
      timeout_floor_ns_(std::min(params.recovery.timeout_floor_ns, params.timeout_ns)),
      retry_limit_(params.retry_limit),
      number_(number) {}

void AnswerTimer::expire() {
  if (doublings_ < kMostDoublings) ++doublings_;
}

void AnswerTimer::measure_arrived(uint32_t psn, uint32_t count, Nanos now, Nanos& rtt_ns) {
  for (uint32_t i = sample_count_; i-- > 0;) {
    const Sample& sample = samples_[(sample_head_ + i) % kSamples];
    const int32_t offset = wire::psn_distance(sample.psn, psn);
    if (offset < 0 || offset >= static_cast<int32_t>(count)) continue;
    rtt_ns = now - sample.sent_ns;
    sample_head_ = static_cast<uint8_t>((sample_head_ + i + 1) % kSamples);
    sample_count_ = static_cast<uint8_t>(sample_count_ - i - 1);
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
