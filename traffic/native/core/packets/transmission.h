// Schedules the departures of a port: queue pairs with data take turns; acknowledgements, notifications, grants and probes are
// sent between them. Notifies queue pairs and congestion control of sent packets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prefetch.h"
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
  // Collaborators; all of them outlive this.
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

  // Call after the queue pairs are open.
  void load();
  // Set the fault injector that every departure passes first; nullptr: none.
  void set_faults(FaultInjector* faults) { faults_ = faults; }
  // For ports where an answer costs a system call: hold acknowledgements of grants, and of messages that are followed by more of
  // their op, for up to these times, so that one covers several; and let queue pairs keep their turns, so that fewer are needed.
  // 0: answers leave at once.
  void set_answer_patience(Nanos grants_ns, Nanos data_ns);

  // Stop sending data and grants; keep answering peers.
  void end_data();
  bool data_ended() const { return data_ended_; }

  // Time at which held acknowledgements must leave; kNever: none is held.
  Nanos answers_due_ns() const { return std::min(held_of_grants_.due_ns(), held_of_data_.due_ns()); }

  // Post a request to a queue pair.
  void post(uint32_t index, const WorkRequest& request) {
    Qp& qp = queue_pairs_[index];
    qp.post(request);
    if (order_.short_first && !qp.queued && request.bytes <= order_.short_bytes && queue_pairs_.place(index).sends_data) {
      qp.queued = true;
      data_rings_[kShort].push(index);
      ++data_waiting_;
      return;
    }
    queue(index);
  }
  // Queue a queue pair that may have something to send.
  void queue(uint32_t index) {
    Qp& qp = queue_pairs_[index];
    if (qp.queued) return;
    qp.queued = true;
    const QpPlace& place = queue_pairs_.place(index);
    (place.sends_data ? ring_of(place) : grant_ring_).push(index);
    ++(place.sends_data ? data_waiting_ : grants_waiting_);
  }
  void queue_acknowledgement(uint32_t index, Nanos now);
  // Hold the acknowledgement of a message of `packets` packets, as more of its op follow; at most `most` messages stay
  // unacknowledged. `rests`: no sender waits for it, so that it does not leave with a grant either. False: queue the
  // acknowledgement instead.
  bool hold_acknowledgement(uint32_t index, uint32_t packets, uint32_t most, bool rests, Nanos now);
  // Answer now what is held on the other queue pairs of a connection that receives data.
  void release_held(int32_t connection, Nanos now);
  bool holds_data() const { return holds_data_; }
  // Send answers before data in the next turn: a peer's op waits for one, and its next op for that.
  void answer_first() { answers_wait_ = true; }
  void queue_notification(uint32_t index) { notifications_.push_back(index); }

  // Keep the parts of turnarounds, too.
  void measure_parts() { measures_parts_ = true; }
  // Number of the next turn to send.
  uint32_t next_turn() const { return turn_ + 1; }

  // Most packets in flight to the address of the peer from all queue pairs; 0: no common limit.
  uint32_t limit_packets(uint32_t index) const { return pools_.limit_packets(index); }
  // Set the window share that the peer offered.
  void offer(uint32_t index, uint32_t share) { pools_.offer(index, share); }
  // Update the pool after packets were acknowledged or are no longer in flight.
  void settle_window(uint32_t index) {
    pools_.settle(index, queue_pairs_[index].in_flight_packets());
    wake_windows(index);
  }
  // Retry held runs: an event may change the result for one queue pair, or for any.
  void forget_held(uint32_t index) {
    for (TransmitRing& ring : data_rings()) {
      if (ring.held.qp == index) ring.held.qp = HeldFront::kNone;
    }
    if (grant_ring_.held.qp == index) grant_ring_.held.qp = HeldFront::kNone;
  }
  void forget_held() {
    for (TransmitRing& ring : data_rings()) ring.held.qp = HeldFront::kNone;
    grant_ring_.held.qp = HeldFront::kNone;
  }

  // Send at most `budget` runs of data. True: more can be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget) {
    if (faults_ == nullptr) return transmit_all(port, clock, budget);
    const TxResult result = faults_->attach(port, clock.now());
    if (result == TxResult::failed) failure_.set(-1, port.last_error());
    return result == TxResult::sent && transmit_all(*faults_, clock, budget);
  }

 private:
  static constexpr uint32_t kKnownTurns = 64;
  static constexpr size_t kClasses = 8;

  // The order of queue pairs with data.
  struct Order {
    uint32_t burst_packets = 0;  // of a turn; 0: one run, or as the pool has it
    uint32_t short_bytes = 0;
    bool by_class = false;
    bool short_first = false;  // short messages do not wait for the turns of others
    Nanos look_early_until_ns = 0;  // until then, short messages are likely to arrive
  };

  static constexpr size_t kShort = 0;  // index of the ring of short messages
  static constexpr size_t kOthers = 1;
  std::span<TransmitRing> data_rings() { return std::span(data_rings_).first(ring_count_); }
  TransmitRing& ring_of(const QpPlace& place) {
    return data_rings_[order_.by_class ? kOthers + (kClasses - 1) - (place.traffic_class >> 5) : kOthers];
  }
  void leave(TransmitRing& ring, Qp& qp);
  bool stays_in_front(const TransmitRing& ring, uint32_t index) const;
  bool transmit_all(TxPort& port, Clock& clock, size_t budget);
  void begin_turn(Clock& clock);
  void note_begun(const QpPlace& place, const WorkRequest& begun, Nanos now, Nanos leaves_ns);
  // Queue pairs whose acknowledgement is held, for `patience_ns` after the first.
  struct HeldAcknowledgements {
    std::vector<uint32_t> queue_pairs;
    Nanos since_ns = 0;
    Nanos patience_ns = 0;

    Nanos due_ns() const { return queue_pairs.empty() ? kNever : since_ns + patience_ns; }
  };

  bool any_answers() const;
  bool transmit_all_answers(TxPort& port, Clock& clock);
  bool answers_cost_calls() const { return held_of_grants_.patience_ns > 0; }
  bool transmit_acknowledgements(TxPort& port);
  bool transmit_held(HeldAcknowledgements& held, TxPort& port);
  bool transmit_held_due(TxPort& port, Clock& clock);
  TxResult transmit_answers_of(uint32_t index, TxPort& port);
  void hold_acknowledgement_of(Qp& qp, uint32_t index, Nanos now);
  bool transmit_grants(TxPort& port, Clock& clock);
  bool transmit_notifications(TxPort& port);
  bool transmit_probes(TxPort& port, Clock& clock);
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  TxResult transmit_run(TransmitRing& ring, TxPort& port, Clock& clock);
  void expect_turns(const TransmitRing& ring) const;
  bool still_held(const TransmitRing& ring, TxPort& port, Clock& clock) const;
  bool only_held_waits(TxPort& port, Clock& clock) const;
  void keep_held(TransmitRing& ring);
  uint32_t room_for(uint32_t index, const PacketRun& run);
  void wake_windows(uint32_t index);

  const EnginePlan& plan_;
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  Flows& flows_;
  Probing& probing_;
  MessageDepartures& departures_;
  Failure& failure_;
  FaultInjector* faults_ = nullptr;
  // The members that every turn uses fill few cache lines: a thread of many ports alternates between cores.
  alignas(kLineBytes) bool answers_wait_ = false;  // the port was full before answers had their turn
  bool holds_data_ = false;                        // acknowledgements of data may be held
  bool measures_parts_ = false;                    // of turnarounds
  uint8_t ring_count_ = kOthers + 1;
  uint32_t turn_ = 0;
  uint32_t data_waiting_ = 0;    // queue pairs in `data_rings_`
  uint32_t grants_waiting_ = 0;  // in `grant_ring_`
  Nanos sent_until_ns_ = 0;    // when the last send call returned, or the turn began
  uint64_t data_packets_ = 0;  // data packets sent so far
  Order order_;
  std::vector<uint32_t> acknowledgements_;
  HeldAcknowledgements held_of_grants_;
  HeldAcknowledgements held_of_data_;
  std::vector<uint32_t> notifications_;
  uint32_t most_held_messages_ = 0;  // most messages held per queue pair
  TransmitRing grant_ring_;          // receiving ends: clear-to-send writes
  // Sending ends, in the order of service: those whose next message is short, where others keep long turns; then the others, or,
  // with arbitration by class, each class from the highest.
  std::array<TransmitRing, kOthers + kClasses> data_rings_;
  WindowPools pools_;
  bool data_ended_ = false;
  std::array<Nanos, kKnownTurns> turn_began_ns_{};  // of turn i modulo their number, if parts of turnarounds are measured
};

}  // namespace etloop
