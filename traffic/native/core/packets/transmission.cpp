#include "core/packets/transmission.h"

#include <algorithm>

#include "cc/etloop_cc.h"
#include "wire/wire.h"

namespace etloop {

namespace {

// Half of what a queue pair has under way at first: who grants never waits for room.
constexpr uint32_t kMostPatientMessages = 32;
// So much of a window may go unanswered, as its divisor: who sends data does not wait for room either.
constexpr uint32_t kHeldShareOfWindow = 2;
// Acknowledgements of data that are put off leave after this, even where every turn finds more to send: as long as a burst
// of sends takes, and far less than any timeout.
constexpr Nanos kLongestPutOffNs = 20'000;
// Of data that leaves before answers do: what one segmented send carries, about.
constexpr uint64_t kShortBurstPackets = 16;

}  // namespace

void Transmission::load() {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    const QpPlace& place = queue_pairs_.place(i);
    if (place.sends_data && plan_.transport.window_packets == 0) pools_.add(i, place.peer_ip);
  }
  data_ring_.resize(queue_pairs_.size());
  grant_ring_.resize(queue_pairs_.size());
  acknowledgements_.reserve(queue_pairs_.size());
  patient_acknowledgements_.reserve(queue_pairs_.size());
  const uint32_t window = plan_.transport.window_packets;
  most_patient_messages_ = std::max(1U, std::min(kMostPatientMessages, window == 0 ? kMostPatientMessages : window / 2));
}

// Acknowledgements of data stay only where nothing listens to when they come: neither congestion control nor a series of round
// trips, and nothing that asks early for what is not acknowledged.
void Transmission::set_answer_patience(Nanos patience_ns) {
  answer_patience_ns_ = patience_ns;
  if (answers_cost_calls()) pools_.keep_turns();
  const etloop_cc_algorithm* algorithm = plan_.congestion.algorithm;
  const bool is_heard = (algorithm != nullptr && algorithm->on_ack != nullptr) || plan_.series.interval_ns != 0;
  holds_data_ = answers_cost_calls() && !is_heard && !plan_.transport.recovery.selective_repeat &&
                plan_.transport.window_packets == 0;
}

void Transmission::end_data() {
  data_ended_ = true;
  data_ring_.clear();
  grant_ring_.clear();
  // What is queued already is not queued again.
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) queue_pairs_[i].queued = true;
}

void Transmission::queue_acknowledgement(uint32_t index, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (qp.ack_queued) return;
  const bool is_patient = answers_cost_calls() && queue_pairs_.place(index).sends_data;
  if (is_patient && !qp.nak_due() && qp.held_messages + 1U < most_patient_messages_) return stay_patient(qp, index, now);
  qp.ack_queued = true;
  acknowledgements_.push_back(index);
}

bool Transmission::hold_acknowledgement(uint32_t index, uint32_t packets, uint32_t most, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (!holds_data_ || qp.ack_queued || qp.nak_due() || qp.held_messages >= most) return false;
  const uint32_t unanswered = packets * (qp.held_messages + 2U);  // the next one has room as well
  const uint32_t held_packets = queue_pairs_.offered_window(index) / kHeldShareOfWindow;
  if (unanswered > std::min(held_packets, plan_.transport.ack_every_packets)) return false;
  stay_patient(qp, index, now);
  return true;
}

void Transmission::stay_patient(Qp& qp, uint32_t index, Nanos now) {
  ++qp.held_messages;
  if (qp.ack_held) return;
  qp.ack_held = true;
  if (patient_acknowledgements_.empty()) patient_since_ns_ = now;
  patient_acknowledgements_.push_back(index);
}

bool Transmission::patience_is_over(Clock& clock) const {
  return !patient_acknowledgements_.empty() && clock.now() - patient_since_ns_ >= answer_patience_ns_;
}

// Cuts a run to what its queue pair's pool has room for. 0: it waits for others to the same address. What is sent again was
// lost, and takes nobody's room.
uint32_t Transmission::room_for(uint32_t index, const PacketRun& run) {
  if (!queue_pairs_[index].repeats()) return pools_.allowed(index, run.count);
  pools_.pass(index);
  return run.count;
}

void Transmission::wake_windows(uint32_t index) {
  for (uint32_t awake = 0; pools_.take_awake(index, awake);) queue(awake);
}

// A card that is full is asked again at every turn, several times for each packet that leaves. Until something happens to the
// queue pair in front, the answer takes neither its run nor its state.
bool Transmission::still_held(const TransmitRing& ring, TxPort& port, Clock& clock) const {
  return ring.held.qp == ring.front() && clock.now() < ring.held.until_ns && port.holds(ring.held.flow);
}

void Transmission::keep_held(TransmitRing& ring) {
  const uint32_t index = ring.front();
  ring.held.qp = HeldFront::kNone;
  // Where others wait for the same room, a second try gives up the turn.
  if (!queue_pairs_[index].repeats() && pools_.anyone_waits(index)) return;
  ring.held = {index, queue_pairs_[index].flow(), flows_.settled_until_ns(index)};
}

// Of the queue pair two turns ahead its state is asked for, of the next one what that state speaks of.
void Transmission::expect_turns(const TransmitRing& ring) const {
  if (ring.size() < 2) return;
  const uint32_t last = ring.behind_front(std::min<size_t>(ring.size() - 1, 2));
  queue_pairs_[last].expect_turn();
  flows_.expect(last);
  pools_.expect(last);
  if (ring.size() == 2) return;
  const uint32_t next = ring.behind_front(1);
  queue_pairs_[next].expect_run();
  pools_.expect_pool(next);
}

// One run of the next queue pair in turn. failed: the core says why; held and would_block leave the queue pair in front.
TxResult Transmission::transmit_one(TransmitRing& ring, TxPort& port, Clock& clock) {
  if (still_held(ring, port, clock)) return TxResult::held;
  expect_turns(ring);
  const TxResult result = transmit_run(ring, port, clock);
  if (result == TxResult::held) {
    keep_held(ring);
  } else {
    forget_held();
  }
  return result;
}

TxResult Transmission::transmit_run(TransmitRing& ring, TxPort& port, Clock& clock) {
  const uint32_t index = ring.front();
  Qp& qp = queue_pairs_[index];
  if (qp.has_run()) {
    PacketRun run = qp.next_run(port.max_run(plan_.transport.path_mtu_bytes));
    const uint32_t wanted = run.count;
    run.count = room_for(index, run);
    if (run.count > 0) run.count = flows_.allowed(index, run, port.departure_horizon_ns(), clock);
    if (run.count == 0) {
      ring.pop();
      qp.queued = false;
      wake_windows(index);
      return TxResult::sent;
    }
    const bool is_cut = run.count < wanted || (answers_cost_calls() && run.fills_window);
    if (!qp.repeats()) pools_.ask(index, run, is_cut, ring.size() > 1);
    flows_.ask(index, run);
    if (&ring == &grant_ring_) {
      mark(run, marks_of(plan_.transport.clear_to_send));
      run.may_wait = true;
    } else {
      run.may_wait = answers_cost_calls() && run.count == 1 && (run.followed || wanted > 1);
    }
    const int64_t sent_before = qp.counters.tx_packets - qp.counters.retransmitted_packets;
    switch (port.send(run)) {
      case TxResult::sent: break;
      case TxResult::would_block: return TxResult::would_block;
      case TxResult::held: return TxResult::held;
      case TxResult::failed:
        failure_.set(queue_pairs_.place(index).connection,
                     connections_.text(queue_pairs_.place(index).connection) + ": " + port.last_error());
        return TxResult::failed;
    }
    const Nanos now = clock.now();
    const Nanos leaves_ns = std::max(now, run.departs_ns);  // round trips and timeouts count from there
    if (const WorkRequest* begun = qp.run_sent(run, leaves_ns); begun != nullptr && carries_data(begun->kind)) {
      departures_.note(queue_pairs_.place(index), *begun, leaves_ns);
    }
    data_packets_ += &ring == &data_ring_ ? run.count : 0;
    pools_.sent(index, run, qp.in_flight_packets());
    flows_.sent(index, run, qp.counters.tx_packets - qp.counters.retransmitted_packets - sent_before, now);
    queue_pairs_.arm_timer(index);
  }
  // Still in front: what its pool lets it go on with; and grants, which all leave now, those of a queue pair together.
  if (qp.has_run() && (&ring == &grant_ring_ || pools_.goes_on(index))) return TxResult::sent;
  ring.pop();
  qp.queued = false;
  if (qp.has_run()) {
    queue(index);
  } else {
    pools_.pass(index);
  }
  wake_windows(index);
  return TxResult::sent;
}

TxResult Transmission::transmit_answers_of(Qp& qp, TxPort& port) {
  while (qp.answer_due()) {
    PacketRun run = qp.answer();
    // READ responses carry data, and its marks.
    if (wire::shape(run.head.opcode).role == wire::Role::acknowledgement) {
      mark(run, marks_of(plan_.transport.ack));
      run.may_wait = true;
    }
    if (const TxResult result = port.send(run); result != TxResult::sent) return result;
    qp.answer_sent(run);
  }
  qp.held_messages = 0;
  return TxResult::sent;
}

// False: nothing more leaves now. What is held alone does not keep the rest.
bool Transmission::transmit_acknowledgements(TxPort& port) {
  while (!acknowledgements_.empty()) {
    Qp& qp = queue_pairs_[acknowledgements_.back()];
    if (const TxResult result = transmit_answers_of(qp, port); result != TxResult::sent) return result == TxResult::held;
    qp.ack_queued = false;
    acknowledgements_.pop_back();
  }
  return true;
}

// Likewise. Some have nothing to say any more: what others waited for took their answers along.
bool Transmission::transmit_patient_acknowledgements(TxPort& port) {
  while (!patient_acknowledgements_.empty()) {
    Qp& qp = queue_pairs_[patient_acknowledgements_.back()];
    if (const TxResult result = transmit_answers_of(qp, port); result != TxResult::sent) return result == TxResult::held;
    qp.ack_held = false;
    patient_acknowledgements_.pop_back();
  }
  return true;
}

bool Transmission::transmit_notifications(TxPort& port) {
  while (!notifications_.empty()) {
    Qp& qp = queue_pairs_[notifications_.back()];
    PacketRun run;
    run.flow = qp.flow();
    mark(run, marks_of(plan_.transport.cnp));
    run.head.opcode = wire::Opcode::cnp;
    run.head.dest_qpn = qp.remote_qpn();
    run.head.becn = true;
    if (const TxResult result = port.send(run); result != TxResult::sent) return result == TxResult::held;
    ++qp.counters.np_cnp_sent;
    notifications_.pop_back();
  }
  return true;
}

bool Transmission::transmit_probes(TxPort& port, Clock& clock) {
  if (const TxResult result = probing_.send_replies(port); result != TxResult::sent) return result == TxResult::held;
  if (!probing_.under_way()) return true;
  return probing_.send_requests(port, clock.now(), [this](uint32_t qp, const WorkRequest& request) { post(qp, request); });
}

bool Transmission::any_answers() const {
  return !acknowledgements_.empty() || !patient_acknowledgements_.empty() || grant_ring_.size() > 0 || !notifications_.empty() ||
         probing_.replies_due() || probing_.under_way();
}

// False: the port takes no more now.
bool Transmission::transmit_grants(TxPort& port, Clock& clock) {
  while (grant_ring_.size() > 0 && failure_.none()) {
    const uint32_t index = grant_ring_.front();
    const TxResult result = transmit_one(grant_ring_, port, clock);
    if (result == TxResult::held) return true;
    if (result != TxResult::sent) return false;
    // The acknowledgement is the shorter one, and may so be the last of those that leave together.
    Qp& qp = queue_pairs_[index];
    if (!answers_cost_calls() || qp.queued || !(qp.ack_queued || qp.ack_held)) continue;
    if (transmit_answers_of(qp, port) == TxResult::would_block) return false;
  }
  return true;
}

// What other hosts wait for, beside data. False: the port takes no more now.
bool Transmission::transmit_all_answers(TxPort& port, Clock& clock) {
  if (!any_answers()) return true;
  if (!transmit_notifications(port)) return false;
  if (answers_cost_calls() && !transmit_grants(port, clock)) return false;
  if (!acknowledgements_put_off_ && !transmit_acknowledgements(port)) return false;
  if (patience_is_over(clock) && !transmit_patient_acknowledgements(port)) return false;
  return transmit_probes(port, clock) && transmit_grants(port, clock);
}

// Whether acknowledgements of data stay for one more look at what arrived. A host that has just sent all that a message
// released is about to get the next one, as in a ring; one acknowledgement then answers both, and keeps nothing waiting.
bool Transmission::puts_off(bool sent_data, Clock& clock) {
  if (!answers_cost_calls() || !sent_data || acknowledgements_.empty() || data_ring_.size() > 0) return false;
  const Nanos now = clock.now();
  if (!acknowledgements_put_off_) put_off_since_ns_ = now;
  return now - put_off_since_ns_ < kLongestPutOffNs;
}

bool Transmission::transmit_all(TxPort& port, Clock& clock, size_t budget) {
  // A port that was full before the answers had their turn, or held a grant, would else be full of data every time.
  if (answers_wait_ && !transmit_all_answers(port, clock)) return false;
  answers_wait_ = true;
  // First one run of every sender, so that what a message released leaves before that message's acknowledgement,
  // before new grants and before longer bursts of others; where answers cost calls, all of it, if it is short.
  bool held = false;
  const auto send_one = [&](TransmitRing& ring) {
    const TxResult result = transmit_one(ring, port, clock);
    held = result == TxResult::held;
    return result == TxResult::sent || held;
  };
  // Where calls are what costs, a run of one packet counts half: it may leave with the next.
  const bool counts_calls = answers_cost_calls();
  size_t halves = 2 * budget;
  const auto spend = [&](TransmitRing& ring) {
    const uint64_t before = data_packets_;
    const bool sent = send_one(ring);
    halves -= counts_calls && data_packets_ - before == 1 ? 1 : std::min<size_t>(halves, 2);
    return sent;
  };
  const bool sent_data = data_ring_.size() > 0;
  const uint64_t short_until = data_packets_ + (counts_calls ? kShortBurstPackets : 0);
  for (size_t turn = data_ring_.size(); turn > 0 && halves > 0 && !held && failure_.none(); --turn) {
    if (!spend(data_ring_)) return false;
  }
  while (halves > 0 && data_ring_.size() > 0 && !held && failure_.none() && data_packets_ < short_until) {
    if (!spend(data_ring_)) return false;
  }
  acknowledgements_put_off_ = puts_off(sent_data, clock);
  if (!transmit_all_answers(port, clock)) return false;
  answers_wait_ = grant_ring_.size() > 0;
  while (halves > 0 && data_ring_.size() > 0 && !held && failure_.none()) {
    if (!spend(data_ring_)) return false;
  }
  return data_ring_.size() > 0 && !held && failure_.none();
}

}  // namespace etloop
