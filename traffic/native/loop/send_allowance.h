// Send rate limit of a port, independent of its plan: bits and packets per second allowed when the agent was started.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace etloop {

struct SendLimits {
  int64_t most_bps = 0;            // of UDP datagrams; 0: no limit
  int64_t most_packets_per_s = 0;  // 0: no limit
};

// Every send occupies future time, in which no more leaves: the mean rate holds whatever one turn sends. Idle time allows at most
// one burst. Checked once per turn.
class SendAllowance {
 public:
  static constexpr Nanos kBurstNs = 100'000;

  explicit SendAllowance(const SendLimits& limits) : limits_(limits) {}

  bool is_limited() const { return limits_.most_bps > 0 || limits_.most_packets_per_s > 0; }
  // Time at which more may leave, rounded up: never faster than allowed.
  Nanos free_ns() const { return free_ns_ + (rest_ps_ > 0 ? 1 : 0); }
  bool holds_back(Nanos now) const { return free_ns() > now; }

  void spend(Nanos now, int64_t bytes, int64_t packets) {
    const int64_t cost_ps = std::max(time_of(bytes * 8, limits_.most_bps), time_of(packets, limits_.most_packets_per_s));
    if (cost_ps == 0) return;
    if (free_ns_ < now - kBurstNs) {
      free_ns_ = now - kBurstNs;
      rest_ps_ = 0;
    }
    rest_ps_ += cost_ps;
    free_ns_ += rest_ps_ / kPsPerNs;
    rest_ps_ %= kPsPerNs;
  }

 private:
  static constexpr int64_t kPsPerNs = 1'000;

  // In picoseconds, rounded up: a turn may send a single packet, which takes few nanoseconds on a fast line. 128 bits: a turn's
  // bits times 1e12 need more than 64.
  static int64_t time_of(int64_t amount, int64_t most_per_s) {
    if (most_per_s <= 0) return 0;
    const auto scaled = static_cast<unsigned __int128>(amount) * 1'000'000'000'000U + static_cast<uint64_t>(most_per_s) - 1;
    return static_cast<int64_t>(scaled / static_cast<uint64_t>(most_per_s));
  }

  SendLimits limits_;
  Nanos free_ns_ = 0;
  int64_t rest_ps_ = 0;  // fraction of a nanosecond beyond `free_ns_`
};

}  // namespace etloop
