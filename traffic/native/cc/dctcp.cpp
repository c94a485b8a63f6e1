// DCTCP as a window on a queue pair (RFC 8257; Alizadeh et al., SIGCOMM 2010): once per window of data, the window shrinks by the
// share of marked bytes. Retransmission is left to the queue pair.
#include <algorithm>

#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

enum : size_t { kG, kInitialAlpha, kInitialWindow, kMinWindow, kCount };

constexpr Parameter kParameters[] = {
    {"g", ETLOOP_CC_RATIO, 0, 1.0 / 16, 1e-4, 1, "weight of the newest window in alpha (RFC 8257, 4.2: 1/16)"},
    {"initial_alpha", ETLOOP_CC_RATIO, 0, 1, 0, 1, "alpha before any mark (RFC 8257, 3.3: 1)"},
    {"initial_window", ETLOOP_CC_COUNT, 0, 10, 1, 65536, "packets under way at first (RFC 6928: 10)"},
    {"min_window", ETLOOP_CC_COUNT, 0, 1, 1, 65536, "packets that are always allowed"},
};
static_assert(std::size(kParameters) == kCount);
constexpr etloop_cc_profile kProfiles[] = {initial_profile("rfc8257", "as RFC 8257 recommends")};

class Dctcp {
 public:
  void init(const Path& path, int64_t, Decision& decision) {
    alpha_ = path.parameters[kInitialAlpha];
    window_ = path.parameters[kInitialWindow] * path.mtu_bytes;
    publish(path, decision);
  }

  void on_ack(const Path& path, const Ack& ack, Decision& decision) {
    const double* p = path.parameters;
    const double mtu = path.mtu_bytes;
    seen_bytes_ += ack.acked_bytes;
    if (ack.ecn_marked != 0) {
      marked_bytes_ += ack.acked_bytes;
      slow_start_ = false;
    }
    if (slow_start_) {
      window_ += static_cast<double>(ack.acked_bytes);
    } else if (marked_bytes_ == 0) {
      // RFC 8257, 3.3 keeps TCP's additive increase of one packet per window; not in a window that will be cut because of marks.
      window_ += mtu * static_cast<double>(ack.acked_bytes) / window_;
    }
    if (ack.acked_total_bytes >= window_end_bytes_) {
      if (seen_bytes_ > 0) {
        const double share = static_cast<double>(marked_bytes_) / static_cast<double>(seen_bytes_);
        alpha_ = (1 - p[kG]) * alpha_ + p[kG] * share;
      }
      if (marked_bytes_ > 0) window_ *= 1 - alpha_ / 2;
      seen_bytes_ = marked_bytes_ = 0;
      window_end_bytes_ = ack.sent_total_bytes;
    }
    publish(path, decision);
  }

  void on_nak(const Path& path, const Signal& nak, Decision& decision) {
    slow_start_ = false;
    if (nak.acked_total_bytes >= loss_end_bytes_) {
      window_ /= 2;
      loss_end_bytes_ = nak.sent_total_bytes;
    }
    publish(path, decision);
  }

  void on_timeout(const Path& path, const Signal&, Decision& decision) {
    slow_start_ = false;
    window_ = path.mtu_bytes;
    publish(path, decision);
  }

 private:
  void publish(const Path& path, Decision& decision) {
    const double least = path.parameters[kMinWindow] * path.mtu_bytes;
    window_ = std::clamp(window_, least, std::max(least, static_cast<double>(path.most_window_bytes)));
    decision.window_bytes = whole(window_);
  }

  double window_ = 0;
  double alpha_ = 0;
  uint64_t seen_bytes_ = 0;    // acknowledged in this window of data
  uint64_t marked_bytes_ = 0;  // of those, marked
  uint64_t window_end_bytes_ = 0;
  uint64_t loss_end_bytes_ = 0;
  bool slow_start_ = true;
};

}  // namespace

const etloop_cc_algorithm kDctcp =
    table_of<Dctcp>("dctcp", "window; reacts to the share of ECN marks", ETLOOP_CC_NEEDS_ECN, kParameters, kProfiles);

}  // namespace etloop::cc
