// When selective repeat probes an end of which nothing is heard: well before the timeout, after the last packet that asked for an
// answer and the last answer, rarer with each (docs/transport.md). Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "plan/plan.h"

namespace etloop {

class TailProbe {
 public:
  explicit TailProbe(const TransportSettings& params)
      : least_ns_(params.recovery.tail_probe_ns < 0
                      ? std::min(params.recovery.timeout_floor_ns, params.timeout_ns) / kProbesPerTimeout
                      : params.recovery.tail_probe_ns),
        adaptive_(params.recovery.adaptive_timeout) {}

  // `patience_ns`: how long an answer may take by what round trips took. kNever: there is no probe.
  Nanos due_ns(Nanos patience_ns) const {
    if (least_ns_ == 0 || !adaptive_) return kNever;
    return base_ns_ + (std::max(patience_ns, least_ns_) << std::min(unanswered_, kMostDoublings));
  }
  void note_asked(Nanos now) { base_ns_ = std::max(base_ns_, now); }
  void note_answer(Nanos now) {
    base_ns_ = std::max(base_ns_, now);
    unanswered_ = 0;
  }
  void note_probe() { ++unanswered_; }
  void restart(Nanos now) { base_ns_ = now; }

 private:
  static constexpr uint32_t kMostDoublings = 3;
  // Of the least wait of a timeout, where nobody set that of a probe.
  static constexpr Nanos kProbesPerTimeout = 4;

  Nanos least_ns_;  // 0: there is none
  Nanos base_ns_ = 0;
  uint32_t unanswered_ = 0;  // probes in a row
  bool adaptive_;
};

}  // namespace etloop
