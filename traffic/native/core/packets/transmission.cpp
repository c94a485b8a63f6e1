#include "core/packets/transmission.h"

#include <algorithm>

#include "cc/etloop_cc.h"
#include "plan/short_messages.h"
#include "wire/wire.h"

namespace etloop {

namespace {

// Half of a queue pair's initial window: a peer that grants never has to wait for its window.
constexpr uint32_t kMostHeldMessages = 32;
// Fraction of a window, as its divisor, that may stay unacknowledged: a sender of data never has to wait for its window either.
constexpr uint32_t kHeldShareOfWindow = 2;
// Packets of data sent ahead of answers: about one segmented send.
constexpr uint32_t kShortBurstPackets = kShortPackets;
// Parts of a budget that a run costs, and a single packet one: as many fill one segmented send.
constexpr size_t kPartsPerRun = kShortBurstPackets;
// A send of a run lasts as long as receiving one. Where short messages left lately, look for arrivals after this many, so that
// the next one does not wait behind a backlog. Otherwise looking would cost some 1 % of the rate for nothing.
constexpr size_t kRunsBetweenLooks = 2;

}  // namespace

void Transmission::load() {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    const QpPlace& place = queue_pairs_.place(i);
    if (place.sends_data && plan_.transport.window_packets == 0) pools_.add(i, place.peer_ip);
  }
  const ArbitrationSettings& arbitration = plan_.transport.arbitration;
  order_.burst_packets = arbitration.burst_packets;
  order_.by_class = arbitration.by_class;
  order_.short_bytes = short_bytes(plan_.transport);
  ring_count_ = static_cast<uint8_t>(kOthers + (order_.by_class ? kClasses : 1));
  for (TransmitRing& ring : data_rings()) ring.resize(queue_pairs_.size());
  grant_ring_.resize(queue_pairs_.size());
  acknowledgements_.reserve(queue_pairs_.size());
  for (HeldAcknowledgements* held : {&held_of_grants_, &held_of_data_}) held->queue_pairs.reserve(queue_pairs_.size());
  const uint32_t window = plan_.transport.window_packets;
  most_held_messages_ = std::max(1U, std::min(kMostHeldMessages, window == 0 ? kMostHeldMessages : window / 2));
}

// Hold acknowledgements of data only if nothing depends on their timing: congestion control, series of round trips, or early
// retransmission.
void Transmission::set_answer_patience(Nanos grants_ns, Nanos data_ns) {
  held_of_grants_.patience_ns = grants_ns;
  held_of_data_.patience_ns = data_ns;
  if (answers_cost_calls()) pools_.keep_turns();
  order_.short_first = answers_cost_calls() && order_.burst_packets == 0 && !order_.by_class;
  const etloop_cc_algorithm* algorithm = plan_.congestion.algorithm;
  const bool is_heard = (algorithm != nullptr && algorithm->on_ack != nullptr) || plan_.series.interval_ns != 0;
  holds_data_ = answers_cost_calls() && !is_heard && !plan_.transport.recovery.selective_repeat &&
                plan_.transport.window_packets == 0;
}

void Transmission::end_data() {
  data_ended_ = true;
  for (TransmitRing& ring : data_rings()) ring.clear();
  data_waiting_ = 0;
  grant_ring_.clear();
  grants_waiting_ = 0;
  // Mark all as queued, so that none is queued again.
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) queue_pairs_[i].queued = true;
}

void Transmission::queue_acknowledgement(uint32_t index, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (qp.ack_queued) return;
  const bool may_hold = answers_cost_calls() && queue_pairs_.place(index).sends_data;
  if (may_hold && !qp.nak_due() && qp.held_messages + 1U < most_held_messages_) return hold_acknowledgement_of(qp, index, now);
  qp.ack_queued = true;
  acknowledgements_.push_back(index);
}

bool Transmission::hold_acknowledgement(uint32_t index, uint32_t packets, uint32_t most, bool rests, Nanos now) {
  Qp& qp = queue_pairs_[index];
  if (!holds_data_ || qp.ack_queued || qp.nak_due() || qp.held_messages >= most) return false;
  const uint32_t unanswered = packets * (qp.held_messages + 2U);  // the next one has room as well
  const uint32_t held_packets = queue_pairs_.offered_window(index) / kHeldShareOfWindow;
  if (unanswered > std::min(held_packets, plan_.transport.ack_every_packets)) return false;
  hold_acknowledgement_of(qp, index, now);
  qp.ack_rests = rests;
  return true;
}

void Transmission::hold_acknowledgement_of(Qp& qp, uint32_t index, Nanos now) {
  ++qp.held_messages;
  if (qp.ack_held) return;
  qp.ack_held = true;
  HeldAcknowledgements& held = queue_pairs_.place(index).sends_data ? held_of_grants_ : held_of_data_;
  if (held.queue_pairs.empty()) held.since_ns = now;
  held.queue_pairs.push_back(index);
}

void Transmission::release_held(int32_t connection, Nanos now) {
  for (const uint32_t index : held_of_data_.queue_pairs) {
    const bool receives = queue_pairs_.place(index).connection == connection;
    if (receives && queue_pairs_[index].answer_due()) queue_acknowledgement(index, now);
  }
}

// Cut a run to the room in its queue pair's pool; 0: the queue pair waits for others to the same address. Retransmissions replace
// lost packets and take no room.
uint32_t Transmission::room_for(uint32_t index, const PacketRun& run) {
  if (!queue_pairs_[index].repeats()) return pools_.allowed(index, run.count);
  pools_.pass(index);
  return run.count;
}

void Transmission::wake_windows(uint32_t index) {
  for (uint32_t awake = 0; pools_.take_awake(index, awake);) queue(awake);
}

// Whether the front queue pair is still held. A full card is polled every turn, several times per packet sent; until an event of
// this queue pair, the answer needs neither its run nor its state.
bool Transmission::still_held(const TransmitRing& ring, TxPort& port, Clock& clock) const {
  return ring.held.qp == ring.front() && clock.now() < ring.held.until_ns && port.holds(ring.held.flow);
}

void Transmission::keep_held(TransmitRing& ring) {
  const uint32_t index = ring.front();
  ring.held.qp = HeldFront::kNone;
  // If others wait for the same room, a retry must be able to give up the turn.
  if (!queue_pairs_[index].repeats() && pools_.anyone_waits(index)) return;
  ring.held = {index, queue_pairs_[index].flow(), flows_.settled_until_ns(index)};
}

// Prefetch the state of the queue pair two turns ahead, and the memory to which the next one's state points.
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

// Send one run of the next queue pair in turn. failed: the failure has the reason; held and would_block leave the queue pair in
// front.
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

bool Transmission::stays_in_front(const TransmitRing& ring, uint32_t index) const {
  if (&ring == &grant_ring_) return true;
  return order_.burst_packets == 0 ? pools_.goes_on(index) : ring.front_packets < order_.burst_packets;
}

// The front queue pair of a ring leaves it.
void Transmission::leave(TransmitRing& ring, Qp& qp) {
  ring.pop();
  --(&ring == &grant_ring_ ? grants_waiting_ : data_waiting_);
  qp.queued = false;
}

TxResult Transmission::transmit_run(TransmitRing& ring, TxPort& port, Clock& clock) {
  const uint32_t index = ring.front();
  Qp& qp = queue_pairs_[index];
  if (qp.has_run()) {
    const bool is_burst = order_.burst_packets != 0 && &ring != &grant_ring_;
    const uint32_t max_run = port.max_run(plan_.transport.path_mtu_bytes);
    PacketRun run = qp.next_run(is_burst ? std::min(max_run, order_.burst_packets - ring.front_packets) : max_run);
    const uint32_t wanted = run.count;
    run.count = room_for(index, run);
    if (run.count > 0) run.count = flows_.allowed(index, run, port.departure_horizon_ns(), clock);
    if (run.count == 0) {
      leave(ring, qp);
      wake_windows(index);
      return TxResult::sent;
    }
    const bool is_cut = run.count < wanted || (answers_cost_calls() && run.fills_window);
    if (!qp.repeats()) pools_.ask(index, run, is_cut, data_waiting_ > 1);
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
    const Nanos leaves_ns = std::max(now, run.departs_ns);  // round trips and timeouts start there
    const SentRequest sent = qp.run_sent(run, leaves_ns);
    const QpPlace& place = queue_pairs_.place(index);
    if (sent.begun != nullptr && carries_data(sent.begun->kind)) note_begun(place, *sent.begun, now, leaves_ns);
    if (sent.left != nullptr && sent.left->reports_departure) departures_.note_left(place, *sent.left, leaves_ns);
    sent_until_ns_ = now;
    data_packets_ += &ring != &grant_ring_ ? run.count : 0;
    if (is_burst) ring.front_packets += run.count;
    if (&ring == &data_rings_[kShort]) order_.look_early_until_ns = now + kShortMemoryNs;
    pools_.sent(index, run, qp.in_flight_packets());
    flows_.sent(index, run, qp.counters.tx_packets - qp.counters.retransmitted_packets - sent_before, now);
    queue_pairs_.arm_timer(index);
  }
  // Stay in front while the pool allows more, or for grants, which all leave now, those of a queue pair together.
  if (qp.has_run() && stays_in_front(ring, index)) return TxResult::sent;
  leave(ring, qp);
  if (qp.has_run()) {
    queue(index);
  } else {
    pools_.pass(index);
  }
  wake_windows(index);
  return TxResult::sent;
}

void Transmission::begin_turn(Clock& clock) {
  ++turn_;
  if (data_waiting_ == 0) return;
  sent_until_ns_ = clock.now();
  if (measures_parts_) turn_began_ns_[turn_ % kKnownTurns] = sent_until_ns_;
}

// Data of a message left for the first time; the call that sent it returned at `now`.
void Transmission::note_begun(const QpPlace& place, const WorkRequest& begun, Nanos now, Nanos leaves_ns) {
  departures_.note_begun(place, begun, leaves_ns);
  if (!measures_parts_ || begun.trigger_ns == 0 || place.home >= 0) return;  // other queues count turns of their own
  const Nanos read_ns = begun.trigger_ns + begun.queued_ns;
  // A message that waited longer than the known turns waited for its window or for others, not for the loop.
  const Nanos served_ns = turn_ - begun.turn < kKnownTurns ? turn_began_ns_[begun.turn % kKnownTurns] : read_ns;
  departures_.note_part(TurnaroundPart::receive_queue, begun.queued_ns);
  departures_.note_part(TurnaroundPart::loop, served_ns - read_ns);
  departures_.note_part(TurnaroundPart::arbitration, sent_until_ns_ - served_ns);
  departures_.note_part(TurnaroundPart::send_call, now - sent_until_ns_);
}

TxResult Transmission::transmit_answers_of(uint32_t index, TxPort& port) {
  Qp& qp = queue_pairs_[index];
  while (qp.answer_due()) {
    PacketRun run = qp.answer();
    // READ responses keep the marks of data.
    if (wire::shape(run.head.opcode).role == wire::Role::acknowledgement) {
      mark(run, answer_marks(plan_.transport, queue_pairs_.place(index).sends_data));
      run.may_wait = true;
    }
    if (const TxResult result = port.send(run); result != TxResult::sent) return result;
    qp.answer_sent(run);
  }
  qp.held_messages = 0;
  return TxResult::sent;
}

// False: no more can leave now. `held` acknowledgements do not block the rest.
bool Transmission::transmit_acknowledgements(TxPort& port) {
  while (!acknowledgements_.empty()) {
    const uint32_t index = acknowledgements_.back();
    if (const TxResult result = transmit_answers_of(index, port); result != TxResult::sent) return result == TxResult::held;
    queue_pairs_[index].ack_queued = false;
    acknowledgements_.pop_back();
  }
  return true;
}

// Same for held acknowledgements. Some are no longer due: a later acknowledgement covered them.
bool Transmission::transmit_held(HeldAcknowledgements& held, TxPort& port) {
  while (!held.queue_pairs.empty()) {
    const uint32_t index = held.queue_pairs.back();
    if (const TxResult result = transmit_answers_of(index, port); result != TxResult::sent) return result == TxResult::held;
    queue_pairs_[index].ack_held = false;
    held.queue_pairs.pop_back();
  }
  return true;
}

bool Transmission::transmit_held_due(TxPort& port, Clock& clock) {
  if (answers_due_ns() == kNever) return true;
  const Nanos now = clock.now();
  if (held_of_data_.due_ns() <= now && !transmit_held(held_of_data_, port)) return false;
  return held_of_grants_.due_ns() > now || transmit_held(held_of_grants_, port);
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
  return grants_waiting_ > 0 || !acknowledgements_.empty() || answers_due_ns() != kNever || !notifications_.empty() ||
         probing_.replies_due() || probing_.under_way();
}

// False: the port takes no more now.
bool Transmission::transmit_grants(TxPort& port, Clock& clock) {
  while (grants_waiting_ > 0 && failure_.none()) {
    const uint32_t index = grant_ring_.front();
    const TxResult result = transmit_one(grant_ring_, port, clock);
    if (result == TxResult::held) return true;
    if (result != TxResult::sent) return false;
    // Send the queue pair's acknowledgement with the grant: it is shorter, so it can end a segmented send.
    Qp& qp = queue_pairs_[index];
    if (!answers_cost_calls() || qp.queued || !(qp.ack_queued || (qp.ack_held && !qp.ack_rests))) continue;
    if (transmit_answers_of(index, port) == TxResult::would_block) return false;
  }
  return true;
}

// Send everything that peers wait for except data. False: the port accepts no more now.
bool Transmission::transmit_all_answers(TxPort& port, Clock& clock) {
  if (!any_answers()) return true;
  if (!transmit_notifications(port)) return false;
  if (answers_cost_calls() && !transmit_grants(port, clock)) return false;
  if (!transmit_acknowledgements(port)) return false;
  if (!transmit_held_due(port, clock)) return false;
  return transmit_probes(port, clock) && transmit_grants(port, clock);
}

// Whether all that waits is data that a full card still holds back: a card is polled several times for each packet it sends.
bool Transmission::only_held_waits(TxPort& port, Clock& clock) const {
  if (measures_parts_ || order_.by_class || any_answers()) return false;
  if (data_waiting_ == 0) return true;
  return data_rings_[kShort].size() == 0 && still_held(data_rings_[kOthers], port, clock);
}

bool Transmission::transmit_all(TxPort& port, Clock& clock, size_t budget) {
  if (only_held_waits(port, clock)) {
    answers_wait_ = false;
    return false;
  }
  begin_turn(clock);
  // Answers that a full port blocked, or a held grant, go first: otherwise data would fill the port every time.
  if (answers_wait_ && !transmit_all_answers(port, clock)) return false;
  answers_wait_ = true;
  // First send one run per sender, so that packets released by a message leave before that message's acknowledgement, before
  // new grants and before longer bursts of other queue pairs. Where answers cost system calls, send short bursts whole.
  bool held = false;
  const auto send_one = [&](TransmitRing& ring) {
    const TxResult result = transmit_one(ring, port, clock);
    held = result == TxResult::held;
    return result == TxResult::sent || held;
  };
  // Where system calls dominate, a run of one packet costs little: it may leave with the next ones. And where a short message may
  // arrive, the port looks for it after a few calls.
  const bool counts_calls = answers_cost_calls();
  if (order_.short_first && sent_until_ns_ < order_.look_early_until_ns) budget = std::min(budget, kRunsBetweenLooks);
  size_t parts = kPartsPerRun * budget;
  size_t next = 0;           // ring that is served next
  uint32_t held_rings = 0;   // a class that the card holds back does not hold back those after it
  const auto find_next = [&] {
    if (data_waiting_ == 0) return false;
    for (next = 0; next < ring_count_; ++next) {
      if (data_rings_[next].size() > 0 && (held_rings >> next & 1) == 0) return true;
    }
    return false;
  };
  const auto may_spend = [&] { return parts > 0 && !held && failure_.none() && find_next(); };
  const auto spend = [&] {
    const uint64_t before = data_packets_;
    const bool sent = send_one(data_rings_[next]);
    parts -= counts_calls && data_packets_ - before == 1 ? 1 : std::min<size_t>(parts, kPartsPerRun);
    if (held && order_.by_class) {
      held_rings |= 1U << next;
      held = false;
    }
    return sent;
  };
  const size_t senders = data_waiting_;
  const uint64_t short_until = data_packets_ + (counts_calls ? kShortBurstPackets : 0);
  for (size_t turn = senders; turn > 0 && may_spend(); --turn) {
    if (!spend()) return false;
  }
  while (data_packets_ < short_until && may_spend()) {
    if (!spend()) return false;
  }
  if (!transmit_all_answers(port, clock)) return false;
  answers_wait_ = grants_waiting_ > 0;
  while (may_spend()) {
    if (!spend()) return false;
  }
  return parts == 0 && !held && failure_.none() && find_next();
}

}  // namespace etloop
