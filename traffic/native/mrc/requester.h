// The half of an MRC queue pair that asks: posted messages become packets, each on a path of its own; SACKs, NACKs and probes say
// which have arrived, and what is missing is sent again by another path. Writes only.
// Rules: OCP MRC 1.0, chapters 7 and 11, as read by docs/mrc.md. Timeouts are those of ETLoop's RoCEv2 (docs/transport.md).
#pragma once

#include <cstdint>
#include <memory_resource>

#include "base/time.h"
#include "cc/ack_outcome.h"
#include "mrc/entropy.h"
#include "mrc/outgoing.h"
#include "mrc/sent_packets.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/answer_timer.h"
#include "qp/request_ring.h"
#include "qp/tail_probe.h"
#include "qp/work.h"

namespace etloop::mrc {

class Requester {
 public:
  // What is posted is kept in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, uint16_t first_port, const TransportParams& params, FlowRecord& counters,
            std::pmr::memory_resource& memory);

  void post(const WorkRequest& request);
  // Whether a packet of a message may leave, whatever congestion control says.
  bool has_run() const;
  // The next packet of a message; requires has_run(). Nothing changes until `sent` but whose turn of the entropy values it is.
  Outgoing next();
  // The port took it. Returns the request that it begins, if it begins one, else nullptr.
  const WorkRequest* sent(const Outgoing& outgoing, Nanos now);

  AckOutcome on_sack(const wire::mrc::Sack& sack, Nanos now);
  AckOutcome on_nack(const wire::mrc::Neth& nack, Nanos now);
  AckOutcome on_acknowledgement(const wire::mrc::Aeth& aeth, Nanos now);
  bool pop_completed(WorkRequest& done) { return requests_.pop_completed(done); }

  // A probe of a silent end, or of an entropy value that is out of use.
  bool probe_due(Nanos now);
  Outgoing probe();
  void probe_sent(Nanos now);

  Nanos deadline() const;
  void on_timer(Nanos now);
  void fail(QpFault fault);

  QpFault fault() const { return fault_; }
  bool repeats() const { return sent_.lost() > 0; }
  uint32_t oldest_unacknowledged() const { return sent_.oldest(); }
  uint32_t in_flight_packets() const { return sent_.under_way(); }
  const AnswerTimer& timer() const { return timer_; }
  // The path of an answer: those of this end's own packets, in turn.
  uint16_t value_for_answer() { return entropy_.next(); }
  void set_window(uint32_t packets);
  void set_round_trip(Nanos round_trip_ns) { timer_.set_round_trip(round_trip_ns); }

 private:
  wire::mrc::Write write_of(const WorkRequest& request, uint32_t psn, wire::mrc::Opcode& opcode);
  void learn(const wire::mrc::Seth& seth, Nanos now, AckOutcome& outcome);
  void note_arrived(const SentPacket& packet, AckOutcome& outcome);
  void arrived_before(uint32_t end, Nanos now, AckOutcome& outcome);
  void lose(uint32_t psn);
  void lose_older_than(Nanos sent_before_ns, bool silent);
  void complete();
  uint32_t overtaken_by() const;
  bool waits() const { return !requests_.empty() && sent_.next() != first_unacknowledged_; }

  FlowRecord& counters_;
  SentPackets sent_;
  EntropyValues entropy_;
  RequestRing requests_;
  AnswerTimer timer_;
  TailProbe tail_;
  uint32_t remote_qpn_;
  uint32_t path_mtu_;
  uint32_t mtu_shift_;
  uint32_t window_ = 1;
  uint32_t reorder_packets_;
  uint32_t most_under_way_ = 0;     // at any time
  uint32_t first_unacknowledged_;   // of messages: everything before it was acknowledged as a whole
  uint16_t next_msn_ = 0;
  uint16_t next_rqmsn_ = 0;
  uint16_t acknowledged_msns_ = 0;  // so many messages the peer has taken
  QpFault fault_ = QpFault::none;
  bool probe_wanted_ = false;
  bool probes_value_ = false;       // of the probe that is due: it is for `probed_value_`
  uint16_t probed_value_ = 0;
  uint16_t probe_id_ = 0;
  Nanos probe_sent_ns_ = -1;        // of the last one; -1: it is answered
  Nanos value_probed_ns_ = 0;
  uint8_t inline_[kClearToSendBytes] = {};
};

}  // namespace etloop::mrc
