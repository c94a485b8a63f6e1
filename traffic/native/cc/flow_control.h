// Applies the decisions of a congestion control algorithm (etloop_cc.h) to one sending queue pair: a window in bytes and a pace.
// Notified of sends, acknowledgements and congestion; independent of sequence numbers.
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
  // Duration of a burst at rates below the line rate, within CongestionParams::burst_bytes.
  static constexpr Nanos kBurstNs = 25'000;
  // How long before their departure packets are handed to a port that keeps departure times. Slowing down takes effect later by
  // this time, so it is small for an algorithm with feedback; without feedback it is several time slices of a busy host.
  static constexpr Nanos kClosedLoopAheadNs = 250'000;
  static constexpr Nanos kOpenLoopAheadNs = 4'000'000;
  // Most bursts of a queue pair handed over ahead: the kernel's fq drops a socket's packets beyond 100 waiting ones.
  static constexpr Nanos kMostBurstsAhead = 64;

  // `state`: zeroed memory of the algorithm, aligned to 16, that outlives this.
  FlowControl(const CongestionParams& params, const FlowPath& path, void* state);

  // Number of packets, at most `packets`, that may be handed over now; 0: not before `wake_ns()` or an event. `answer_comes`: a
  // packet in flight requests an answer. If none does, a full window allows one more packet, which must request one: a window can
  // shrink after packets without a request, and only answers open it. `horizon_ns`: how far ahead of departure the port accepts
  // packets.
  uint32_t allowed(uint32_t packets, int64_t in_flight_bytes, bool answer_comes, Nanos now, Nanos horizon_ns = 0);
  // Departure time of the packets just allowed: not before packets handed over earlier, which they must not overtake. 0: at once.
  Nanos departs_ns(Nanos now) const {
    const Nanos paced_ns = pacer_.rate_bps() == 0 ? handed_until_ns_ : std::max(pacer_.next_ns(), handed_until_ns_);
    return paced_ns > now ? paced_ns : 0;
  }
  // Request an acknowledgement with the last allowed packet if too much of the window is in flight without a request: only
  // acknowledgements open a closed window.
  void ask(PacketRun& run) const;
  // Whether the window is full with `in_flight_bytes` in flight, or so small that a receiver which answers every `answer_bytes`
  // would not answer a window of packets.
  bool closes(int64_t in_flight_bytes, uint32_t answer_bytes) const {
    const auto window_bytes = static_cast<int64_t>(std::min<uint64_t>(decision_.window_bytes, INT64_MAX / 2));
    return window_bytes != 0 && (window_bytes < answer_bytes || window_bytes < in_flight_bytes + path_.mtu_bytes);
  }
  // Time to ask again without an arrival; kNever: not needed.
  Nanos wake_ns() const;
  // `more`: the queue pair has more to send.
  void sent(const PacketRun& run, uint64_t wire_bytes, uint32_t fresh_packets, int64_t in_flight_bytes, bool more, Nanos now);

  void acknowledged(const AckOutcome& outcome, int64_t in_flight_bytes, std::span<const etloop_cc_hop> hops, Nanos now);
  void notified(int64_t in_flight_bytes, Nanos now);
  void timed_out(int64_t in_flight_bytes, Nanos now);
  // Time until which the state does not change without an event.
  Nanos settled_until_ns() const { return timer_ns_; }
  // Update the decision to `now`.
  void settle(Nanos now);

  // Only before the first packet.
  void set_path(Nanos base_rtt_ns, uint64_t most_window_bytes);

  const etloop_cc_decision& decision() const { return decision_; }
  uint64_t acked_bytes() const { return acked_total_bytes_; }
  Nanos last_rtt_ns() const { return last_rtt_ns_; }

  Nanos event_ns = kNever;  // owner's data: time of its timer event for this control

 private:
  void begin(Nanos now);
  void decided(Nanos now);
  etloop_cc_signal signal(int64_t in_flight_bytes, Nanos now) const;
  uint32_t burst_packets() const;
  uint32_t unrequested_with(const PacketRun& run) const;
  Nanos ahead_of(Nanos horizon_ns) const;

  const etloop_cc_algorithm* table_;
  void* state_;
  etloop_cc_path path_;
  etloop_cc_decision decision_{};
  Pacer pacer_;
  uint32_t burst_bytes_;
  uint64_t limit_bps_;
  bool begun_ = false;
  bool busy_ = false;
  bool window_closed_ = false;
  bool exceeds_window_ = false;  // the last allowed packet exceeds the window
  Nanos ahead_ns_ = 0;
  Nanos handed_until_ns_ = 0;
  Nanos timer_ns_ = kNever;
  Nanos last_rtt_ns_ = -1;
  uint64_t acked_total_bytes_ = 0;
  uint64_t sent_total_bytes_ = 0;
  uint32_t unrequested_packets_ = 0;  // after the last packet that requested an acknowledgement
};

}  // namespace etloop
