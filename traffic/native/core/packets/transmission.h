// What leaves a port, and in which order: queue pairs with something to send take turns; acknowledgements, notifications,
// grants and probes go between them. Tells queue pairs and their congestion control what was sent.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "core/connections.h"
#include "core/failure.h"
#include "core/packets/faults.h"
#include "core/packets/flows.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmit_ring.h"
#include "core/port.h"
#include "core/queues/message_departures.h"
#include "plan/plan.h"
#include "qp/window_pools.h"
#include "qp/work.h"
#include "wire/packet_run.h"

namespace etloop {

class Transmission {
 public:
  // What it works with; all of it outlives it.
  struct Parts {
    const EnginePlan& plan;
    const Connections& connections;
    QueuePairs& queue_pairs;
    Flows& flows;
    Probing& probing;
    MessageDepartures& departures;
    Failure& failure;
  };
  explicit Transmission(const Parts& parts)
      : plan_(parts.plan),
        connections_(parts.connections),
        queue_pairs_(parts.queue_pairs),
        flows_(parts.flows),
        probing_(parts.probing),
        departures_(parts.departures),
        failure_(parts.failure) {}

  // Once the queue pairs are open.
  void load();
  // What is sent passes here first; nullptr: nothing does.
  void set_faults(FaultInjector* faults) { faults_ = faults; }
  // Of a port where an answer costs a call: acknowledgements of grants, and of messages that others of their op follow, for
  // which nobody waits, may stay so long, and one of them then answers several; and queue pairs keep their turns, so that
  // there are fewer. 0: another port, on which answers leave at once.
  void set_answer_patience(Nanos patience_ns);

  // Data and grants leave no more; what answers peers does.
  void end_data();
  bool data_ended() const { return data_ended_; }

  // When acknowledgements that waited leave, whatever else there is to send; kNever: none waits.
  Nanos answers_due_ns() const {
    return patient_acknowledgements_.empty() ? kNever : patient_since_ns_ + answer_patience_ns_;
  }

  // Gives a queue pair something to send.
  void post(uint32_t index, const WorkRequest& request) {
    queue_pairs_[index].post(request);
    queue(index);
  }
  // The queue pair may have something to send.
  void queue(uint32_t index) {
    Qp& qp = queue_pairs_[index];
    if (qp.queued) return;
    qp.queued = true;
    (queue_pairs_.place(index).sends_data ? data_ring_ : grant_ring_).push(index);
  }
  void queue_acknowledgement(uint32_t index, Nanos now);
  // What a queue pair acknowledges, a whole message of so many packets, others of its op are to follow: at most `most` of
  // them go unanswered for that. False: its acknowledgement is to be queued.
  bool hold_acknowledgement(uint32_t index, uint32_t packets, uint32_t most, Nanos now);
  bool holds_data() const { return holds_data_; }
  void queue_notification(uint32_t index) { notifications_.push_back(index); }

  // Packets that the queue pairs to its peer's address may have under way; 0: not bounded together.
  uint32_t limit_packets(uint32_t index) const { return pools_.limit_packets(index); }
  // What the peer offered the queue pair.
  void offer(uint32_t index, uint32_t share) { pools_.offer(index, share); }
  // Something of the queue pair was acknowledged, or is no longer under way.
  void settle_window(uint32_t index) {
    pools_.settle(index, queue_pairs_[index].in_flight_packets());
    wake_windows(index);
  }
  // Something happened that another try of what was held may depend on: to one queue pair, or to any.
  void forget_held(uint32_t index) {
    if (data_ring_.held.qp == index) data_ring_.held.qp = HeldFront::kNone;
    if (grant_ring_.held.qp == index) grant_ring_.held.qp = HeldFront::kNone;
  }
  void forget_held() { data_ring_.held.qp = grant_ring_.held.qp = HeldFront::kNone; }

  // Sends at most `budget` runs of data. True: there is more that could be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget) {
    if (faults_ == nullptr) return transmit_all(port, clock, budget);
    const TxResult result = faults_->attach(port, clock.now());
    if (result == TxResult::failed) failure_.set(-1, port.last_error());
    return result == TxResult::sent && transmit_all(*faults_, clock, budget);
  }

 private:
  bool transmit_all(TxPort& port, Clock& clock, size_t budget);
  bool any_answers() const;
  bool transmit_all_answers(TxPort& port, Clock& clock);
  bool answers_cost_calls() const { return answer_patience_ns_ > 0; }
  bool puts_off(bool sent_data, Clock& clock);
  bool transmit_acknowledgements(TxPort& port);
  bool transmit_patient_acknowledgements(TxPort& port);
  TxResult transmit_answers_of(Qp& qp, TxPort& port);
  void stay_patient(Qp& qp, uint32_t index, Nanos now);
  bool transmit_grants(TxPort& port, Clock& clock);
  bool transmit_notifications(TxPort& port);
  bool transmit_probes(TxPort& port, Clock& clock);
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  TxResult transmit_run(TransmitRing& ring, TxPort& port, Clock& clock);
  void expect_turns(const TransmitRing& ring) const;
  bool still_held(const TransmitRing& ring, TxPort& port, Clock& clock) const;
  void keep_held(TransmitRing& ring);
  uint32_t room_for(uint32_t index, const PacketRun& run);
  void wake_windows(uint32_t index);
  bool patience_is_over(Clock& clock) const;

  const EnginePlan& plan_;
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  Flows& flows_;
  Probing& probing_;
  MessageDepartures& departures_;
  Failure& failure_;
  FaultInjector* faults_ = nullptr;
  // What every turn looks at, whatever came, is together: a host of many ports goes from one to the other.
  bool answers_wait_ = false;  // the port took no more before their turn came
  bool acknowledgements_put_off_ = false;  // until what has arrived meanwhile was looked at
  TransmitRing data_ring_;     // of sending ends
  TransmitRing grant_ring_;    // of receiving ends: clear-to-send writes
  std::vector<uint32_t> acknowledgements_;
  std::vector<uint32_t> patient_acknowledgements_;  // those that nobody waits for, since then
  Nanos patient_since_ns_ = 0;
  uint32_t most_patient_messages_ = 0;  // of a queue pair
  bool holds_data_ = false;  // whether acknowledgements of data are among them
  Nanos answer_patience_ns_ = 0;
  std::vector<uint32_t> notifications_;
  WindowPools pools_;
  uint64_t data_packets_ = 0;  // sent so far
  bool data_ended_ = false;
  Nanos put_off_since_ns_ = 0;
};

}  // namespace etloop
