#include "core/multipath/exchange.h"

#include <string>

#include "mrc/endpoint.h"
#include "plan/planes.h"
#include "uet/endpoint.h"

namespace etloop {

namespace {

static_assert(mrc::Endpoint::kWriteBytes + kClearToSendBytes <= kMostStoredBytes);
static_assert(uet::Endpoint::kWriteBytes + kClearToSendBytes <= kMostStoredBytes);

// Congestion control sees packets like RoCEv2's: their count, and whether one requests an acknowledgement.
template <typename Outgoing>
PacketRun run_of(const Outgoing& outgoing, FlowId flow) {
  PacketRun run;
  run.flow = flow;
  run.head.psn = outgoing.psn();
  run.head.ack_req = outgoing.asks();
  return run;
}

}  // namespace

template <typename End>
MultipathExchange<End>::MultipathExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory)
    : plan_(parts.plan),
      planes_(port_at(parts.plan, parts.flows.port()).planes),
      addresses_(static_cast<uint32_t>(port_at(parts.plan, parts.flows.port()).addresses.size())),
      queue_pairs_(parts.queue_pairs),
      paths_(parts.plan.transport.multipath),
      ends_(memory),
      flows_(parts.flows),
      events_(parts.events),
      keeps_planes_(planes_ > 1 && parts.plan.transport.multipath.uet.order == DeliveryOrder::sent),
      planes_up_((1U << planes_) - 1),
      connections_(parts.connections),
      probing_(parts.probing),
      deliveries_(parts.deliveries),
      lanes_(parts.lanes),
      departures_(parts.departures),
      failure_(parts.failure) {
  ends_.reserve(queue_pairs_.size());
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    Qp& qp = queue_pairs_[i];
    const QpPlace& place = queue_pairs_.place(i);
    const PlannedQp& planned = plan_.qps[static_cast<size_t>(connections_.planned(place.connection).first_qp) + place.ordinal];
    const uint16_t first_port = place.sends_data ? planned.src_udp_port : planned.dst_udp_port;
    multipath::PathStates& paths = paths_.to(place.address, place.peer_ip, first_port, planes_);
    for (uint32_t k = 0; planes_ > 1 && k < planes_; ++k) peer_planes_.push_back(on_plane(plan_, place.peer_ip, k));
    ends_.emplace_back(qp.remote_qpn(), paths, accepts(i), plan_.transport, qp.counters, memory);
  }
  data_ring_.resize(queue_pairs_.size());
  grant_ring_.resize(queue_pairs_.size());
  answers_.reserve(queue_pairs_.size());
  probes_.resize(queue_pairs_.size());
  last_planes_.resize(planes_ == 1 ? 0 : queue_pairs_.size(), kNoPlane);
}

template <typename End>
uint32_t MultipathExchange<End>::accepts(uint32_t index) const {
  const QpPlace& place = queue_pairs_.place(index);
  return place.sends_data ? (queue_pairs_[index].local_qpn() << 8) | 0xF1 : connections_[place.connection].data_rkey;
}

template <typename End>
void MultipathExchange<End>::post(uint32_t index, const WorkRequest& request) {
  ends_[index].post(request);
  peers_listen_ = true;
  queue(index);
}

template <typename End>
void MultipathExchange<End>::queue(uint32_t index) {
  End& end = ends_[index];
  if (end.queued) return;
  end.queued = true;
  (queue_pairs_.place(index).sends_data ? data_ring_ : grant_ring_).push(index);
}

template <typename End>
void MultipathExchange<End>::queue_answers(uint32_t index) {
  End& end = ends_[index];
  if (end.answers_queued) return;
  end.answers_queued = true;
  answers_.push_back(index);
}

template <typename End>
EndProgress MultipathExchange<End>::progress(uint32_t index) const {
  return {in_flight_bytes(index), ends_[index].timer().smoothed_rtt_ns()};
}

// ---- sending

template <typename End>
TxResult MultipathExchange<End>::send(TxPort& port, Clock& clock, uint32_t index, const Outgoing& outgoing,
                                      const ClassMarks& marks, bool answers) {
  std::array<uint8_t, End::kMaxHeaderBytes> headers;
  const size_t used = outgoing.encode(headers);
  BuiltPacket built;
  built.flow = queue_pairs_[index].flow() + ends_[index].paths.plane_of(outgoing.entropy);
  built.src_port = outgoing.entropy;
  built.dest_qpn = queue_pairs_[index].remote_qpn();
  built.trailer = End::kTrailer;
  built.answers = answers;
  built.marks = marks;
  built.headers = std::span(headers).first(used);
  built.payload_bytes = outgoing.payload_bytes();
  built.payload = outgoing.payload();
  if (faults_ == nullptr || probing_.under_way()) return port.send_built(built);
  const SprayedPacket packet{outgoing.kind(), value_number(index, outgoing.entropy)};
  return faults_->send(port, index, packet, built, clock.now());
}

template <typename End>
int32_t MultipathExchange<End>::value_number(uint32_t index, uint16_t value) const {
  uint32_t number = 0;
  return ends_[index].paths.index_of(value, number) ? static_cast<int32_t>(number) : -1;
}

template <typename End>
void MultipathExchange<End>::fail_at(uint32_t index, TxPort& port) {
  const int32_t connection = queue_pairs_.place(index).connection;
  failure_.set(connection, connections_.text(connection) + ": " + port.last_error());
}

// Send one packet of the front queue pair. held and would_block leave it in front.
template <typename End>
TxResult MultipathExchange<End>::transmit_one(TransmitRing& ring, TxPort& port, Clock& clock) {
  const uint32_t index = ring.front();
  End& end = ends_[index];
  // Congestion control starts with the run, from the round trips that the probes measured.
  FlowControl* control = probing_.under_way() ? nullptr : flows_.control(index);
  bool blocked = !end.has_run();
  if (blocked) arm_timer(index);  // it may wait for an answer that must be requested
  if (!blocked && control != nullptr && control->allowed(1, in_flight_bytes(index), end.answer_comes(), clock.now()) == 0) {
    flows_.arm_timer(index, *control);
    blocked = true;
  }
  if (!blocked) {
    const bool grants = &ring == &grant_ring_;
    const ClassMarks marks = grants ? marks_of(plan_.transport.clear_to_send) : ClassMarks{};
    const uint32_t open = planes_ == 1 ? multipath::kAllPlanes : port.open_planes(queue_pairs_[index].flow(), marks);
    if (open == 0) return TxResult::held;
    Outgoing outgoing = end.next(planes_for(index, grants, open));
    PacketRun run = run_of(outgoing, queue_pairs_[index].flow());
    const int64_t with_it_bytes = in_flight_bytes(index) + plan_.transport.path_mtu_bytes;
    if (control != nullptr && control->closes(with_it_bytes, plan_.transport.multipath.sack_bytes)) {
      outgoing.set_asks(true);
      run.head.ack_req = true;
    }
    const TxResult result = send(port, clock, index, outgoing, marks, false);
    if (result == TxResult::failed) fail_at(index, port);
    if (result != TxResult::sent) return result;
    const Nanos now = clock.now();
    departures_.note(queue_pairs_.place(index), end.sent(outgoing, now), now);
    if (control != nullptr) {
      const uint64_t wire_bytes = End::kWriteBytes + outgoing.payload_bytes() + flows_.link_bytes(index);
      control->sent(run, wire_bytes, outgoing.again() ? 0 : 1, in_flight_bytes(index), end.has_run(), now);
    }
    arm_timer(index);
    if (end.probe_due(now)) queue_answers(index);
  }
  ring.pop();
  end.queued = false;
  if (!blocked && end.has_run()) queue(index);
  return TxResult::sent;
}

// Send packets that fault rules held back until now. False: no more can leave now.
template <typename End>
bool MultipathExchange<End>::transmit_held(TxPort& port, Clock& clock) {
  const TxResult result = faults_->send_due(port, clock.now());
  if (result == TxResult::failed) failure_.set(-1, port.last_error());
  return result == TxResult::sent || result == TxResult::held;
}

// False: no more can leave now.
template <typename End>
bool MultipathExchange<End>::transmit_answers(TxPort& port, Clock& clock) {
  while (!answers_.empty()) {
    const uint32_t index = answers_.back();
    End& end = ends_[index];
    const ClassMarks marks = answer_marks(plan_.transport, queue_pairs_.place(index).sends_data);
    while (end.answer_due()) {
      const Outgoing answer = end.answer(last_plane(index));
      if (const TxResult result = send(port, clock, index, answer, marks, true);
        result != TxResult::sent) {
        return result == TxResult::held;
      }
      end.answer_sent();
    }
    if (end.probe_due(clock.now())) {
      const Outgoing probe = end.probe();
      if (const TxResult result = send(port, clock, index, probe, {}, true); result != TxResult::sent) {
        return result == TxResult::held;
      }
      end.probe_sent(probe, clock.now());
      if (end.fault() != QpFault::none) report_fault(index);  // the probe exceeded the retry limit
      arm_timer(index);
    }
    end.answers_queued = false;
    answers_.pop_back();
  }
  return true;
}

// Check which planes are up, before anything leaves on them.
template <typename End>
void MultipathExchange<End>::check_planes(TxPort& port, Clock& clock) {
  const uint32_t up = port.planes_up() & ((1U << planes_) - 1);
  if (up == planes_up_) return;
  planes_up_ = up;
  on_planes_changed(up, clock.now());
}

// With one plane per queue pair, let queue pairs of other planes pass a blocked one. True: try the next in the ring.
template <typename End>
bool MultipathExchange<End>::pass_turn(TransmitRing& ring, TxResult result, size_t& passed) const {
  const bool waits = result == TxResult::held || result == TxResult::would_block;
  if (!keeps_planes_ || !waits || ++passed >= std::min(ring.size(), kMostPassed)) return false;
  const uint32_t index = ring.front();
  ring.pop();
  ring.push(index);
  return true;
}

template <typename End>
bool MultipathExchange<End>::transmit(TxPort& port, Clock& clock, size_t budget) {
  if (peers_listen_ && planes_ > 1) check_planes(port, clock);
  if (faults_ != nullptr && !transmit_held(port, clock)) return false;
  if (!transmit_answers(port, clock) || !transmit_strays(port, clock)) return false;
  if (probing_.under_way()) {
    probing_.send_writes(clock.now(), [this](uint32_t qp, const WorkRequest& request) { post(qp, request); });
  }
  size_t passed = 0;
  while (grant_ring_.size() > 0 && failure_.none()) {
    const TxResult result = transmit_one(grant_ring_, port, clock);
    if (pass_turn(grant_ring_, result, passed)) continue;
    if (result == TxResult::held) break;
    if (result != TxResult::sent) return false;
    passed = 0;
  }
  passed = 0;
  while (budget > 0 && data_ring_.size() > 0 && failure_.none()) {
    const TxResult result = transmit_one(data_ring_, port, clock);
    if (pass_turn(data_ring_, result, passed)) continue;
    if (result != TxResult::sent) return false;
    passed = 0;
    --budget;
  }
  return data_ring_.size() > 0 && failure_.none();
}

// ---- arrivals

template <typename End>
void MultipathExchange<End>::deliver(uint32_t index, Nanos now) {
  End& end = ends_[index];
  Delivered delivered;
  while (end.next_delivered(delivered)) {
    deliveries_.hand_over(index, delivered, now);
    if (!failure_.none()) return;
  }
  if (end.answer_due()) queue_answers(index);
  if (end.fault() != QpFault::none) report_fault(index);
}

template <typename End>
void MultipathExchange<End>::on_answer(uint32_t index, const AckOutcome& outcome, Nanos now) {
  if (FlowControl* control = flows_.control(index); control != nullptr) {
    control->acknowledged(outcome, in_flight_bytes(index), {}, now);
  }
  retire(index, now);
  if (ends_[index].wants_probe()) queue_answers(index);
  if (ends_[index].fault() == QpFault::none) arm_timer(index);
}

// A full-size write was acknowledged: its round trip is that of data. The arriving traffic class is unknown.
template <typename End>
void MultipathExchange<End>::on_probed(uint32_t index, const WorkRequest& probe, Nanos now) {
  // A retransmitted probe has no unambiguous round trip: send another.
  const Nanos measured_ns = ends_[index].timer().smoothed_rtt_ns();
  if (measured_ns < 0 && ++probes_[index] < kMostProbes) {
    post(index, probe);
    return;
  }
  probing_.on_written(index, now);
  const Nanos probed_ns = probing_.round_trip_ns(index);
  if (probed_ns < 0) return;
  const Nanos round_trip_ns = measured_ns < 0 ? probed_ns : measured_ns;
  const uint32_t window = plan_.transport.window_packets == 0 ? kMostSprayedWindow : plan_.transport.window_packets;
  flows_.probed(index, round_trip_ns, window);
  ends_[index].set_round_trip(round_trip_ns);
  on_path_measured(index, round_trip_ns);
}

template <typename End>
void MultipathExchange<End>::retire(uint32_t index, Nanos now) {
  End& end = ends_[index];
  WorkRequest done;
  while (end.pop_completed(done)) {
    if (done.flushed || done.kind == WorkKind::clear_to_send) continue;
    if (done.kind == WorkKind::probe) {
      on_probed(index, done, now);
      continue;
    }
    lanes_.on_acknowledged(queue_pairs_.place(index), done, now);
  }
  if (end.fault() != QpFault::none) {
    report_fault(index);
  } else if (end.has_run()) {
    queue(index);
  }
}

template <typename End>
void MultipathExchange<End>::report_fault(uint32_t index) {
  const End& end = ends_[index];
  const int32_t connection = queue_pairs_.place(index).connection;
  failure_.set(connection, connections_.text(connection) + ": " + describe(end.fault()) + " (" + End::kName + " queue pair " +
                               std::to_string(queue_pairs_[index].local_qpn()) + ", packet " +
                               std::to_string(end.oldest_unacknowledged()) + ")");
}

template <typename End>
void MultipathExchange<End>::arm_timer(uint32_t index) {
  End& end = ends_[index];
  const Nanos deadline = end.deadline();
  if (deadline >= end.timer_due_ns) return;  // a timer that fires early arms the next
  end.timer_due_ns = deadline;
  events_.push(deadline, EventKind::qp_timer, index);
}

template <typename End>
void MultipathExchange<End>::on_timer(uint32_t index, Nanos now) {
  End& end = ends_[index];
  if (end.timer_due_ns <= now) end.timer_due_ns = kNever;
  if (end.deadline() <= now) {
    FlowRecord& counters = queue_pairs_[index].counters;
    const int64_t timeouts = counters.local_ack_timeout_err;
    end.on_timer(now);
    FlowControl* control = flows_.control(index);
    if (control != nullptr && counters.local_ack_timeout_err != timeouts) control->timed_out(in_flight_bytes(index), now);
    retire(index, now);
    if (end.fault() != QpFault::none) return;
    if (end.probe_due(now)) queue_answers(index);
  }
  arm_timer(index);
}

template class MultipathExchange<mrc::Endpoint>;
template class MultipathExchange<uet::Endpoint>;

}  // namespace etloop
