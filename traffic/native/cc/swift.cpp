// Swift (Kumar et al., SIGCOMM 2020): a window that holds the round-trip time at a target; the target grows a little with the
// number of hops and with smaller windows. Below one packet the window becomes a pace. Defaults of
// Broadcom/csg-htsim:sim/swift.cpp, whose authors call most of them guesses.
#include <algorithm>
#include <cmath>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

enum : size_t {
  kAdditive, kBeta, kMostDecrease, kBase, kPerHop, kHops, kFsRange, kFsMin, kFsMax, kMinWindow, kInitialWindow,
  kTimeoutsToMin, kCount
};

constexpr Parameter kParameters[] = {
    {"ai", ETLOOP_CC_RATIO, 0, 1, 0.001, 1000, "packets by which the window grows a round trip"},
    {"beta", ETLOOP_CC_RATIO, 0, 0.8, 0.001, 1, "strength of a decrease"},
    {"max_mdf", ETLOOP_CC_RATIO, 0, 0.5, 0.01, 0.99, "most of the window that one decrease takes"},
    {"base_target", ETLOOP_CC_NANOSECONDS, 0, 20'000, 0, 1e9,
     "target round-trip time without hops and flow scaling; 0: 1.25 times the one measured before the run"},
    {"hop_target", ETLOOP_CC_NANOSECONDS, 0, 3'053, 0, 1e9, "added per hop"},
    {"hops", ETLOOP_CC_COUNT, 0, 1, 0, 64, "switches on the way"},
    {"fs_range", ETLOOP_CC_NANOSECONDS, 0, 100'000, 0, 1e9, "most that flow scaling adds"},
    {"fs_min_window", ETLOOP_CC_RATIO, 0, 0.1, 1e-4, 1000, "packets at which flow scaling adds most"},
    {"fs_max_window", ETLOOP_CC_RATIO, 0, 100, 1, 1e6, "packets from which on it adds nothing"},
    {"min_window", ETLOOP_CC_RATIO, 0, 0.01, 1e-5, 1000, "packets, the least window"},
    {"initial_window", ETLOOP_CC_RATIO, 0, 12, 0.01, 65536, "packets under way at first"},
    {"timeouts_to_min", ETLOOP_CC_COUNT, 0, 5, 1, 1000, "timeouts on end after which the window is the least one"},
};
static_assert(std::size(kParameters) == kCount);
constexpr etloop_cc_profile kProfiles[] = {initial_profile("htsim", "the defaults of htsim")};

const char* check(const double* p) {
  return p[kFsMin] < p[kFsMax] ? nullptr : "fs_min_window must be below fs_max_window";
}

class Swift {
 public:
  void init(const Path& path, int64_t, Decision& decision) {
    window_ = path.parameters[kInitialWindow];
    rtt_ = path.base_rtt_ns > 0 ? static_cast<double>(path.base_rtt_ns) : path.parameters[kBase];
    publish(path, decision);
  }

  void on_ack(const Path& path, const Ack& ack, Decision& decision) {
    const double* p = path.parameters;
    timeouts_ = 0;
    if (ack.rtt_ns >= 0) rtt_ = static_cast<double>(ack.rtt_ns);
    const double target = target_ns(path);
    // Retransmitted packets have no round trip: their arrival counts as below the target.
    if (ack.rtt_ns < 0 || rtt_ < target) {
      const double acked = static_cast<double>(ack.acked_bytes) / path.mtu_bytes;
      window_ += window_ >= 1 ? p[kAdditive] * acked / window_ : p[kAdditive] * acked;
    } else {
      decrease(ack.now_ns, std::max(1 - p[kBeta] * (rtt_ - target) / rtt_, 1 - p[kMostDecrease]));
    }
    publish(path, decision);
  }

  void on_nak(const Path& path, const Signal& nak, Decision& decision) {
    decrease(nak.now_ns, 1 - path.parameters[kMostDecrease]);
    publish(path, decision);
  }

  void on_timeout(const Path& path, const Signal& timeout, Decision& decision) {
    const double* p = path.parameters;
    if (++timeouts_ >= p[kTimeoutsToMin]) {
      window_ = p[kMinWindow];
    } else {
      decrease(timeout.now_ns, 1 - p[kMostDecrease]);
    }
    publish(path, decision);
  }

 private:
  double target_ns(const Path& path) const {
    const double* p = path.parameters;
    double base = p[kBase];
    if (base == 0) base = 1.25 * static_cast<double>(std::max<int64_t>(path.base_rtt_ns, 16'000));
    const double slope = p[kFsRange] / (1 / std::sqrt(p[kFsMin]) - 1 / std::sqrt(p[kFsMax]));
    const double scaled = slope / std::sqrt(window_) - slope / std::sqrt(p[kFsMax]);
    return base + p[kPerHop] * p[kHops] + std::clamp(scaled, 0.0, p[kFsRange]);
  }

  // At most one decrease per round trip.
  void decrease(int64_t now, double factor) {
    if (decreased_before_ && static_cast<double>(now - last_decrease_ns_) < rtt_) return;
    decreased_before_ = true;
    last_decrease_ns_ = now;
    window_ *= factor;
  }

  void publish(const Path& path, Decision& decision) {
    const double most = static_cast<double>(path.most_window_bytes) / path.mtu_bytes;
    window_ = std::clamp(window_, path.parameters[kMinWindow], std::max(1.0, most));
    decision.window_bytes = std::max<uint64_t>(1, whole(window_ * path.mtu_bytes));
    // The smallest window is one packet per round trip; smaller ones are paced, by a round trip of at most the target.
    const double round_trip_ns = std::min(rtt_, target_ns(path));
    decision.rate_bps = window_ < 1 ? std::max<uint64_t>(1, whole(window_ * path.packet_bytes * 8e9 / round_trip_ns)) : 0;
  }

  double window_ = 0;  // packets
  double rtt_ = 0;
  double timeouts_ = 0;
  int64_t last_decrease_ns_ = 0;
  bool decreased_before_ = false;
};

}  // namespace

const etloop_cc_algorithm kSwift = table_of<Swift>("swift", "window; holds the round-trip time at a target",
                                                   ETLOOP_CC_NEEDS_RTT, kParameters, kProfiles, check);

}  // namespace etloop::cc
