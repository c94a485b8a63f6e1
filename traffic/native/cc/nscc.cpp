// A window-based algorithm after Ultra Ethernet's NSCC (network-signalled congestion control): ECN mark and queueing delay
// together select proportional increase, fair increase, no change or decrease. Rules and constants from uet-htsim's
// htsim/sim/uec.cpp; over RoCEv2 there are no trimmed packets, and NAKs take their place.
#include <algorithm>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

constexpr double kReferenceLine = 100e9;
constexpr double kReferenceRttNs = 12'000;
constexpr double kFastDelayNs = 1'000;

enum : size_t {
  kTarget, kBaseRtt, kGamma, kDelayWeight, kAdjustPackets, kMaxWindow, kInitialWindow, kGate, kThreshold, kTargetShare, kCount
};

constexpr Parameter kParameters[] = {
    {"target_delay", ETLOOP_CC_NANOSECONDS, 0, 0, 0, 1e9, "queueing delay that is aimed at; 0: by target_share"},
    {"base_rtt", ETLOOP_CC_NANOSECONDS, 0, 0, 0, 1e9, "round trip without queues; 0: as measured before the run"},
    {"gamma", ETLOOP_CC_RATIO, 0, 0.8, 0.01, 1, "strength of a decrease"},
    {"delay_weight", ETLOOP_CC_RATIO, 0, 0.0125, 1e-4, 1, "weight of the newest sample in the average delay"},
    {"adjust_packets", ETLOOP_CC_COUNT, 0, 8, 1, 4096, "packets acknowledged between changes of the window"},
    {"max_window", ETLOOP_CC_RATIO, 0, 1.5, 0.1, 1000, "largest window, in bandwidth-delay products"},
    {"initial_window", ETLOOP_CC_RATIO, 0, 1, 0.01, 1000, "window at first, in bandwidth-delay products"},
    {"qa_gate", ETLOOP_CC_RATIO, 0, 3, 0, 30, "quick adapt acts where less than 2^-gate of the largest window arrived"},
    {"qa_threshold", ETLOOP_CC_RATIO, 0, 4, 1, 1000, "delay, in targets, that asks for quick adapt"},
    {"target_share", ETLOOP_CC_RATIO, 0, 1, 0.01, 100, "queueing delay that is aimed at, in base round trips"},
};
static_assert(std::size(kParameters) == kCount);
constexpr Setting kTrimming[] = {{"initial_window", 1.5}, {"target_share", 0.75}};
constexpr Setting kUntrimmed[] = {{"initial_window", 1.5}};
constexpr etloop_cc_profile kProfiles[] = {
    initial_profile("htsim", "the defaults of uet-htsim without trimming, begun with one bandwidth-delay product"),
    profile_of("mrc", "the defaults of uet-htsim with trimming; of kind: mrc that answers trimmed packets", kTrimming),
    profile_of("uet", "the defaults of uet-htsim with trimming; of kind: uet that answers trimmed packets", kTrimming),
    profile_of("untrimmed", "the defaults of uet-htsim without trimming; of kind: mrc and uet otherwise", kUntrimmed),
};

class Nscc {
 public:
  void init(const Path& path, int64_t now, Decision& decision) {
    const double* p = path.parameters;
    const auto line = static_cast<double>(path.line_rate_bps);
    base_ = p[kBaseRtt] > 0 ? p[kBaseRtt] : static_cast<double>(std::max<int64_t>(path.base_rtt_ns, 1'000));
    target_ = p[kTarget] > 0 ? p[kTarget] : base_ * p[kTargetShare];
    const double product = line * base_ / 8e9;
    scale_ = product / (kReferenceLine * kReferenceRttNs / 8e9);
    const double mtu = path.mtu_bytes;
    proportional_ = 4 * mtu * scale_ * (target_ / kReferenceRttNs) / target_;
    bound_window(path);
    window_ = std::clamp(p[kInitialWindow] * product, mtu, most_);
    adjusted_at_ = decreased_at_ = now;
    publish(path, decision);
  }

  void on_ack(const Path& path, const Ack& ack, Decision& decision) {
    const double* p = path.parameters;
    const auto bytes = static_cast<double>(ack.acked_bytes);
    const bool marked = ack.ecn_marked != 0;
    double delay = average_;
    if (ack.rtt_ns >= 0) {
      learn_base(path, static_cast<double>(ack.rtt_ns));
      delay = static_cast<double>(ack.rtt_ns) - base_;
      const double sample = !marked && delay > target_ ? base_ / 4 : delay;
      average_ += p[kDelayWeight] * (sample - average_);
    }
    achieved_ += bytes;
    received_ += bytes;
    ignored_ += bytes;
    if (quick_adapt(path, ack.now_ns, {.marked = marked, .wanted = delay > p[kThreshold] * target_}, ack.in_flight_bytes)) {
      return publish(path, decision);
    }
    if (!marked && delay >= target_) {
      fair_increase(path, bytes);
    } else if (!marked) {
      proportional_increase(bytes, delay);
    } else if (delay >= target_) {
      decrease(p, ack.now_ns);
    }  // marked with low delay: another path has the queue; no change
    fulfil(path, ack.now_ns);
    publish(path, decision);
  }

  void on_nak(const Path& path, const Signal& nak, Decision& decision) {
    average_ += path.parameters[kDelayWeight] * (base_ - average_);
    ignored_ += path.mtu_bytes;
    lost_ = true;
    if (!quick_adapt(path, nak.now_ns, {.marked = true, .wanted = true}, nak.in_flight_bytes)) window_ -= path.mtu_bytes;
    publish(path, decision);
  }

  void on_timeout(const Path& path, const Signal&, Decision& decision) {
    lost_ = true;
    window_ = path.mtu_bytes;
    publish(path, decision);
  }

 private:
  // Queue state derived from an answer.
  struct Hint {
    bool marked;
    bool wanted;  // requests quick adapt
  };

  void bound_window(const Path& path) {
    const double product = static_cast<double>(path.line_rate_bps) * base_ / 8e9;
    const double most = std::min(path.parameters[kMaxWindow] * product, static_cast<double>(path.most_window_bytes));
    most_ = std::max(static_cast<double>(path.mtu_bytes), most);
  }

  // The base is the shortest round trip; it determines the largest window.
  void learn_base(const Path& path, double rtt_ns) {
    if (rtt_ns >= base_) return;
    base_ = rtt_ns;
    bound_window(path);
  }

  // Quick adapt, once per round, the first of which begins with the first answer: if very little arrived and delay or loss
  // explains it, the window becomes what arrived. Until the packets then in flight are answered, marks and losses are ignored.
  // True: this answer has no further effect.
  bool quick_adapt(const Path& path, int64_t now, Hint hint, uint64_t in_flight_bytes) {
    if (hint.marked && ignored_ < to_ignore_) return hold();
    if (is_round_ && static_cast<double>(now - round_from_) <= base_ + target_) return false;
    double gate = most_;
    for (double halving = 0; halving < path.parameters[kGate]; ++halving) gate /= 2;
    const bool acts = is_round_ && (lost_ || hint.wanted) && achieved_ < gate;
    if (acts) {
      window_ = std::max(achieved_, static_cast<double>(path.mtu_bytes));
      to_ignore_ = static_cast<double>(in_flight_bytes);
      ignored_ = 0;
      lost_ = false;
    }
    is_round_ = true;
    round_from_ = now;
    achieved_ = 0;
    return acts && hold();
  }

  bool hold() {
    increase_ = received_ = 0;
    return true;
  }

  void end_fast() {
    fast_bytes_ = 0;
    is_fast_ = false;
  }

  void fair_increase(const Path& path, double bytes) {
    increase_ += 5 * path.mtu_bytes * scale_ * bytes;
  }

  void proportional_increase(double bytes, double delay) {
    if (delay < kFastDelayNs) {
      fast_bytes_ += bytes;
      is_fast_ = is_fast_ || fast_bytes_ > window_;
      if (is_fast_) {
        window_ += bytes * 0.25 * scale_;
        return;
      }
    } else {
      end_fast();
    }
    increase_ += proportional_ * bytes * (target_ - delay);
  }

  void decrease(const double* p, int64_t now) {
    end_fast();
    if (average_ <= target_ || static_cast<double>(now - decreased_at_) <= base_) return;
    window_ *= std::max(1 - p[kGamma] * (average_ - target_) / average_, 0.5);
    decreased_at_ = now;
  }

  void fulfil(const Path& path, int64_t now) {
    const bool period_over = static_cast<double>(now - adjusted_at_) > base_;
    if (received_ <= path.parameters[kAdjustPackets] * path.mtu_bytes && !period_over) return;
    window_ += increase_ / window_;
    if (period_over) {
      window_ += 0.15 * path.mtu_bytes * scale_;
      adjusted_at_ = now;
    }
    increase_ = received_ = 0;
  }

  void publish(const Path& path, Decision& decision) {
    window_ = std::clamp(window_, static_cast<double>(path.mtu_bytes), most_);
    decision.window_bytes = whole(window_);
  }

  double base_ = 0;
  double target_ = 0;
  double scale_ = 0;         // bandwidth-delay product relative to the reference network
  double proportional_ = 0;  // alpha in uet-htsim
  double most_ = 0;
  double window_ = 0;
  double average_ = 0;   // average queueing delay
  double increase_ = 0;  // pending increase
  double received_ = 0;  // bytes since the last change
  double achieved_ = 0;  // bytes in this round
  double to_ignore_ = 0;  // bytes in flight at the last quick adapt
  double ignored_ = 0;    // bytes answered since then
  double fast_bytes_ = 0;  // bytes answered without a queue
  bool is_fast_ = false;   // fast increase until a queue builds up
  int64_t round_from_ = 0;
  int64_t adjusted_at_ = 0;
  int64_t decreased_at_ = 0;
  bool lost_ = false;  // a loss since the last quick adapt
  bool is_round_ = false;
};

}  // namespace

const etloop_cc_algorithm kNscc = table_of<Nscc>("nscc", "window; from ECN marks and queueing delay together",
                                                 ETLOOP_CC_NEEDS_ECN | ETLOOP_CC_NEEDS_RTT, kParameters, kProfiles);

}  // namespace etloop::cc
