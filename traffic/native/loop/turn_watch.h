// Detects when a runnable thread did not run: time between two clock readings that its own work does not explain. The cause
// (hypervisor, interrupts, kernel work, other threads) is not determined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

// From the expected clock reading to the actual one.
struct LateTurn {
  Nanos from_ns;
  Nanos until_ns;
};

class TurnWatch {
 public:
  // 1 % of the 10 ms over which rates are measured.
  static constexpr Nanos kLateNs = 100'000;
  // More than a packet costs on any port (docs/benchmarks.md has 1 to 8 us): a turn full of packets is not late.
  static constexpr Nanos kPacketNs = 10'000;
  // Late turns beyond this number are not recorded.
  static constexpr size_t kMostNoted = size_t{1} << 16;

  // Call before the first `look`; recording then never allocates.
  void begin() { late_.reserve(kMostNoted); }

  // Read the clock: `packets` were received and sent since the last call.
  void look(Nanos now, int64_t packets) {
    const bool is_late = expected_ns_ != kNever && now - expected_ns_ > kLateNs + packets * kPacketNs;
    if (is_late && late_.size() < kMostNoted) late_.push_back({expected_ns_, now});
    expected_ns_ = now;
  }

  // The thread sleeps until `due_ns`; kNever: until its next `look`.
  void sleeps_until(Nanos due_ns) { expected_ns_ = due_ns == kNever ? kNever : std::max(expected_ns_, due_ns); }

  // Late turns, ascending.
  const std::vector<LateTurn>& late() const { return late_; }

 private:
  Nanos expected_ns_ = kNever;
  std::vector<LateTurn> late_;
};

}  // namespace etloop
