#include "qp/answer_timer.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr uint32_t kMostDoublings = 20;

}  // namespace

AnswerTimer::AnswerTimer(const TransportParams& params)
    : timeout_ns_(params.timeout_ns),
      timeout_floor_ns_(std::min(params.timeout_floor_ns, params.timeout_ns)),
      retry_limit_(params.retry_limit),
      adaptive_(params.adaptive_timeout) {}

void AnswerTimer::expire() { doublings_ = std::min(doublings_ + 1, kMostDoublings); }

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
