// TIMELY (Mittal et al., SIGCOMM 2015): the rate follows the gradient of the round-trip time between two thresholds. One decision
// per round trip, as in alibaba-edu/High-Precision-Congestion-Control:.../rdma-hw.cc, whose defaults these are. A round trip ends
// when all packets sent before its start are acknowledged or, since lost packets delay that, when its duration has passed.
#include <algorithm>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

enum : size_t { kAlpha, kBeta, kLow, kHigh, kMinRtt, kAdditive, kHyper, kHyperAfter, kMinRate, kMaxDecrease, kReferenceLine,
                kCount };

constexpr Parameter kParameters[] = {
    {"alpha", ETLOOP_CC_RATIO, 0, 0.875, 0.001, 1, "weight of the newest difference of round-trip times"},
    {"beta", ETLOOP_CC_RATIO, 0, 0.8, 0.001, 1, "strength of a decrease"},
    {"t_low", ETLOOP_CC_NANOSECONDS, 0, 50'000, 100, 1e9, "below, the rate always rises"},
    {"t_high", ETLOOP_CC_NANOSECONDS, 0, 500'000, 100, 1e9, "above, the rate always falls"},
    {"min_rtt", ETLOOP_CC_NANOSECONDS, 0, 20'000, 100, 1e9, "the gradient is in units of it"},
    {"ai_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 10e6, 0, 1e12, "step of an increase"},
    {"hai_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 50e6, 0, 1e12, "step after `hai_after` increases on end"},
    {"hai_after", ETLOOP_CC_COUNT, 0, 5, 1, 1000, "increases on end before hyper increase"},
    {"min_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 100e6, 1e3, 1e12, "no decrease goes below"},
    {"max_decrease", ETLOOP_CC_RATIO, 0, 0.5, 0.001, 1,
     "of the rate, the most that one decision takes; 1: all, as the model does"},
    {"reference_line", ETLOOP_CC_BITS_PER_SECOND, 0, 10e9, 0, 1e13,
     "line rate that ai_rate and hai_rate are meant for, scaled to others; 0: they are absolute"},
};
static_assert(std::size(kParameters) == kCount);
constexpr etloop_cc_profile kProfiles[] = {initial_profile("ns3", "the HPCC authors' ns-3 model")};

const char* check(const double* p) {
  return p[kLow] < p[kHigh] ? nullptr : "t_low must be below t_high";
}

class Timely {
 public:
  void init(const Path& path, int64_t, Decision& decision) {
    rate_ = static_cast<double>(path.line_rate_bps);
    decision.rate_bps = whole(rate_);
  }

  void on_ack(const Path& path, const Ack& ack, Decision& decision) {
    if (ack.rtt_ns < 0) return;
    if (ack.acked_total_bytes <= update_after_bytes_ && ack.now_ns < update_after_ns_) return;
    update_after_bytes_ = ack.sent_total_bytes;
    update_after_ns_ = ack.now_ns + ack.rtt_ns;
    const double* p = path.parameters;
    const auto rtt = static_cast<double>(ack.rtt_ns);
    if (last_rtt_ == 0) {
      last_rtt_ = rtt;
      return;
    }
    difference_ = (1 - p[kAlpha]) * difference_ + p[kAlpha] * (rtt - last_rtt_);
    last_rtt_ = rtt;
    const double gradient = difference_ / p[kMinRtt];
    if (rtt < p[kLow]) {
      increase(path);
    } else if (rtt > p[kHigh]) {
      decrease(p, p[kBeta] * (1 - p[kHigh] / rtt));
    } else if (gradient <= 0) {
      increase(path);
    } else {
      decrease(p, p[kBeta] * gradient);
    }
    rate_ = std::min(rate_, static_cast<double>(path.line_rate_bps));
    decision.rate_bps = whole(rate_);
  }

 private:
  void increase(const Path& path) {
    const double* p = path.parameters;
    const double scale = p[kReferenceLine] > 0 ? static_cast<double>(path.line_rate_bps) / p[kReferenceLine] : 1;
    rate_ += (stage_ < p[kHyperAfter] ? p[kAdditive] : p[kHyper]) * scale;
    ++stage_;
  }
  void decrease(const double* p, double share) {
    rate_ = std::max(p[kMinRate], rate_ * (1 - std::min(share, p[kMaxDecrease])));
    stage_ = 0;
  }

  double rate_ = 0;
  double last_rtt_ = 0;
  double difference_ = 0;
  double stage_ = 0;
  uint64_t update_after_bytes_ = 0;
  int64_t update_after_ns_ = 0;
};

}  // namespace

const etloop_cc_algorithm kTimely = table_of<Timely>("timely", "rate; follows the gradient of the round-trip time",
                                                     ETLOOP_CC_NEEDS_RTT, kParameters, kProfiles, check);

}  // namespace etloop::cc
