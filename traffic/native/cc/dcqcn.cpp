// DCQCN's reaction point (Zhu et al., SIGCOMM 2015) in its two known forms: of ConnectX NICs, where a CNP takes effect at the
// next tick of a monitor (NVIDIA's parameter names; ns-3 model in
// alibaba-edu/High-Precision-Congestion-Control:simulation/src/point-to-point/model/rdma-hw.cc), and of the paper, where every
// CNP cuts the rate at once (`rate_reduce_monitor_period` of 0). docs/congestion_control.md has both state machines.
#include <algorithm>
#include <cmath>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

enum : size_t {
  kG, kInitialAlpha, kAlphaPeriod, kMonitorPeriod, kDecreaseExponent, kMostDecrease, kTimeReset, kByteReset, kThreshold,
  kAdditive, kHyper, kHyperScaled, kMinRate, kMaxRate, kRateOnFirst, kClampTarget, kClampAfterTime, kReferenceLine, kCount
};

constexpr double kMs = 1e6;
constexpr double kMbps = 1e6;

constexpr Parameter kParameters[] = {
    {"alpha_g", ETLOOP_CC_RATIO, 0, 5.0 / 1024, 1e-6, 1, "weight of the newest period in alpha (DCE_TCP_G: 1 - 1019/1024)"},
    {"initial_alpha", ETLOOP_CC_RATIO, 0, 1023.0 / 1024, 0, 1, "alpha at the first CNP (INITIAL_ALPHA_VALUE)"},
    {"alpha_period", ETLOOP_CC_NANOSECONDS, 0, 1'000, 100, 1000 * kMs, "between updates of alpha (DCE_TCP_RTT)"},
    {"rate_reduce_monitor_period", ETLOOP_CC_NANOSECONDS, 0, 4'000, 0, 1000 * kMs,
     "between looks for CNPs; a look that finds one cuts the rate; 0: every CNP cuts at once"},
    {"gd", ETLOOP_CC_COUNT, 0, 11, 10, 20, "the rate is cut by alpha / 2^(gd - 10) (RPG_GD)"},
    {"min_dec_fac", ETLOOP_CC_RATIO, 0, 0.5, 0.01, 1, "least part of the rate that a cut leaves (RPG_MIN_DEC_FAC)"},
    {"time_reset", ETLOOP_CC_NANOSECONDS, 0, 300'000, 1'000, 1000 * kMs, "between increases by time (RPG_TIME_RESET)"},
    {"byte_reset", ETLOOP_CC_BYTES, 0, 32767.0 * 64, 0, 1e12, "between increases by bytes sent (RPG_BYTE_RESET); 0: none"},
    {"threshold", ETLOOP_CC_COUNT, 0, 1, 1, 31, "increases in each phase, F (RPG_THRESHOLD)"},
    {"ai_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 5 * kMbps, 0, 1e12, "step of active increase (RPG_AI_RATE)"},
    {"hai_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 50 * kMbps, 0, 1e12, "step of hyper increase (RPG_HAI_RATE)"},
    {"hai_scaled", ETLOOP_CC_COUNT, 0, 0, 0, 1, "1: the i-th hyper increase is i steps, as in the paper"},
    {"min_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 1 * kMbps, 1e3, 1e12, "no cut goes below (RPG_MIN_RATE)"},
    {"max_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 0, 0, 1e13, "no increase goes above; 0: the line rate (RPG_MAX_RATE)"},
    {"rate_on_first_cnp", ETLOOP_CC_BITS_PER_SECOND, 0, 0, 0, 1e13,
     "rate that the first CNP sets; 0: the rate it has (RATE_TO_SET_ON_FIRST_CNP)"},
    {"clamp_tgt_rate", ETLOOP_CC_COUNT, 0, 0, 0, 1, "1: every cut sets the target to the rate before it (CLAMP_TGT_RATE)"},
    {"clamp_tgt_rate_after_time_inc", ETLOOP_CC_COUNT, 0, 1, 0, 1,
     "1: so does a cut after an increase by time (CLAMP_TGT_RATE_AFTER_TIME_INC)"},
    {"reference_line", ETLOOP_CC_BITS_PER_SECOND, 0, 0, 0, 1e13,
     "line rate that ai_rate and hai_rate are meant for, scaled to others; 0: they are absolute"},
};
static_assert(std::size(kParameters) == kCount);

constexpr Setting kConnectx[] = {{"alpha_g", 5.0 / 1024}};
constexpr Setting kPaper[] = {
    {"alpha_g", 1.0 / 256},   {"initial_alpha", 1},    {"alpha_period", 55'000},   {"rate_reduce_monitor_period", 0},
    {"time_reset", 55'000},   {"byte_reset", 10e6},    {"threshold", 5},           {"ai_rate", 40 * kMbps},
    {"hai_rate", 400 * kMbps}, {"hai_scaled", 1},      {"min_rate", 10 * kMbps},   {"clamp_tgt_rate", 1},
};
constexpr Setting kNs3[] = {
    {"alpha_g", 1.0 / 256}, {"initial_alpha", 1},      {"byte_reset", 0},
    {"min_rate", 100 * kMbps}, {"reference_line", 25e9},
};
constexpr etloop_cc_profile kProfiles[] = {
    profile_of("connectx", "ConnectX defaults (mlxconfig, DOCA)", kConnectx),
    profile_of("paper", "DCQCN as published; hai_rate and min_rate are chosen by ETLoop", kPaper),
    profile_of("ns3", "the HPCC authors' ns-3 model of Mellanox's version, no byte counter", kNs3),
};

// A rate this close to the line rate counts as the line rate: halving the distance never reaches it.
constexpr double kAtLine = 1 - 1e-6;

class Dcqcn {
 public:
  void init(const Path& path, int64_t, Decision& decision) {
    line_ = static_cast<double>(path.line_rate_bps);
    if (const double most = path.parameters[kMaxRate]; most > 0) line_ = std::min(line_, most);
    rate_ = target_ = line_;
    publish(decision);
  }

  void on_cnp(const Path& path, const Signal& cnp, Decision& decision) {
    const double* p = path.parameters;
    catch_up(p, cnp.now_ns);
    const bool at_once = p[kMonitorPeriod] == 0;
    if (!marked_before_) {
      marked_before_ = true;
      alpha_ = p[kInitialAlpha];
      alpha_at_ = monitor_from_ = cnp.now_ns;
      if (p[kRateOnFirst] > 0) rate_ = target_ = std::min(line_, p[kRateOnFirst]);
    } else {
      update_alpha(p, cnp.now_ns);
      alpha_marked_ = !at_once;
    }
    if (at_once) {
      cut(p, cnp.now_ns);
      alpha_ = (1 - p[kG]) * alpha_ + p[kG];
      alpha_at_ = cnp.now_ns;
    } else if (cut_due_ == kNoTimer) {
      const auto period = static_cast<int64_t>(p[kMonitorPeriod]);
      cut_due_ = monitor_from_ + ((cnp.now_ns - monitor_from_) / period + 1) * period;
    }
    publish(decision);
  }

  void on_sent(const Path& path, const Sent& sent, Decision& decision) {
    const double* p = path.parameters;
    if (rate_ >= line_ || p[kByteReset] == 0) return;
    sent_bytes_ += sent.wire_bytes;
    const auto reset = static_cast<uint64_t>(p[kByteReset]);
    while (sent_bytes_ >= reset && rate_ < line_) {
      sent_bytes_ -= reset;
      ++by_bytes_;
      increase(p);
    }
    publish(decision);
  }

  void on_timer(const Path& path, int64_t now, Decision& decision) {
    catch_up(path.parameters, now);
    publish(decision);
  }

  int64_t next_timer_ns() const { return std::min(cut_due_, increase_due_); }

 private:
  // Process the timers up to `now` in order of time; at equal times, alpha before the cut before the increase.
  void catch_up(const double* p, int64_t now) {
    while (std::min(cut_due_, increase_due_) <= now) {
      if (cut_due_ <= increase_due_) {
        const int64_t at = cut_due_;
        cut_due_ = kNoTimer;
        update_alpha(p, at);
        cut(p, at);
      } else {
        increase_due_ += static_cast<int64_t>(p[kTimeReset]);
        ++by_time_;
        increase(p);
      }
    }
  }

  // Alpha decays every period even without events: compute it on demand.
  void update_alpha(const double* p, int64_t now) {
    const auto period = static_cast<int64_t>(p[kAlphaPeriod]);
    const int64_t periods = (now - alpha_at_) / period;
    if (periods <= 0) return;
    alpha_at_ += periods * period;
    alpha_ = (1 - p[kG]) * alpha_ + (alpha_marked_ ? p[kG] : 0);
    alpha_marked_ = false;
    if (periods > 1) alpha_ *= std::pow(1 - p[kG], static_cast<double>(periods - 1));
  }

  void cut(const double* p, int64_t now) {
    if (p[kClampTarget] != 0 || by_bytes_ > 0 || (p[kClampAfterTime] != 0 && by_time_ > 0)) target_ = rate_;
    const double remaining = std::max(1 - alpha_ / std::exp2(p[kDecreaseExponent] - 10), p[kMostDecrease]);
    rate_ = std::min(line_, std::max(p[kMinRate], rate_ * remaining));
    by_time_ = by_bytes_ = 0;
    sent_bytes_ = 0;
    increase_due_ = rate_ < line_ ? now + static_cast<int64_t>(p[kTimeReset]) : kNoTimer;
  }

  void increase(const double* p) {
    const auto threshold = static_cast<uint32_t>(p[kThreshold]);
    // Without a byte counter the timer replaces both, and one active increase separates the phases.
    const bool both = p[kByteReset] != 0;
    const uint32_t most = both ? std::max(by_time_, by_bytes_) : by_time_;
    const uint32_t least = both ? std::min(by_time_, by_bytes_) : by_time_ - 1;
    const double scale = p[kReferenceLine] > 0 ? line_ / p[kReferenceLine] : 1;
    if (most > threshold) {
      const bool hyper = least > threshold;
      const double steps = hyper && p[kHyperScaled] != 0 ? least - threshold : 1;
      target_ = std::min(line_, target_ + (hyper ? p[kHyper] : p[kAdditive]) * scale * steps);
    }
    rate_ = (rate_ + target_) / 2;
    if (rate_ < line_ * kAtLine) return;
    rate_ = line_;
    increase_due_ = kNoTimer;
  }

  void publish(Decision& decision) const { decision.rate_bps = whole(rate_); }

  double line_ = 0;
  double rate_ = 0;    // Rc
  double target_ = 0;  // Rt
  double alpha_ = 0;
  int64_t alpha_at_ = 0;      // time up to which alpha is computed
  int64_t monitor_from_ = 0;  // phase of the monitor
  int64_t cut_due_ = kNoTimer;
  int64_t increase_due_ = kNoTimer;
  uint64_t sent_bytes_ = 0;
  uint32_t by_time_ = 0;   // increases since the last cut
  uint32_t by_bytes_ = 0;
  bool marked_before_ = false;
  bool alpha_marked_ = false;  // a CNP arrived in this period of alpha
};

}  // namespace

const etloop_cc_algorithm kDcqcn =
    table_of<Dcqcn>("dcqcn", "rate; reacts to CNPs", ETLOOP_CC_NEEDS_CNP, kParameters, kProfiles);

}  // namespace etloop::cc
