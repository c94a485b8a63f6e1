// Packets: what arrives finds its queue pair, what queue pairs may send goes to the port, and timers in between.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/prefetch.h"
#include "core/core.h"

namespace etloop {

using wire::Opcode;
using wire::Role;

namespace {

constexpr size_t kShareBytes = 3;  // of a probe's reply, little-endian
constexpr uint8_t kEcnMask = 0x03;
constexpr uint8_t kEcnCongestionExperienced = 0x03;

template <typename T>
T get_le(const uint8_t* at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Whether a dead peer or a slow one was given up is told by how long it was waited for.
std::string patience_text(const Qp& qp, Nanos now) {
  constexpr Nanos kNsPerMs = 1'000'000;
  return std::to_string(qp.retries()) + " retries in " + std::to_string((now - qp.progress_ns()) / kNsPerMs) + " ms";
}

}  // namespace

std::string Core::connection_text(int32_t connection) const {
  const PlannedConnection& c = plan_.connections[static_cast<size_t>(connection)];
  std::string text = "rank " + std::to_string(c.src_rank) + " -> rank " + std::to_string(c.dst_rank);
  if (c.path == Path::wire) text += " (" + c.src_ip.text() + " -> " + c.dst_ip.text() + ")";
  return text;
}

void Core::fail(int32_t connection, std::string reason) {
  if (!failure_.empty()) return;
  failure_ = std::move(reason);
  failed_connection_ = connection;
}

void Core::on_datagram(const Datagram& datagram, Nanos now) { accept(datagram, faults_ == nullptr, now); }

void Core::expect_datagram(uint32_t dest_qpn) const {
  const uint32_t offset = dest_qpn - plan_.ports[static_cast<size_t>(port_)].qpn_base;
  const uint32_t index = offset < qp_by_number_.size() ? qp_by_number_[offset] : kNone;
  if (index == kNone) return;
  prefetch(&places_[index]);
  qps_[index].expect_packet();
}

void Core::accept(const Datagram& datagram, bool faultless, Nanos now) {
  wire::Packet packet;
  if (wire::decode(datagram.bytes, datagram.datagram_bytes, packet) != wire::Malformed::none) {
    ++foreign_datagrams_;
    return;
  }
  const uint32_t offset = packet.dest_qpn - plan_.ports[static_cast<size_t>(port_)].qpn_base;
  const uint32_t index = offset < qp_by_number_.size() ? qp_by_number_[offset] : kNone;
  if (index == kNone || places_[index].peer_ip != datagram.src_ip) {
    ++foreign_datagrams_;
    return;
  }
  if (faultless) {
    dispatch(index, packet, datagram, now);
    return;
  }
  Datagram changed = datagram;
  for (uint32_t times = faults_->on_received(index, packet, qps_[index].expected_psn(), changed, now); times > 0; --times) {
    dispatch(index, packet, changed, now);
  }
}

void Core::dispatch(uint32_t index, const wire::Packet& packet, const Datagram& datagram, Nanos now) {
  const bool marked = (datagram.traffic_class & kEcnMask) == kEcnCongestionExperienced;
  switch (wire::shape(packet.opcode).role) {
    case Role::write:
    case Role::send:
    case Role::read:
    case Role::atomic: on_request(index, packet, marked, now); return;
    case Role::response:
    case Role::acknowledgement: on_answer(index, packet, datagram.hops, now); return;
    case Role::notification: flow_notified(index, now); return;
    case Role::datagram: on_probe(packet, datagram, index, now); return;
    case Role::unknown: return;
  }
}

void Core::on_request(uint32_t index, const wire::Packet& packet, bool marked, Nanos now) {
  Qp& qp = qps_[index];
  if (marked) notify_congestion(index, now);
  Delivered delivered;
  for (bool whole = qp.on_request(packet, delivered); whole; whole = qp.next_delivered(delivered)) {
    if (qp.answer_due()) queue_acknowledgement(index, now);
    on_delivered(index, delivered, now);
    if (!failure_.empty()) return;
  }
  if (qp.answer_due()) queue_acknowledgement(index, now);
  if (qp.fault() != QpFault::none) retire(index, now);
}

void Core::on_answer(uint32_t index, const wire::Packet& packet, std::span<const etloop_cc_hop> hops, Nanos now) {
  flow_acknowledged(index, qps_[index].on_answer(packet, now), hops, now);
  settle_window(index);
  retire(index, now);
  if (qps_[index].fault() == QpFault::none) arm_timer(index);
}

// A marked packet of data or grants: the peer hears of it by a CNP now and then, and by BECN in the next acknowledgement.
void Core::notify_congestion(uint32_t index, Nanos now) {
  Qp& qp = qps_[index];
  ++qp.counters.np_ecn_marked_roce_packets;
  qp.note_congestion();
  if (plan_.transport.cnp_interval_ns < 0) return;
  Nanos& after_ns = plan_.transport.cnp_scope == CnpScope::port ? cnp_after_ns_ : qp.cnp_after_ns;
  if (now < after_ns) return;
  after_ns = now + plan_.transport.cnp_interval_ns;
  cnp_queue_.push_back(index);
}

void Core::on_delivered(uint32_t index, const Delivered& delivered, Nanos now) {
  const QpPlace place = places_[index];
  if (place.sends_data) {
    if (delivered.has_imm || delivered.bytes != kClearToSendBytes || delivered.payload == nullptr) {
      fail(place.connection, connection_text(place.connection) + ": a clear-to-send of " +
                                 std::to_string(delivered.bytes) + " bytes arrived, 64 were expected");
      return;
    }
    on_grant(index, read_grant(std::span<const uint8_t, kGrantWireBytes>(delivered.payload, kGrantWireBytes)), now);
    return;
  }
  if (delivered.is_atomic) {
    one_sided_arrived(place.connection, address_tag(delivered.va), kClosingIndex, 0, true, now);
    return;
  }
  if (!delivered.has_imm && address_index(delivered.va) == kProbeIndex) return;
  if (!delivered.has_imm) {
    ++qps_[index].counters.rx_messages;
    qps_[index].counters.rx_payload_bytes += delivered.bytes;
    one_sided_arrived(place.connection, address_tag(delivered.va), address_index(delivered.va), delivered.bytes, true, now);
    return;
  }
  // The immediate tells the size of the whole message, of which this may be the part of one queue pair.
  const uint32_t parts = parts_of(place.connection, false);
  const MessagePart part = parts == 1 ? MessagePart{0, delivered.imm} : message_part(delivered.imm, place.ordinal, parts);
  if (part.bytes != delivered.bytes) {
    fail(place.connection, connection_text(place.connection) + ": a data message of " + std::to_string(delivered.bytes) +
                               " bytes says in its immediate that it has " + std::to_string(delivered.imm));
    return;
  }
  const uint64_t va = delivered.va - part.offset;
  message_arrived(place.connection, address_tag(va), address_index(va), delivered.imm, delivered.bytes, true, now);
}

void Core::retire(uint32_t index, Nanos now) {
  forget_held(index);
  WorkRequest done;
  while (qps_[index].pop_completed(done)) {
    if (done.flushed || done.kind == WorkKind::clear_to_send) continue;
    if (done.kind == WorkKind::probe) {
      probe_answered(index, now);
    } else {
      message_acknowledged(done.lane, static_cast<uint32_t>(done.index), now);
    }
  }
  const Qp& qp = qps_[index];
  if (qp.fault() != QpFault::none) {
    const int32_t connection = places_[index].connection;
    fail(connection, connection_text(connection) + ": " + describe(qp.fault()) + " (queue pair " +
                         std::to_string(qp.local_qpn()) + ", packet " + std::to_string(qp.oldest_unacknowledged()) +
                         (qp.fault() == QpFault::retries_exceeded ? ", " + patience_text(qp, now) : "") + ")");
    return;
  }
  if (qp.has_run()) queue_transmit(index);
}

void Core::on_probe(const wire::Packet& packet, const Datagram& datagram, uint32_t index, Nanos now) {
  if (packet.qkey == kProbeRequestKey) {
    constexpr size_t kMostReplies = 4096;
    if (probe_replies_.size() < kMostReplies) probe_replies_.push_back({index, packet.psn, datagram.traffic_class});
    return;
  }
  if (packet.qkey != kProbeReplyKey || packet.payload_bytes != kProbeReplyBytes || packet.payload == nullptr) {
    ++foreign_datagrams_;
    return;
  }
  const uint8_t seen = packet.payload[4];
  if (packet.psn < prober_.size() && prober_.qp(packet.psn) == index) {
    prober_.on_reply(packet.psn, seen, places_[index].traffic_class, now);
    const uint32_t offered = get_le<uint32_t>(packet.payload);
    const uint32_t window = plan_.transport.window_packets == 0 ? offered : plan_.transport.window_packets;
    flow_probed(index, prober_.result(packet.psn).round_trip_ns, window);
    qps_[index].set_window(window);
    uint32_t share = 0;
    std::memcpy(&share, &packet.payload[5], kShareBytes);
    pools_.offer(index, share);
  }
}

void Core::on_qp_timer(uint32_t index, Nanos now) {
  Qp& qp = qps_[index];
  if (qp.timer_due_ns <= now) qp.timer_due_ns = kNever;
  if (qp.deadline() <= now) {
    const int64_t timeouts = qp.counters.local_ack_timeout_err;
    qp.on_timer(now);
    settle_window(index);
    if (qp.counters.local_ack_timeout_err != timeouts) flow_timed_out(index, now);
    retire(index, now);
    if (qp.fault() != QpFault::none) return;
  }
  arm_timer(index);
}

void Core::arm_timer(uint32_t index) {
  Qp& qp = qps_[index];
  const Nanos deadline = qp.deadline();
  if (deadline >= qp.timer_due_ns) return;  // a timer that comes too early arms the next
  qp.timer_due_ns = deadline;
  events_.push(deadline, EventKind::qp_timer, index);
}

void Core::queue_transmit(uint32_t index) {
  if (qps_[index].queued) return;
  qps_[index].queued = true;
  (places_[index].sends_data ? data_ring_ : grant_ring_).push(index);
}

void Core::queue_acknowledgement(uint32_t index, Nanos now) {
  const bool is_patient = answer_patience_ns_ > 0 && places_[index].sends_data;
  if (is_patient && qps_[index].nak_due()) patient_since_ns_ = 0;
  if (qps_[index].ack_queued) return;
  qps_[index].ack_queued = true;
  if (is_patient && patient_queue_.empty()) patient_since_ns_ = qps_[index].nak_due() ? 0 : now;
  (is_patient ? patient_queue_ : ack_queue_).push_back(index);
}

bool Core::patience_is_over(Clock& clock) const {
  return !patient_queue_.empty() && clock.now() - patient_since_ns_ >= answer_patience_ns_;
}

// Cuts a run to what its queue pair's pool has room for. 0: it waits for others to the same address. What is sent again was
// lost, and takes nobody's room.
uint32_t Core::room_for(uint32_t index, const PacketRun& run) {
  if (!qps_[index].repeats()) return pools_.allowed(index, run.count);
  pools_.pass(index);
  return run.count;
}

void Core::settle_window(uint32_t index) {
  pools_.settle(index, qps_[index].in_flight_packets());
  wake_windows(index);
}

void Core::wake_windows(uint32_t index) {
  for (uint32_t awake = 0; pools_.take_awake(index, awake);) queue_transmit(awake);
}

// A card that is full is asked again at every turn, several times for each packet that leaves. Until something happens to the
// queue pair in front, the answer takes neither its run nor its state.
bool Core::still_held(const TransmitRing& ring, TxPort& port, Clock& clock) {
  return ring.held.qp == ring.front() && clock.now() < ring.held.until_ns && port.holds(ring.held.flow);
}

void Core::keep_held(TransmitRing& ring) {
  const uint32_t index = ring.front();
  ring.held.qp = kNone;
  // Where others wait for the same room, a second try gives up the turn.
  if (!qps_[index].repeats() && pools_.anyone_waits(index)) return;
  FlowControl* control = flow_controls_.of(index);
  ring.held = {index, qps_[index].flow(), control == nullptr ? kNever : control->settled_until_ns()};
}

void Core::forget_held(uint32_t index) {
  if (data_ring_.held.qp == index) data_ring_.held.qp = kNone;
  if (grant_ring_.held.qp == index) grant_ring_.held.qp = kNone;
}

// Of the queue pair two turns ahead its state is asked for, of the next one what that state speaks of.
void Core::expect_turns(const TransmitRing& ring) const {
  if (ring.size() < 2) return;
  const uint32_t last = ring.behind_front(std::min<size_t>(ring.size() - 1, 2));
  qps_[last].expect_turn();
  flow_controls_.expect(last);
  pools_.expect(last);
  if (ring.size() == 2) return;
  const uint32_t next = ring.behind_front(1);
  qps_[next].expect_run();
  pools_.expect_pool(next);
}

// One run of the next queue pair in turn. failed: the core says why; held and would_block leave the queue pair in front.
TxResult Core::transmit_one(TransmitRing& ring, TxPort& port, Clock& clock) {
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

TxResult Core::transmit_run(TransmitRing& ring, TxPort& port, Clock& clock) {
  const uint32_t index = ring.front();
  Qp& qp = qps_[index];
  if (qp.has_run()) {
    PacketRun run = qp.next_run(port.max_run(plan_.transport.path_mtu));
    const uint32_t wanted = run.count;
    run.count = room_for(index, run);
    if (run.count > 0) run.count = allowed_packets(index, run, port.departure_horizon_ns(), clock);
    if (run.count == 0) {
      ring.pop();
      qp.queued = false;
      wake_windows(index);
      return TxResult::sent;
    }
    if (!qp.repeats()) pools_.ask(index, run, run.count < wanted);
    if (FlowControl* control = flow_controls_.of(index); control != nullptr) control->ask(run);
    const int64_t sent_before = qp.counters.tx_packets - qp.counters.retransmitted_packets;
    switch (port.send(run)) {
      case TxResult::sent: break;
      case TxResult::would_block: return TxResult::would_block;
      case TxResult::held: return TxResult::held;
      case TxResult::failed:
        fail(places_[index].connection, connection_text(places_[index].connection) + ": " + port.last_error());
        return TxResult::failed;
    }
    const Nanos now = clock.now();
    const Nanos leaves_ns = std::max(now, run.departs_ns);  // round trips and timeouts count from there
    if (const WorkRequest* begun = qp.run_sent(run, leaves_ns); begun != nullptr && carries_data(begun->kind)) {
      OpRecord& record = runs_[lanes_[begun->lane].op_run].record;
      if (record.first_tx_ns == 0) record.first_tx_ns = leaves_ns;
      if (begun->trigger_ns != 0) ++turnarounds_[turnaround_bucket(leaves_ns - begun->trigger_ns)];
    }
    pools_.sent(index, run, qp.in_flight_packets());
    flow_sent(index, run, qp.counters.tx_packets - qp.counters.retransmitted_packets - sent_before, now);
    arm_timer(index);
  }
  if (qp.has_run() && pools_.goes_on(index)) return TxResult::sent;  // still in front
  ring.pop();
  qp.queued = false;
  if (qp.has_run()) {
    queue_transmit(index);
  } else {
    pools_.pass(index);
  }
  wake_windows(index);
  return TxResult::sent;
}

// False: nothing more leaves now. What is held alone does not keep the rest.
bool Core::transmit_answers(TxPort& port, std::vector<uint32_t>& queue) {
  while (!queue.empty()) {
    Qp& qp = qps_[queue.back()];
    while (qp.answer_due()) {
      const PacketRun run = qp.answer();
      if (const TxResult result = port.send(run); result != TxResult::sent) return result == TxResult::held;
      qp.answer_sent(run);
    }
    qp.ack_queued = false;
    queue.pop_back();
  }
  return true;
}

bool Core::transmit_notifications(TxPort& port) {
  while (!cnp_queue_.empty()) {
    Qp& qp = qps_[cnp_queue_.back()];
    PacketRun run;
    run.flow = qp.flow();
    run.traffic_class = plan_.transport.cnp_traffic_class;
    run.head.opcode = Opcode::cnp;
    run.head.dest_qpn = qp.remote_qpn();
    run.head.becn = true;
    if (const TxResult result = port.send(run); result != TxResult::sent) return result == TxResult::held;
    ++qp.counters.np_cnp_sent;
    cnp_queue_.pop_back();
  }
  return true;
}

bool Core::transmit_probes(TxPort& port, Clock& clock) {
  while (!probe_replies_.empty()) {
    const ProbeReply reply = probe_replies_.back();
    const Qp& qp = qps_[reply.qp];
    std::array<uint8_t, kProbeReplyBytes> payload{};
    const uint32_t window = offered_window_[places_[reply.qp].address];
    std::memcpy(payload.data(), &window, sizeof window);
    payload[4] = reply.traffic_class;
    std::memcpy(&payload[5], &offered_share_[places_[reply.qp].address], kShareBytes);
    PacketRun run;
    run.flow = qp.flow();
    run.head.opcode = Opcode::ud_send_only;
    run.head.dest_qpn = qp.remote_qpn();
    run.head.src_qpn = qp.local_qpn();
    run.head.psn = reply.target;
    run.head.qkey = kProbeReplyKey;
    run.head.payload_bytes = kProbeReplyBytes;
    run.head.payload = payload.data();
    if (const TxResult result = port.send(run); result != TxResult::sent) return result == TxResult::held;
    probe_replies_.pop_back();
  }
  if (!prober_.running() || prober_.over()) return true;
  const Nanos now = clock.now();
  for (int64_t target = prober_.next(now); target >= 0; target = prober_.next(now)) {
    const Qp& qp = qps_[prober_.qp(static_cast<size_t>(target))];
    if (probes_by_write(prober_.qp(static_cast<size_t>(target)))) {
      probe_by_write(static_cast<size_t>(target), now);
      continue;
    }
    PacketRun run;
    run.flow = qp.flow();
    run.head.opcode = Opcode::ud_send_only;
    run.head.dest_qpn = qp.remote_qpn();
    run.head.src_qpn = qp.local_qpn();
    run.head.psn = static_cast<uint32_t>(target);
    run.head.qkey = kProbeRequestKey;
    run.head.payload_bytes = plan_.transport.path_mtu;
    switch (port.send(run)) {
      case TxResult::sent: prober_.sent(static_cast<size_t>(target), now); break;
      case TxResult::would_block: return false;
      case TxResult::held: return true;
      case TxResult::failed: prober_.too_large(static_cast<size_t>(target)); break;
    }
  }
  return true;
}

bool Core::transmit(TxPort& port, Clock& clock, size_t budget) {
  if (faults_ == nullptr) return transmit_all(port, clock, budget);
  return faults_->attach(port, clock.now()) && transmit_all(*faults_, clock, budget);
}

bool Core::any_answers() const {
  return !ack_queue_.empty() || !patient_queue_.empty() || grant_ring_.size() > 0 || !cnp_queue_.empty() ||
         !probe_replies_.empty() || probing();
}

// What other hosts wait for, beside data. False: the port takes no more now.
bool Core::transmit_all_answers(TxPort& port, Clock& clock) {
  if (!any_answers()) return true;
  if (!transmit_notifications(port) || !transmit_answers(port, ack_queue_)) return false;
  if (patience_is_over(clock) && !transmit_answers(port, patient_queue_)) return false;
  if (!transmit_probes(port, clock)) return false;
  while (grant_ring_.size() > 0 && failure_.empty()) {
    const TxResult result = transmit_one(grant_ring_, port, clock);
    if (result == TxResult::held) break;
    if (result != TxResult::sent) return false;
  }
  return true;
}

bool Core::transmit_all(TxPort& port, Clock& clock, size_t budget) {
  // A port that was full before the answers had their turn, or held a grant, would else be full of data every time.
  if (answers_wait_ && !transmit_all_answers(port, clock)) return false;
  answers_wait_ = true;
  // First one run of every sender, so that what a message released leaves before that message's acknowledgement,
  // before new grants and before longer bursts of others.
  bool held = false;
  const auto send_one = [&](TransmitRing& ring) {
    const TxResult result = transmit_one(ring, port, clock);
    held = result == TxResult::held;
    return result == TxResult::sent || held;
  };
  for (size_t turn = data_ring_.size(); turn > 0 && budget > 0 && !held && failure_.empty(); --turn, --budget) {
    if (!send_one(data_ring_)) return false;
  }
  if (!transmit_all_answers(port, clock)) return false;
  answers_wait_ = grant_ring_.size() > 0;
  while (budget > 0 && data_ring_.size() > 0 && !held && failure_.empty()) {
    if (!send_one(data_ring_)) return false;
    --budget;
  }
  const bool more = data_ring_.size() > 0 && !held && failure_.empty();
  if (!more) transmit_answers(port, patient_queue_);  // their time would pass while the loop sleeps
  return more;
}

}  // namespace etloop
