// HPCC (Li et al., SIGCOMM 2019): telemetry gives the utilization of every hop, and the rate is set so that the most utilized hop
// reaches eta. Single-rate form of alibaba-edu/High-Precision-Congestion-Control:.../rdma-hw.cc.
#include <algorithm>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

constexpr uint32_t kMostHops = 5;  // capacity of the published header

enum : size_t { kEta, kStages, kAdditive, kMinRate, kBaseRtt, kReferenceLine, kCount };

constexpr Parameter kParameters[] = {
    {"eta", ETLOOP_CC_RATIO, 0, 0.95, 0.1, 1, "share of the fullest hop that is aimed at"},
    {"max_stage", ETLOOP_CC_COUNT, 0, 0, 0, 1000, "round trips of additive increase before the next proportional step"},
    {"ai_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 10e6, 0, 1e12, "additive increase"},
    {"min_rate", ETLOOP_CC_BITS_PER_SECOND, 0, 100e6, 1e3, 1e12, "the rate is never below"},
    {"base_rtt", ETLOOP_CC_NANOSECONDS, 0, 0, 0, 1e9, "T, the round trip without queues; 0: as measured before the run"},
    {"reference_line", ETLOOP_CC_BITS_PER_SECOND, 0, 25e9, 0, 1e13,
     "line rate that ai_rate is meant for, scaled to others; 0: it is absolute"},
};
static_assert(std::size(kParameters) == kCount);
constexpr etloop_cc_profile kProfiles[] = {initial_profile("ns3", "the authors' ns-3 model as their runs set it")};

class Hpcc {
 public:
  void init(const Path& path, int64_t, Decision& decision) {
    const double* p = path.parameters;
    line_ = static_cast<double>(path.line_rate_bps);
    rtt_ns_ = p[kBaseRtt] > 0 ? p[kBaseRtt] : static_cast<double>(std::max<int64_t>(path.base_rtt_ns, 1'000));
    additive_ = p[kAdditive] * (p[kReferenceLine] > 0 ? line_ / p[kReferenceLine] : 1);
    committed_ = line_;
    publish(path, line_, decision);
  }

  void on_ack(const Path& path, const Ack& ack, Decision& decision) {
    if (ack.hop_count == 0 || ack.hop_count > kMostHops) return;
    const bool whole_round = ack.acked_total_bytes > update_after_bytes_;
    const bool known = hop_count_ == ack.hop_count;
    double used = 0;
    double over_ns = 0;
    for (uint32_t h = 0; known && h < ack.hop_count; ++h) {
      const etloop_cc_hop& now = ack.hops[h];
      const etloop_cc_hop& before = hops_[h];
      const double elapsed = static_cast<double>(now.time_ns - before.time_ns);
      if (elapsed <= 0) continue;
      const auto hop_line = static_cast<double>(now.line_rate_bps);
      const double sent = static_cast<double>(now.sent_bytes - before.sent_bytes) * 8e9 / elapsed;
      const auto queue = static_cast<double>(std::min(now.queue_bytes, before.queue_bytes));
      const double u = sent / hop_line + queue * 8e9 / (hop_line * rtt_ns_);
      if (u > used) {
        used = u;
        over_ns = elapsed;
      }
    }
    std::copy(ack.hops, ack.hops + ack.hop_count, hops_);
    hop_count_ = ack.hop_count;
    if (over_ns == 0) return;
    const double weight = std::min(over_ns, rtt_ns_) / rtt_ns_;
    used_ = (1 - weight) * used_ + weight * used;
    react(path, whole_round, decision);
    if (whole_round) update_after_bytes_ = ack.sent_total_bytes;
  }

 private:
  // Within a round trip the rate is computed from the committed one, so that one congestion event counts once.
  void react(const Path& path, bool whole_round, Decision& decision) {
    const double* p = path.parameters;
    const double over = used_ / p[kEta];
    double rate;
    double stage = 0;
    if (over >= 1 || stage_ >= p[kStages]) {
      rate = committed_ / std::max(over, 1e-3) + additive_;
    } else {
      rate = committed_ + additive_;
      stage = stage_ + 1;
    }
    rate = std::clamp(rate, p[kMinRate], line_);
    if (whole_round) {
      committed_ = rate;
      stage_ = stage;
    }
    publish(path, rate, decision);
  }

  void publish(const Path& path, double rate, Decision& decision) const {
    decision.rate_bps = whole(rate);
    // The paper's window, W = R * T, in path MTUs of payload.
    const double packets = rate * rtt_ns_ / 8e9 / path.packet_bytes;
    decision.window_bytes = std::max<uint64_t>(1, whole(packets * path.mtu_bytes));
  }

  double line_ = 0;
  double rtt_ns_ = 0;
  double additive_ = 0;
  double committed_ = 0;
  double used_ = 1;  // U, averaged over a round trip
  double stage_ = 0;
  uint64_t update_after_bytes_ = 0;
  uint32_t hop_count_ = 0;
  etloop_cc_hop hops_[kMostHops] = {};
};

}  // namespace

const etloop_cc_algorithm kHpcc =
    table_of<Hpcc>("hpcc", "rate and window; from the telemetry of every hop", ETLOOP_CC_NEEDS_INT, kParameters, kProfiles);

}  // namespace etloop::cc
