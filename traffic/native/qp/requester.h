// The requester of a queue pair: builds packets of posted requests, completes them by answers, and retransmits on timeout. Rules:
// InfiniBand Architecture Specification vol. 1, 9.7.5 (acknowledgement), 9.7.6 (completion), 9.9.2 (errors); adaptive timeout:
// docs/transport.md. A NAK causes go-back-N or, between ends that agreed, selective repeat.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/answer_timer.h"
#include "qp/repeated_round_trip.h"
#include "qp/request_ring.h"
#include "qp/scoreboard.h"
#include "qp/tail_probe.h"
#include "qp/work.h"
#include "wire/clear_to_send.h"
#include "wire/packet_run.h"

namespace etloop {

class Requester {
 public:
  // Requests are stored in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, FlowId flow, const TransportSettings& params, FlowRecord& counters,
            std::pmr::memory_resource& memory);

  void post(const WorkRequest& request) {
    requests_.post(request);
    if (fault_ != QpFault::none) fail(fault_);  // flushed like the others
  }
  bool has_run() const;
  PacketRun next_run(uint32_t max_run);
  const WorkRequest* run_sent(const PacketRun& run, Nanos now);
  AckOutcome on_answer(const wire::Packet& packet, Nanos now);
  bool pop_completed(WorkRequest& done) { return requests_.pop_completed(done); }

  Nanos deadline() const;
  void on_timer(Nanos now);
  void fail(QpFault fault);

  QpFault fault() const { return fault_; }
  uint32_t oldest_unacknowledged() const { return una_; }
  const AnswerTimer& timer() const { return timer_; }
  // Packets sent and not yet acknowledged, and their payload bytes if all were full.
  uint32_t in_flight_packets() const { return static_cast<uint32_t>(wire::psn_distance(next_psn_, una_)); }
  int64_t in_flight_bytes() const;
  // Packets before `psn` in flight. Excludes packets to be retransmitted and, with selective repeat, arrived ones. 0 while
  // probing a silent end: otherwise a closed window would block the probe forever.
  uint32_t under_way_before(uint32_t psn) const {
    if (probing_ > 0) return 0;
    if (selective_ != nullptr) return selective_->board.under_way();
    return static_cast<uint32_t>(std::max(0, wire::psn_distance(psn, una_)));
  }
  // Whether a packet in flight requests an answer.
  bool answer_comes() const {
    return selective_ != nullptr ? selective_->board.answer_comes() : wire::psn_distance(asked_end_, una_) > 0;
  }
  // Prefetch the request of the next run.
  void expect_run() const { requests_.expect_next(); }
  bool idle() const { return requests_.empty(); }
  // Whether the next packets are retransmissions.
  bool repeats() const { return any_lost() || next_psn_ != sent_end_; }
  void set_window(uint32_t packets);
  void set_remote_qpn(uint32_t qpn) { remote_qpn_ = qpn; }
  // Set a round trip measured by other means before the first packet.
  void set_round_trip(Nanos round_trip_ns) { timer_.set_round_trip(round_trip_ns); }

 private:
  struct Selective {
    explicit Selective(const TransportSettings& params) : probe(params) {}
    Scoreboard board;
    TailProbe probe;
    RepeatedRoundTrip repeated;

    // Round trip of arrived packets for congestion control; packets sent once are preferred.
    void learn_round_trip(uint32_t psn, uint32_t count, Nanos now, AckOutcome& outcome) {
      const Nanos again_ns = repeated.arrived(psn, count, now);
      if (outcome.rtt_ns < 0) outcome.rtt_ns = again_ns;
    }
  };

  PacketRun build(const WorkRequest& request, uint32_t psn, uint32_t room, uint32_t max_run);
  void put_clear_to_send(const WorkRequest& request);

  void on_acknowledgement(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void on_trimmed(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void on_nak(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void on_response(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  bool take_response(WorkRequest& request, const wire::Packet& packet);
  bool acknowledge_before(uint32_t end, Nanos now, AckOutcome& outcome);
  void advance_to(uint32_t end, Nanos now, AckOutcome& outcome);
  void implied_nak(Nanos now, AckOutcome& outcome);
  void recover(uint32_t psn, Nanos now);
  void learn_arrivals(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void rewind(uint32_t psn);
  bool may_retry(Nanos now);
  bool any_lost() const { return selective_ != nullptr && selective_->board.any_lost(); }
  void probe_both_ends();

  // Ordered by frequency of use: a turn to send reads the first four cache lines, an answer fewer.
  FlowRecord& counters_;
  uint32_t una_;
  uint32_t next_psn_;
  uint32_t sent_end_;  // first PSN never sent
  uint32_t asked_end_;  // PSN after the last packet that requests an answer, since the last rewind
  uint32_t window_ = 0;
  QpFault fault_ = QpFault::none;
  QpFault reported_ = QpFault::none;  // error NAK since the last progress: the fault, if no progress follows
  uint8_t probing_ = 0;   // packets still to be retransmitted to probe a silent end
  bool holding_ = false;  // waiting after an RNR NAK
  bool implied_nak_noted_ = false;  // at most one implied NAK until the next progress
  uint32_t ack_every_ = 0;
  uint32_t path_mtu_;
  uint32_t mtu_shift_;
  std::unique_ptr<Selective> selective_;  // selective repeat; nullptr: go-back-N
  RequestRing requests_;
  uint32_t remote_qpn_;
  FlowId flow_;
  AnswerTimer timer_;

  bool reorders_;                 // overtaken packets may only be late: the peer reports losses
  uint32_t ack_every_limit_;
  uint32_t rnr_retry_limit_;
  uint32_t rnr_retries_ = 0;
  uint32_t outstanding_limit_;
  Nanos hold_until_ns_ = 0;
  uint8_t inline_[kClearToSendBytes] = {};
};

// Called several times per packet: inline.

inline bool Requester::has_run() const {
  if (fault_ != QpFault::none || holding_) return false;
  if (any_lost()) return true;
  if (!requests_.any_to_send() || static_cast<uint32_t>(wire::psn_distance(next_psn_, una_)) >= window_) return false;
  return requests_.may_begin(outstanding_limit_);
}

inline int64_t Requester::in_flight_bytes() const {
  const auto sent = static_cast<uint32_t>(wire::psn_distance(next_psn_, una_));
  return static_cast<int64_t>(selective_ != nullptr ? selective_->board.under_way() : sent) << mtu_shift_;
}

}  // namespace etloop
