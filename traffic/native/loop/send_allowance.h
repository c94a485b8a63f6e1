// How much a port may send, whatever its plan says: bits and packets a second that whoever started the agent allows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace etloop {

struct SendLimits {
  int64_t most_bps = 0;            // of UDP datagrams; 0: no limit
  int64_t most_packets_per_s = 0;  // 0: no limit
};

// What was sent takes time off the future: nothing more leaves until it has passed, so that the mean is kept whatever
// one turn sends. Time in which nothing was sent is made up for by one burst at most. Looked at once a turn.
class SendAllowance {
 public:
  static constexpr Nanos kBurstNs = 100'000;

  explicit SendAllowance(const SendLimits& limits) : limits_(limits) {}

  bool is_limited() const { return limits_.most_bps > 0 || limits_.most_packets_per_s > 0; }
  // When more may leave.
  Nanos free_ns() const { return free_ns_; }
  bool holds_back(Nanos now) const { return free_ns_ > now; }

  void spend(Nanos now, int64_t bytes, int64_t packets) {
    const Nanos cost_ns = std::max(time_of(bytes * 8, limits_.most_bps), time_of(packets, limits_.most_packets_per_s));
    if (cost_ns > 0) free_ns_ = std::max(free_ns_, now - kBurstNs) + cost_ns;
  }

 private:
  // Rounded up: never faster than allowed. 128 bits, for a turn's bits times 1e9 need more than 64.
  static Nanos time_of(int64_t amount, int64_t most_per_s) {
    if (most_per_s <= 0) return 0;
    const auto scaled = static_cast<unsigned __int128>(amount) * 1'000'000'000U + static_cast<uint64_t>(most_per_s) - 1;
    return static_cast<Nanos>(scaled / static_cast<uint64_t>(most_per_s));
  }

  SendLimits limits_;
  Nanos free_ns_ = 0;
};

}  // namespace etloop
