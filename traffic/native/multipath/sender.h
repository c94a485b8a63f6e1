// The half of a multipath queue pair that asks, whatever its headers: posted messages become packets, each on a path of its own;
// what answers report becomes arrivals, losses and completions; what is missing is sent again by another path. Writes only.
// Rules: OCP MRC 1.0, chapters 7 and 11, and UET 1.0, 3.5, as read by docs/mrc.md and docs/uet.md. Timeouts are those of ETLoop's
// RoCEv2 (docs/transport.md).
//
// Liveness: a sender that has something to send and may not, because its window is full, always has an answer coming without any
// timer, unless a packet or an answer was lost. Three rules keep this true, whatever the receiver's ACK interval (`sack_bytes`):
// 1. The last packet that the window allows asks for an answer (UET 1.0, 3.6.13: AR; MRC: BTH.a), and so does every packet while
//    the congestion window is below the ACK interval. A retransmission is always answered.
// 2. The window may shrink behind packets that do not ask, and a packet that asks may be trimmed or overtake those before it.
//    Then no packet under way asks, and one more leaves although the congestion window is full: it asks.
// 3. The packet window (`window_packets`) is never exceeded, as the receiver would refuse the packet. There a probe asks.
// `answer_comes` says whether a packet under way asks.
#pragma once

#include <cstdint>
#include <memory_resource>

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
  uint32_t offset_bytes = 0;  // of its payload in the message
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // nullptr: the pattern
  uint16_t entropy = 0;
  bool first = false;
  bool last = false;
  bool again = false;
  bool asks = false;  // for an answer as soon as it arrives
};

// What an answer asks to do with the entropy value of the packet that caused it.
enum class PathMark : uint8_t { none, skip_once, skip_always };

// What an answer says of the packets that were sent.
struct ArrivalReport {
  uint32_t cumulative_psn = 0;  // everything up to here has arrived
  uint32_t bitmap_psn = 0;      // of the lowest bit
  uint64_t bitmap = 0;          // 1: has arrived
  uint32_t cause_psn = 0;       // of the packet that caused it, unless it answers a probe
  bool answers_probe = false;
  uint16_t probe_id = 0;
  PathMark mark = PathMark::none;
  bool names_value = false;     // then `value` is that of the packet that caused it, else it is looked up
  uint16_t value = 0;
  bool names_resend = false;    // then `resent` says which transmission of it came
  bool resent = false;
};

class Sender {
 public:
  // `number`: of the peer's end, which draws and long waits are spread by. `paths`: all queue pairs' to the same peer. These and
  // `memory`, in which what is posted is kept, outlive this.
  Sender(uint32_t number, PathStates& paths, const TransportSettings& params, FlowRecord& counters,
         std::pmr::memory_resource& memory);

  void post(const WorkRequest& request);
  // Whether a packet of a message may leave, whatever congestion control says.
  bool has_run() const;
  // So many are still to be sent, or sent again.
  uint32_t waiting_packets() const {
    return sent_.lost() + static_cast<uint32_t>(wire::psn_distance(requests_.end_psn(), sent_.next()));
  }
  // The next packet of a message, by one of these planes; requires has_run(). Nothing changes until `sent` but whose turn of the
  // entropy values it is.
  Departure next(uint32_t planes = kAllPlanes);
  // The port took it; `asks` as it left. Returns the request that it begins, if it begins one, else nullptr.
  const WorkRequest* sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now);
  // Whether the peer will answer a packet that is under way as soon as it arrives.
  bool answer_comes() const { return sent_.asking() > 0; }

  AckOutcome on_report(const ArrivalReport& report, Nanos now);
  // The peer has the packet not, or has no room for it: it is sent again, and where order is kept all behind it is, too. False:
  // that was known, or it has arrived.
  bool lose(uint32_t psn, Nanos now);
  // Every message before `end` is over, of which all was sent.
  void complete_before(uint32_t end);
  // All packets of what is over have arrived: for transports that tell of messages by themselves.
  void learn_of_completed(Nanos now, AckOutcome& outcome);
  bool pop_completed(WorkRequest& done) { return requests_.pop_completed(done); }

  // A probe of a silent end, or of an entropy value that is out of use.
  bool probe_due(Nanos now);
  // Where a probe would find nobody who answers: the oldest packet is sent again in its place. False: no probe was wanted.
  bool resend_for_probe();
  void want_probe() { probe_.due = ProbeReason::silence; }
  bool wants_probe() const { return fault_ == QpFault::none && probe_.due != ProbeReason::none; }
  const Probe& last_probe() const { return probe_; }
  uint16_t probe_value() { return probe_.due == ProbeReason::value ? probe_.value_due : entropy_.next(); }
  void probe_sent(uint16_t value, Nanos now) { probe_.sent(value, now); }

  Nanos deadline() const;
  void on_timer(Nanos now);
  void fail(QpFault fault);

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
  void learn_value(const ArrivalReport& report);
  void learn_round_trip(const ArrivalReport& report, Nanos now, AckOutcome& outcome);
  void learn_of_probe(const ArrivalReport& report, Nanos now, AckOutcome& outcome);
  void note_arrived(const SentPacket& packet, AckOutcome& outcome);
  void arrived_before(uint32_t end, Nanos now, AckOutcome& outcome);
  void lose_for_good(uint32_t psn);
  bool resend_grant();
  void lose_older_than(Nanos sent_before_ns);
  uint32_t lose_overtaken(uint32_t by, Nanos now);
  // There is more to send, and nothing leaves. At the end of all that was posted a probe asks.
  Nanos stuck_at_ns() const { return has_run() ? reordering_.stuck_at_ns(timer_) : kNever; }
  // The packet window, or what may be under way of it where order is kept, has no room behind `more` packets.
  bool fills_window(uint32_t more) const {
    return sent_.span() + more >= window_ || sent_.under_way() + more >= order_.burst_packets();
  }
  void ask_if_closed();
  bool waits() const { return !requests_.empty() && sent_.next() != first_untaken_; }

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
  uint32_t lost_unsaid_ = 0;     // since the last answer, for the outcome of the next
  uint32_t first_untaken_;       // every message before it is over
  QpFault fault_ = QpFault::none;
  Probe probe_;
  uint8_t inline_[kClearToSendBytes] = {};
};

}  // namespace etloop::multipath
