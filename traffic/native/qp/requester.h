// The half of a queue pair that asks: posted requests become packets, answers complete them, silence repeats them.
// Rules: InfiniBand Architecture Specification vol. 1, 9.7.5 (acknowledgement), 9.7.6 (completion), 9.9.2 (errors);
// adaptive timeout: docs/transport.md. What a NAK calls for is go-back-N or, between ends that agreed, selective repeat.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/work.h"
#include "wire/clear_to_send.h"
#include "wire/packet_run.h"

namespace etloop {

class Requester {
 public:
  // What is posted is kept in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, FlowId flow, const TransportParams& params, FlowRecord& counters,
            std::pmr::memory_resource& memory);

  void post(const WorkRequest& request);
  bool has_run() const;
  PacketRun next_run(uint32_t max_run);
  const WorkRequest* run_sent(const PacketRun& run, Nanos now);
  AckOutcome on_answer(const wire::Packet& packet, Nanos now);
  bool pop_completed(WorkRequest& done);

  Nanos deadline() const;
  void on_timer(Nanos now);
  void fail(QpFault fault);

  QpFault fault() const { return fault_; }
  uint32_t oldest_unacknowledged() const { return una_; }
  // How often something was sent again since anything moved, and since when nothing has.
  uint32_t retries() const { return retries_; }
  Nanos progress_ns() const { return progress_ns_; }
  // Packets sent and not yet acknowledged, and their payload bytes, were they all full.
  uint32_t in_flight_packets() const { return static_cast<uint32_t>(wire::psn_distance(next_psn_, una_)); }
  int64_t in_flight_bytes() const;
  // The next run is soon asked for: what it is built of is needed.
  void expect_run() const {
    if (!ring_.empty()) prefetch(&entry(sending_));
  }
  bool idle() const { return head_ == tail_; }
  // What it sends next was sent before.
  bool repeats() const { return !resend_.empty() || next_psn_ != sent_end_; }
  void set_window(uint32_t packets);
  void set_remote_qpn(uint32_t qpn) { remote_qpn_ = qpn; }
  Nanos smoothed_rtt_ns() const { return smoothed_rtt_ns_; }
  size_t ring_bytes() const { return ring_.capacity() * sizeof(WorkRequest); }

 private:
  struct PsnRange {
    uint32_t psn;
    uint32_t count;
  };
  struct RttSample {
    uint32_t psn;
    Nanos sent_ns;
  };

  WorkRequest& entry(uint64_t position) { return ring_[position & (ring_.size() - 1)]; }
  const WorkRequest& entry(uint64_t position) const { return ring_[position & (ring_.size() - 1)]; }
  uint64_t position_of(uint32_t psn) const;
  PacketRun build(const WorkRequest& request, uint32_t psn, uint32_t room, uint32_t max_run);
  void put_clear_to_send(const WorkRequest& request);
  uint32_t span_of(const PacketRun& run) const;

  void on_acknowledgement(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void on_nak(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  void on_response(const wire::Packet& packet, Nanos now, AckOutcome& outcome);
  bool take_response(WorkRequest& request, const wire::Packet& packet);
  bool acknowledge_before(uint32_t end, Nanos now, AckOutcome& outcome);
  void advance_to(uint32_t end, Nanos now, AckOutcome& outcome);
  uint32_t acknowledgeable_to(uint32_t end) const;
  void implied_nak(Nanos now, AckOutcome& outcome);
  void complete_requests(AckOutcome& outcome);
  void recover(uint32_t psn, Nanos now);
  void recover_missing(const wire::Packet& packet, Nanos now);
  void rewind(uint32_t psn);
  void trim_resend();
  void sample_rtt(uint32_t end, Nanos now, AckOutcome& outcome);
  Nanos wait_ns() const;
  bool may_retry(Nanos now);
  void add_holes(const wire::Packet& packet, uint32_t from, uint32_t top);

  // In the order of how often it is looked at: a turn to send takes the first four cache lines, an answer's arrival fewer.
  FlowRecord& counters_;
  uint32_t una_;
  uint32_t next_psn_;
  uint32_t sent_end_;  // first PSN never sent
  uint32_t window_ = 0;
  // Requests [head_, tail_) are posted, [head_, sending_) fully sent at least up to next_psn_, [completed_, head_) over.
  uint64_t sending_ = 0;
  uint64_t tail_ = 0;
  QpFault fault_ = QpFault::none;
  bool holding_ = false;  // the peer was not ready to receive
  bool selective_;
  bool adaptive_;
  bool implied_told_ = false;  // one implied NAK until something moves
  uint32_t waiting_ = 0;       // READs and atomics in [head_, tail_)
  uint32_t outstanding_ = 0;   // of those, in [head_, sending_)
  uint32_t path_mtu_;
  uint32_t mtu_shift_;

  std::vector<PsnRange> resend_;   // selective repeat: what is missing at the peer, in order
  std::pmr::vector<WorkRequest> ring_;  // power of two, empty until something is posted
  uint64_t head_ = 0;
  uint32_t remote_qpn_;
  FlowId flow_;

  uint32_t ack_every_ = 0;
  uint32_t retries_ = 0;  // since anything moved
  uint32_t doublings_ = 0;  // of the adaptive wait, since a round trip was measured
  Nanos timer_base_ = 0;
  Nanos progress_ns_ = 0;  // since when nothing has moved; starts with the first packet under way
  Nanos smoothed_rtt_ns_ = -1;
  Nanos rtt_deviation_ns_ = 0;
  Nanos timeout_ns_;
  Nanos timeout_floor_ns_;
  uint32_t sample_head_ = 0;
  uint32_t sample_count_ = 0;
  std::array<RttSample, 4> samples_{};

  uint64_t completed_ = 0;
  uint32_t post_psn_;
  uint32_t head_bytes_counted_ = 0;  // payload of entry(head_) that an AckOutcome already told
  uint32_t examined_to_;             // holes below it were resent once
  uint32_t recovered_to_;            // and what was sent from here on came after that
  uint32_t ack_every_limit_;
  uint32_t retry_limit_;
  uint32_t rnr_retry_limit_;
  uint32_t rnr_retries_ = 0;
  uint32_t outstanding_limit_;
  Nanos hold_until_ns_ = 0;
  uint8_t inline_[kClearToSendBytes] = {};
};

// Asked several times for every packet: here, to be inlined.

inline bool Requester::has_run() const {
  if (fault_ != QpFault::none || holding_) return false;
  if (!resend_.empty()) return true;
  if (sending_ == tail_ || static_cast<uint32_t>(wire::psn_distance(next_psn_, una_)) >= window_) return false;
  return waiting_ == 0 || outstanding_ < outstanding_limit_ || !waits_for_response(entry(sending_).kind);
}

inline int64_t Requester::in_flight_bytes() const {
  return static_cast<int64_t>(wire::psn_distance(next_psn_, una_)) << mtu_shift_;
}

}  // namespace etloop
