// What one sending queue pair may put on the wire now: the decision of a congestion control algorithm (etloop_cc.h), held as
// a window of bytes and a pace. Told what is sent, acknowledged and notified; knows nothing of sequence numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "cc/etloop_cc.h"
#include "cc/pacer.h"
#include "plan/congestion_plan.h"
#include "wire/packet_run.h"

namespace etloop {

struct FlowPath {
  uint64_t line_rate_bps = 0;
  uint64_t most_window_bytes = 0;
  Nanos base_rtt_ns = -1;
  uint32_t mtu_bytes = 0;
  uint32_t packet_bytes = 0;  // of a full packet on its link
};

class FlowControl {
 public:
  // A burst below the line rate lasts about this long at its rate, within PacingSettings::burst_bytes.
  static constexpr Nanos kBurstNs = 25'000;
  // How far ahead packets are handed to a port that keeps departure times. An algorithm that listens to the network is
  // later by as much when it slows down, so it gets little; one that does not, several time slices of a busy host.
  static constexpr Nanos kClosedLoopAheadNs = 250'000;
  static constexpr Nanos kOpenLoopAheadNs = 4'000'000;
  // Of one queue pair: the kernel's fq drops what a socket has waiting beyond 100.
  static constexpr Nanos kMostBurstsAhead = 64;

  // `state`: zeroed memory for the algorithm, aligned to 16, as long as this lives.
  FlowControl(const CongestionParams& params, const FlowPath& path, void* state);

  // Packets, at most `packets`, that may be handed over now; 0: not before `wake_ns()`, or a notification. `answer_comes`: a
  // packet under way asks for an answer. Where none does, a full window lets one more leave, which is to ask: a window may
  // shrink behind packets that do not, and opens by answers alone.
  // `horizon_ns`: how far ahead of their departure the port takes them.
  uint32_t allowed(uint32_t packets, int64_t in_flight_bytes, bool answer_comes, Nanos now, Nanos horizon_ns = 0);
  // When what was just allowed is to leave: not before what was handed over earlier, or it would overtake that. 0: at once.
  Nanos departs_ns(Nanos now) const {
    const Nanos paced_ns = pacer_.rate_bps() == 0 ? handed_until_ns_ : std::max(pacer_.next_ns(), handed_until_ns_);
    return paced_ns > now ? paced_ns : 0;
  }
  // Makes the last packet of what was allowed ask for an acknowledgement, where too much of the window is under way that
  // nobody asked for: a closed window opens by acknowledgements alone.
  void ask(PacketRun& run) const;
  // Whether the window is full once so much is under way, or so small that a receiver which answers every `answer_bytes` would
  // not answer a window of packets.
  bool closes(int64_t in_flight_bytes, uint32_t answer_bytes) const {
    const auto window_bytes = static_cast<int64_t>(std::min<uint64_t>(decision_.window_bytes, INT64_MAX / 2));
    return window_bytes != 0 && (window_bytes < answer_bytes || window_bytes < in_flight_bytes + path_.mtu_bytes);
  }
  // When to ask again although nothing arrived; kNever: no need.
  Nanos wake_ns() const;
  // `more`: there is more that waits to be sent.
  void sent(const PacketRun& run, uint64_t wire_bytes, uint32_t fresh_packets, int64_t in_flight_bytes, bool more, Nanos now);

  void acknowledged(const AckOutcome& outcome, int64_t in_flight_bytes, std::span<const etloop_cc_hop> hops, Nanos now);
  void notified(int64_t in_flight_bytes, Nanos now);
  void timed_out(int64_t in_flight_bytes, Nanos now);
  // Until then a look changes nothing, unless something is told.
  Nanos settled_until_ns() const { return timer_ns_; }
  // Brings the decision up to `now`, for whoever looks at it.
  void settle(Nanos now);

  // Before the first packet only.
  void set_path(Nanos base_rtt_ns, uint64_t most_window_bytes);

  const etloop_cc_decision& decision() const { return decision_; }
  uint64_t acked_bytes() const { return acked_total_bytes_; }
  Nanos last_rtt_ns() const { return last_rtt_ns_; }

  Nanos event_ns = kNever;  // the owner's own mark: when its timer for this is due

 private:
  void begin(Nanos now);
  void decided(Nanos now);
  etloop_cc_signal signal(int64_t in_flight_bytes, Nanos now) const;
  uint32_t burst_packets() const;
  uint32_t unasked_with(const PacketRun& run) const;
  Nanos ahead_of(Nanos horizon_ns) const;

  const etloop_cc_algorithm* table_;
  void* state_;
  etloop_cc_path path_;
  etloop_cc_decision decision_{};
  Pacer pacer_;
  uint32_t burst_bytes_;
  bool begun_ = false;
  bool busy_ = false;
  bool window_closed_ = false;
  bool is_to_ask_ = false;  // what was allowed last is beyond the window
  Nanos ahead_ns_ = 0;
  Nanos handed_until_ns_ = 0;
  Nanos timer_ns_ = kNever;
  Nanos last_rtt_ns_ = -1;
  uint64_t acked_total_bytes_ = 0;
  uint64_t sent_total_bytes_ = 0;
  uint32_t unasked_packets_ = 0;  // behind the last that asked
};

}  // namespace etloop
