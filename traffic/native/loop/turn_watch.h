// When a thread that wants to run did not: times between two of its looks at the clock that nothing it did accounts for. What
// kept it (a hypervisor, interrupts, work of others inside the kernel, other threads) is not told, and need not be ours to know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

// From when the thread would have looked until it did.
struct LateTurn {
  Nanos from_ns;
  Nanos until_ns;
};

class TurnWatch {
 public:
  // 1 % of the 10 ms over which rates are judged.
  static constexpr Nanos kLateNs = 100'000;
  // More than a packet costs on any port (docs/benchmarks.md has 1 to 8 us): a turn full of packets is not late for them.
  static constexpr Nanos kPacketNs = 10'000;
  // A thread that is this often late in one run is not worth telling more of.
  static constexpr size_t kMostNoted = size_t{1} << 16;

  // Before the first look; what is noted later takes no memory that is not there already.
  void begin() { late_.reserve(kMostNoted); }

  // `packets` came and went since the last look.
  void look(Nanos now, int64_t packets) {
    const bool judged = expected_ns_ != kNever && now - expected_ns_ > kLateNs + packets * kPacketNs;
    if (judged && late_.size() < kMostNoted) late_.push_back({expected_ns_, now});
    expected_ns_ = now;
  }

  // Nobody expects it before; kNever: not at all, until it looks.
  void sleeps_until(Nanos due_ns) { expected_ns_ = due_ns == kNever ? kNever : std::max(expected_ns_, due_ns); }

  // Ascending.
  const std::vector<LateTurn>& late() const { return late_; }

 private:
  Nanos expected_ns_ = kNever;
  std::vector<LateTurn> late_;
};

}  // namespace etloop
