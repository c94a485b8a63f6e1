// Probes, before any load, whether every queue pair reaches its peer with full-size packets and an unchanged traffic class.
// Probes are UD SEND datagrams outside the queue pair's PSN space, on its five-tuple, so that they take its path through the
// device under test. Pure: decides what to send when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

inline constexpr uint32_t kProbeRequestKey = 0x45544C50;
inline constexpr uint32_t kProbeReplyKey = 0x45544C52;
inline constexpr uint32_t kProbeReplyBytes = 8;
// Attempts for the first unanswered target: a busy host may not respond for a second or two.
inline constexpr uint32_t kFirstAttempts = 15;
// Attempts for all targets once one was given up: with a cut link there may be thousands.
inline constexpr uint32_t kLaterAttempts = 5;
// Further attempts with short packets: if only these are answered, a device on the path drops full-size frames.
inline constexpr uint32_t kShortAttempts = 2;
inline constexpr uint32_t kShortProbeBytes = 64;
inline constexpr uint32_t kProbesAtOnce = 8;
// Probes per port, and rounds per queue pair at most, that measure the minimum round trip.
inline constexpr uint32_t kMeasuringProbes = 2048;
inline constexpr uint32_t kMostRounds = 8;
inline constexpr Nanos kProbeTimeoutNs = 200'000'000;
// Timeout of a probe by RDMA write, which the transport retransmits: a card's queue pairs may still be coming up.
inline constexpr Nanos kWriteProbeTimeoutNs = 2'000'000'000;

enum class ProbeVerdict : uint8_t { pending, good, no_reply, wrong_traffic_class, too_large, only_short };

// Probes per target: one, or enough to measure its minimum round trip.
enum class ProbeRounds : uint8_t { one, several };

struct ProbeResult {
  int32_t connection = 0;
  int32_t ordinal = 0;  // queue pair of the connection
  ProbeVerdict verdict = ProbeVerdict::pending;
  uint8_t seen_traffic_class = 0;
  Nanos round_trip_ns = 0;  // minimum
};

class Prober {
 public:
  void add(int32_t connection, int32_t ordinal, uint32_t qp);
  void start(ProbeRounds rounds);
  bool running() const { return running_; }
  bool over() const { return running_ && settled_ == targets_.size(); }
  // Index of a target to probe now, or -1.
  int64_t next(Nanos now);
  void sent(size_t target, Nanos now, Nanos timeout_ns = kProbeTimeoutNs);
  void too_large(size_t target);
  void on_reply(uint32_t target, uint8_t seen_class, uint8_t expected_class, Nanos now);
  // Whether the next probe of a target is a short one.
  bool is_short(size_t target) const { return targets_[target].attempts >= most_attempts(); }
  // The reply to a full-size probe may still come.
  void on_short_reply(uint32_t target);
  Nanos deadline() const { return running_ && !over() ? pending_deadline() : kNever; }

  // Whether a target has not been probed yet.
  bool fresh(size_t target) const { return targets_[target].attempts == 0; }
  void unreachable(size_t target);

  uint32_t qp(size_t target) const { return targets_[target].qp; }
  const ProbeResult& result(size_t target) const { return targets_[target].result; }
  size_t size() const { return targets_.size(); }

 private:
  Nanos pending_deadline() const;
  uint32_t most_attempts() const { return any_given_up_ ? kLaterAttempts : kFirstAttempts; }
  struct Target {
    uint32_t qp;
    uint32_t attempts = 0;
    uint32_t short_attempts = 0;
    uint32_t replies = 0;
    bool was_retried = false;  // a probe was repeated: a reply may answer either
    bool answers_short = false;
    Nanos sent_ns = 0;
    Nanos timeout_ns = kProbeTimeoutNs;
    ProbeResult result;
  };
  // Whether short probes are still to be sent; none of those by RDMA write, whose packets are a card's.
  bool has_short_attempts(const Target& target) const {
    return target.timeout_ns == kProbeTimeoutNs && target.short_attempts < kShortAttempts;
  }
  void settle(Target& target, ProbeVerdict verdict);

  std::vector<Target> targets_;
  std::vector<uint32_t> outstanding_;  // at most kProbesAtOnce
  size_t next_target_ = 0;
  size_t settled_ = 0;
  uint32_t rounds_ = 1;
  bool running_ = false;
  bool any_given_up_ = false;
};

}  // namespace etloop
