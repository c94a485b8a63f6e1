// How long a requester waits for an answer: fixed, as the specification has it, or by what round trips took
// (docs/transport.md), and how often it tries again before it gives its peer up.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"
#include "plan/plan.h"
#include "wire/wire.h"

namespace etloop {

class AnswerTimer {
 public:
  // `number`: of the queue pair, which long waits are spread by.
  explicit AnswerTimer(const TransportSettings& params, uint32_t number = 0);

  // When the wait is over.
  Nanos deadline() const { return base_ns_ + wait_ns(); }
  void restart(Nanos now) { base_ns_ = now; }
  Nanos base_ns() const { return base_ns_; }
  // Something moved.
  void note_progress(Nanos now) {
    retries_ = 0;
    base_ns_ = now;
    progress_ns_ = now;
    if (doublings_ > 0) --doublings_;
  }
  // Something is under way, and nothing was before.
  void note_start(Nanos now) { progress_ns_ = now; }
  // How often something was sent again since anything moved, and since when nothing has.
  uint32_t retries() const { return retries_; }
  Nanos progress_ns() const { return progress_ns_; }

  bool adaptive() const { return adaptive_; }
  // No wait for an answer is shorter: where it adapts the floor, else the whole wait.
  Nanos least_wait_ns() const { return adaptive_ ? timeout_floor_ns_ : timeout_ns_; }
  // Whether the wait is less than the specification's.
  bool is_short() const { return doubled_ns() < timeout_ns_; }
  // The wait was over; the next is longer.
  void expire();
  // Another try without progress. False: there were enough.
  bool may_retry(Nanos now);

  // A packet that asks for an acknowledgement was sent for the first time.
  void note_sent(uint32_t psn, Nanos now) {
    if (sample_count_ < kSamples) samples_[(sample_head_ + sample_count_++) % kSamples] = {psn, now};
  }
  // What was sent is sent again: its answers say nothing of how long they took (Karn).
  void forget_sent() { sample_count_ = 0; }
  // Everything before `end` is acknowledged: the newest round trip goes to `rtt_ns`, where one was measured.
  void measure(uint32_t end, Nanos now, Nanos& rtt_ns);
  // Of `count` packets from `psn` on, ahead of others: likewise.
  void measure_arrived(uint32_t psn, uint32_t count, Nanos now, Nanos& rtt_ns);
  void set_round_trip(Nanos round_trip_ns);
  // A round trip that its owner measured.
  void set_sample(Nanos rtt_ns) { average(rtt_ns); }
  // RFC 6298's average; -1: none yet.
  Nanos smoothed_rtt_ns() const { return smoothed_rtt_ns_; }
  // Two round trips and four deviations, 0 before any was measured: what was lost in a queue that others fill is not asked for
  // again before the queue is gone.
  Nanos patience_ns() const { return smoothed_rtt_ns_ < 0 ? 0 : 2 * smoothed_rtt_ns_ + 4 * rtt_deviation_ns_; }

 private:
  static constexpr Nanos kTimeBaseNs = 4096;  // timeouts are 4.096 us times a power of two

  struct Sample {
    uint32_t psn;
    Nanos sent_ns;
  };
  static constexpr uint32_t kSamples = 4;
  static constexpr uint32_t kSpreadDoublings = 5;
  Nanos wait_ns() const { return doublings_ < kSpreadDoublings ? doubled_ns() : spread(doubled_ns()); }
  Nanos doubled_ns() const;
  Nanos spread(Nanos wait_ns) const;
  void average(Nanos rtt_ns);

  uint32_t retries_ = 0;
  uint8_t doublings_ = 0;  // of the adaptive wait, since a round trip was measured
  uint8_t sample_head_ = 0;
  uint8_t sample_count_ = 0;
  bool adaptive_;
  Nanos base_ns_ = 0;
  Nanos progress_ns_ = 0;
  Nanos smoothed_rtt_ns_ = -1;
  Nanos rtt_deviation_ns_ = 0;
  Nanos timeout_ns_;
  Nanos timeout_floor_ns_;
  std::array<Sample, kSamples> samples_{};
  uint32_t retry_limit_;
  uint32_t number_;
};

// Asked for every packet or answer: here, to be inlined.

// The wait before the next retry: the spec's fixed timeout, or from what round trips took, doubling in silence. It stays
// doubled until a round trip is measured again (RFC 6298, 5.7): what is acknowledged after a resend says nothing of how long
// that took, and where round trips outgrew the wait, a wait that began anew would resend every window before its answer.
inline Nanos AnswerTimer::doubled_ns() const {
  if (!adaptive_) return timeout_ns_;
  Nanos first_ns = smoothed_rtt_ns_ < 0 ? 0 : smoothed_rtt_ns_ + 4 * rtt_deviation_ns_;
  if (first_ns == 0 && timeout_floor_ns_ == 0) first_ns = timeout_ns_;
  first_ns = std::min(std::max(first_ns, timeout_floor_ns_), timeout_ns_);
  if (first_ns > timeout_floor_ns_) {
    Nanos step_ns = kTimeBaseNs;
    while (step_ns < first_ns) step_ns *= 2;
    first_ns = step_ns;
  }
  return std::min(timeout_ns_, first_ns << doublings_);
}

// Whoever lost the same burst would else come again at the same moment, and the last of them lose every time.
inline Nanos AnswerTimer::spread(Nanos wait_ns) const {
  const uint32_t mixed = (number_ + retries_ * 0x9E3779B9U) * 0x85EBCA6BU;
  return wait_ns - wait_ns / 2 * (mixed >> 24) / 256;
}

inline void AnswerTimer::measure(uint32_t end, Nanos now, Nanos& rtt_ns) {
  while (sample_count_ > 0 && wire::psn_distance(end, samples_[sample_head_].psn) > 0) {
    rtt_ns = now - samples_[sample_head_].sent_ns;
    sample_head_ = static_cast<uint8_t>((sample_head_ + 1) % kSamples);
    --sample_count_;
  }
  if (rtt_ns >= 0) average(rtt_ns);
}

}  // namespace etloop
