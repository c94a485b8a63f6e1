// The sender of a multipath queue pair, independent of headers: builds packets of posted messages, each on its own path; turns
// answers into arrivals, losses and completions; retransmits missing packets on other paths. Writes only. Rules: OCP MRC 1.0,
// chapters 7 and 11, and UET 1.0, 3.5, as interpreted in docs/mrc.md and docs/uet.md. Timeouts are those of ETLoop's RoCEv2
// (docs/transport.md).
//
// Liveness: a sender that is blocked by a full window always has an answer coming without any timer, unless a packet or an answer
// was lost. Three rules ensure this, whatever the receiver's ACK interval (`sack_bytes`):
// 1. The last packet that the window allows requests an answer (UET 1.0, 3.6.13: AR; MRC: BTH.a), and so does every packet while
// the congestion window is below the ACK interval. A retransmission is always answered.
// 2. The window may shrink after packets without a request, and a packet with one may be trimmed or overtake those before it. If
// then no packet in flight requests an answer, one more leaves in spite of a full congestion window, with a request.
// 3. The packet window (`window_packets`) is never exceeded, as the receiver would reject the packet. There a probe requests the
// answer. `answer_comes` is true if a packet in flight requests an answer.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "multipath/entropy.h"
#include "multipath/kept_order.h"
#include "multipath/probe.h"
#include "multipath/reordering.h"
#include "multipath/sent_packets.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/answer_timer.h"
#include "qp/request_ring.h"
#include "qp/tail_probe.h"
#include "qp/work.h"

namespace etloop::multipath {

// A packet of a message that may leave now.
struct Departure {
  const WorkRequest* request = nullptr;
  uint32_t psn = 0;
  uint32_t offset_bytes = 0;  // offset of its payload in the message
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // nullptr: the pattern
  uint16_t entropy = 0;
  bool first = false;
  bool last = false;
  bool again = false;
  bool asks = false;  // requests an answer on arrival
};

// Request of an answer about the entropy value of the packet that caused it.
enum class PathMark : uint8_t { none, skip_once, skip_always };

// Contents of an answer about sent packets.
struct ArrivalReport {
  uint32_t cumulative_psn = 0;  // all packets up to here have arrived
  uint32_t bitmap_psn = 0;      // PSN of the lowest bit
  uint64_t bitmap = 0;          // 1: arrived
  uint32_t cause_psn = 0;       // packet that caused it, unless it answers a probe
  bool answers_probe = false;
  uint16_t probe_id = 0;
  PathMark mark = PathMark::none;
  bool names_value = false;     // `value` is the value of the causing packet; otherwise it is looked up
  uint16_t value = 0;
  bool names_resend = false;    // `resent` identifies the transmission that arrived
  bool resent = false;
};

// Error that an answer reported, and when.
struct ReportedError {
  QpFault fault = QpFault::none;
  Nanos at_ns = 0;
};

class Sender {
 public:
  // `number`: the peer's endpoint number, which seeds draws and spreads long waits. `paths`: shared by all queue pairs to the
  // peer. These and `memory`, which holds posted requests, outlive this.
  Sender(uint32_t number, PathStates& paths, const TransportSettings& params, FlowRecord& counters,
         std::pmr::memory_resource& memory);

  void post(const WorkRequest& request);
  // Whether a packet may leave, apart from congestion control.
  bool has_run() const;
  // Packets still to be sent or retransmitted.
  uint32_t waiting_packets() const {
    return sent_.lost() + static_cast<uint32_t>(wire::psn_distance(requests_.end_psn(), sent_.next()));
  }
  // The next packet, on one of these planes; requires has_run(). No state changes until `sent` except the turn of the entropy
  // values.
  Departure next(uint32_t planes = kAllPlanes);
  // The port accepted the packet; `asks` as sent. Returns the request that it begins, if any, else nullptr.
  SentRequest sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now);
  // Whether a packet in flight requests an answer on arrival.
  bool answer_comes() const { return sent_.asking() > 0; }

  AckOutcome on_report(const ArrivalReport& report, Nanos now);
  // The peer does not have the packet, or no room for it: retransmit it, and with in-order delivery all later packets. False:
  // known already, or it has arrived.
  bool lose(uint32_t psn, Nanos now);
  // All messages before `end` are complete; all of them were sent.
  void complete_before(uint32_t end);
  // All packets of completed messages have arrived: for transports that report messages separately.
  void learn_of_completed(Nanos now, AckOutcome& outcome);
  bool pop_completed(WorkRequest& done) { return requests_.pop_completed(done); }

  // Whether to probe a silent peer, or a withdrawn entropy value.
  bool probe_due(Nanos now);
  // If the peer could not answer a probe: retransmit the oldest packet instead. False: no probe was wanted.
  bool resend_for_probe();
  void want_probe() { probe_.due = ProbeReason::silence; }
  bool wants_probe() const { return fault_ == QpFault::none && probe_.due != ProbeReason::none; }
  const Probe& last_probe() const { return probe_; }
  uint16_t probe_value() { return probe_.due == ProbeReason::value ? probe_.value_due : entropy_.next(); }
  void probe_sent(uint16_t value, Nanos now) { probe_.sent(value, now); }

  Nanos deadline() const;
  void on_timer(Nanos now);
  void fail(QpFault fault);
  // An answer has this error, which anyone who sees a packet can forge: it is the fault only if the peer is silent from now on.
  void note_error(QpFault fault, Nanos now) { error_ = {fault, now}; }
  // The peer no longer answers.
  void give_up() { fail(error_.fault != QpFault::none ? error_.fault : QpFault::retries_exceeded); }

  QpFault fault() const { return fault_; }
  bool idle() const { return requests_.empty(); }
  const WorkRequest* oldest_request() const { return requests_.oldest(); }
  const SentPackets& packets() const { return sent_; }
  EntropyValues& entropy() { return entropy_; }
  const AnswerTimer& timer() const { return timer_; }
  void note_answer(Nanos now) { tail_.note_answer(now); }
  void set_window(uint32_t packets);
  void set_round_trip(Nanos round_trip_ns) { timer_.set_round_trip(round_trip_ns); }

 private:
  std::optional<uint16_t> learn_value(const ArrivalReport& report);
  void learn_round_trip(const ArrivalReport& report, Nanos now, AckOutcome& outcome);
  void learn_of_probe(const ArrivalReport& report, Nanos now, AckOutcome& outcome);
  void note_arrived(const SentPacket& packet, AckOutcome& outcome);
  void arrived_before(uint32_t end, Nanos now, AckOutcome& outcome);
  void retransmit(uint32_t psn);
  bool resend_grant();
  void lose_older_than(Nanos sent_before_ns);
  uint32_t lose_overtaken(uint32_t by, Nanos now);
  // Deadline while more could be sent but does not leave. After the last posted packet a probe is used instead.
  Nanos stuck_at_ns() const { return has_run() ? reordering_.stuck_at_ns(timer_) : kNever; }
  // Whether the packet window, or the burst with in-order delivery, has no room for a packet after `more`.
  bool fills_window(uint32_t more) const {
    return sent_.span() + more >= window_ || sent_.under_way() + more >= order_.burst_packets();
  }
  void ask_if_closed();
  bool waits() const { return !requests_.empty() && sent_.next() != completed_end_; }

  FlowRecord& counters_;
  SentPackets sent_;
  KeptOrder order_;
  EntropyValues entropy_;
  RequestRing requests_;
  AnswerTimer timer_;
  TailProbe tail_;
  uint32_t path_mtu_;
  uint32_t mtu_shift_;
  uint32_t window_ = 1;
  Reordering reordering_;
  uint32_t unreported_losses_ = 0;     // losses since the last answer, for the next outcome
  uint32_t completed_end_;       // all messages before it are complete
  QpFault fault_ = QpFault::none;
  ReportedError error_;
  Probe probe_;
  uint8_t inline_[kClearToSendBytes] = {};
};

}  // namespace etloop::multipath
