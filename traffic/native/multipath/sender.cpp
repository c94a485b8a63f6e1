#include "multipath/sender.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "wire/clear_to_send.h"

namespace etloop::multipath {

using wire::psn_distance;

namespace {

constexpr uint32_t kGolden = 0x9E3779B9U;  // multiplicative hashing constant
constexpr uint32_t kBitmapPackets = 64;
// Minimum interval of probes of withdrawn values, at least a round trip.
constexpr Nanos kValueProbeNs = 50'000;

constexpr uint32_t advance(uint32_t psn, int32_t by) { return (psn + static_cast<uint32_t>(by)) & wire::kPsnMask; }

// The first value of a sender. With one value per sender, consecutive senders get consecutive planes, each row of them starting
// at another; otherwise any value will do.
uint32_t first_turn(uint32_t number, const PathStates& paths) {
  if (!paths.keep_one()) return number * kGolden ^ paths.port_of(0);
  return number + (number / kMostPlanes * kGolden >> 16) - paths.port_of(0);
}

}  // namespace

Sender::Sender(uint32_t number, PathStates& paths, const TransportSettings& params, FlowRecord& counters,
               std::pmr::memory_resource& memory)
    : counters_(counters),
      sent_(params.recovery.initial_psn & wire::kPsnMask),
      order_(params.multipath.uet.order == DeliveryOrder::sent),
      entropy_(params.multipath.choice, paths, first_turn(number, paths)),
      requests_(params.recovery.initial_psn & wire::kPsnMask, static_cast<uint32_t>(std::countr_zero(params.path_mtu_bytes)),
                memory),
      timer_(params, number),
      tail_(params),
      path_mtu_(params.path_mtu_bytes),
      mtu_shift_(static_cast<uint32_t>(std::countr_zero(params.path_mtu_bytes))),
      reordering_(params.recovery.reorder_packets, paths.planes(), params.recovery.trimming.answer != TrimAnswer::none),
      completed_end_(params.recovery.initial_psn & wire::kPsnMask) {
  set_window(params.window_packets == 0 ? kMostSprayedWindow : params.window_packets);
}

void Sender::set_window(uint32_t packets) { window_ = std::clamp(packets, 1U, kMostSprayedWindow); }

void Sender::post(const WorkRequest& request) {
  requests_.post(request);
  if (fault_ != QpFault::none) fail(fault_);  // flushed like the others
}

bool Sender::has_run() const {
  if (fault_ != QpFault::none || sent_.under_way() >= order_.burst_packets()) return false;
  if (sent_.lost() > 0) return true;
  return requests_.any_to_send() && sent_.span() < window_;
}

Departure Sender::next(uint32_t planes) {
  Departure departure;
  departure.again = sent_.lost() > 0;
  departure.psn = departure.again ? sent_.first_lost() : sent_.next();
  const WorkRequest& request = departure.again ? requests_.at_psn(departure.psn) : requests_.next();
  const auto offset = static_cast<uint32_t>(psn_distance(departure.psn, request.first_psn));
  departure.request = &request;
  departure.first = offset == 0;
  departure.last = offset + 1 == request.packets;
  // The last packet of a message requests an answer: no later packet would reveal its loss. A grant is a whole message, and
  // answered as such.
  departure.asks = departure.again || (departure.last && request.kind != WorkKind::clear_to_send) || fills_window(1);
  departure.offset_bytes = offset << mtu_shift_;
  departure.payload_bytes = departure.last ? request.bytes - departure.offset_bytes : path_mtu_;
  if (request.kind == WorkKind::clear_to_send) {
    put_grant({request.grant_va, request.grant_bytes, request.grant_rkey, request.grant_tag, request.index}, inline_);
    departure.payload = inline_;
  }
  // A grant is alone in flight, and delays the message it grants if lost: use a proven path.
  if (departure.again && !order_.is_kept()) {
    departure.entropy = entropy_.next_but(sent_.at(departure.psn).entropy, planes);
  } else {
    departure.entropy = request.kind == WorkKind::clear_to_send ? entropy_.next_proven(planes) : entropy_.next(planes);
  }
  return departure;
}

SentRequest Sender::sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now) {
  ++counters_.tx_packets;
  if (!waits()) timer_.note_start(now);
  if (sent_.under_way() == 0) {
    timer_.restart(now);
    tail_.restart(now);
  }
  tail_.note_asked(now);
  const bool again = psn != sent_.next();
  sent_.sent(psn, entropy, asks, now);
  reordering_.note_sent(sent_.under_way(), now);
  if (again) {
    ++counters_.retransmitted_packets;
    return {};
  }
  WorkRequest& request = requests_.next();
  const bool begins = psn == request.first_psn;
  const bool ends = psn_distance(sent_.next(), request.first_psn) == static_cast<int32_t>(request.packets);
  if (ends) requests_.advance();
  const SentRequest result{begins ? &request : nullptr, ends ? &request : nullptr};
  if (!begins) return result;
  if (request.kind != WorkKind::clear_to_send) {
    ++counters_.tx_messages;
    counters_.tx_payload_bytes += request.bytes;
  }
  return result;
}

void Sender::retransmit(uint32_t psn) {
  if (order_.lose(sent_, psn)) timer_.forget_sent();
}

void Sender::note_arrived(const SentPacket& packet, AckOutcome& outcome) {
  ++outcome.packets;
  if (packet.sent_ns > error_.at_ns) error_ = {};  // the peer still places packets: the error was forged
  entropy_.paths().arrived(packet.entropy);
}

void Sender::arrived_before(uint32_t end, Nanos now, AckOutcome& outcome) {
  if (psn_distance(end, sent_.oldest()) <= 0 || psn_distance(end, sent_.next()) > 0) return;
  sent_.arrived_before(end, [&](const SentPacket& packet) { note_arrived(packet, outcome); });
  order_.note_progress();
  timer_.note_progress(now);
}

// Return the value of a packet that arrived unmarked, if the report has one.
std::optional<uint16_t> Sender::learn_value(const ArrivalReport& report) {
  uint16_t value = report.value;
  if (!report.names_value) {
    if (report.answers_probe) {
      if (report.probe_id != probe_.id) return std::nullopt;
      value = probe_.value;
    } else if (sent_.has(report.cause_psn)) {
      value = sent_.at(report.cause_psn).entropy;
    } else {
      return std::nullopt;
    }
  }
  switch (report.mark) {
    case PathMark::none:
      if (!report.answers_probe) return value;
      entropy_.paths().apply(value, EntropyEvent::probe_answered);
      break;
    case PathMark::skip_once:
      entropy_.paths().apply(value, report.answers_probe ? EntropyEvent::marked_by_probe : EntropyEvent::marked);
      break;
    case PathMark::skip_always: entropy_.paths().apply(value, EntropyEvent::withdrawn); break;
  }
  return std::nullopt;
}

// Return how many packets are newly lost.
uint32_t Sender::lose_overtaken(uint32_t by, Nanos now) {
  uint32_t lost = 0;
  const Nanos sent_before_ns = now - reordering_.late_after_ns(timer_);
  const auto note = [&](const SentPacket& packet) {
    ++lost;
    entropy_.paths().lost(packet.entropy);
  };
  reordering_.set_overtaken(sent_.lose_overtaken(by, reordering_.enough_packets(), sent_before_ns, note));
  return lost;
}

// Measure the round trip of the answered packet, if the transmission that arrived is unambiguous.
void Sender::learn_round_trip(const ArrivalReport& report, Nanos now, AckOutcome& outcome) {
  if (report.answers_probe || !sent_.has(report.cause_psn)) return;
  const SentPacket& packet = sent_.at(report.cause_psn);
  if (packet.state == SentState::arrived) return;
  const bool earlier = (report.names_value && packet.entropy != report.value) || (report.names_resend && !report.resent);
  if (packet.times > 1 && earlier) reordering_.note_lost_in_vain(now);
  if (report.names_value && packet.entropy != report.value) return;
  const uint8_t times = report.names_resend && report.resent ? 2 : 1;
  if (packet.times == times) outcome.rtt_ns = now - packet.sent_ns;
}

// Packets that left well before the probe, are late and not reported are lost; the state of packets beyond the bitmap is
// unknown. A probe of a value carries no information about other values: its path may be the shortest.
void Sender::learn_of_probe(const ArrivalReport& report, Nanos now, AckOutcome& outcome) {
  if (!report.answers_probe) return;
  const Nanos probed_ns = probe_.sent_ns;
  if (!probe_.answered(report.probe_id) || probe_.reason != ProbeReason::silence) return;
  const Nanos before_ns =
      std::min(probed_ns - std::max<Nanos>(timer_.smoothed_rtt_ns(), 0) / 2, now - reordering_.late_after_ns(timer_));
  for (uint32_t i = 0; i < kBitmapPackets; ++i) {
    const uint32_t psn = advance(report.bitmap_psn, static_cast<int32_t>(i));
    if (!sent_.has(psn) || sent_.at(psn).state != SentState::under_way || sent_.at(psn).sent_ns > before_ns) continue;
    entropy_.paths().apply(sent_.at(psn).entropy, EntropyEvent::withdrawn);
    retransmit(psn);
    ++outcome.lost_packets;
  }
}

AckOutcome Sender::on_report(const ArrivalReport& report, Nanos now) {
  AckOutcome outcome;
  const uint32_t end = advance(report.cumulative_psn, 1);
  if (psn_distance(end, sent_.next()) > 0) {  // acknowledges packets never sent
    ++counters_.stale_answers;
    return outcome;
  }
  outcome.ecn_echo = report.mark == PathMark::skip_once;
  const std::optional<uint16_t> clean_value = learn_value(report);
  learn_round_trip(report, now, outcome);
  arrived_before(end, now, outcome);
  for (uint64_t bits = report.bitmap; bits != 0; bits &= bits - 1) {
    const uint32_t psn = advance(report.bitmap_psn, std::countr_zero(bits));
    if (!sent_.has(psn)) continue;
    if (sent_.at(psn).state == SentState::lost) reordering_.note_lost_in_vain(now);
    if (sent_.arrived(psn)) note_arrived(sent_.at(psn), outcome);
  }
  if (clean_value) entropy_.arrived_clean(*clean_value, outcome.packets);
  if (outcome.packets > 0) timer_.note_progress(now);
  reordering_.note_answer(timer_, now);
  outcome.bytes = uint64_t{outcome.packets} << mtu_shift_;
  if (!order_.is_kept()) {
    outcome.lost_packets += std::exchange(unreported_losses_, 0) + lose_overtaken(reordering_.overtaken_by(), now);
  }
  learn_of_probe(report, now, outcome);
  ask_if_closed();
  outcome.nak = outcome.lost_packets > 0;
  tail_.note_answer(now);
  if (outcome.rtt_ns >= 0) timer_.set_sample(outcome.rtt_ns);
  return outcome;
}

bool Sender::lose(uint32_t psn, Nanos now) {
  if (!sent_.has(psn) || sent_.at(psn).state != SentState::under_way) return false;
  order_.lose(sent_, psn);
  timer_.restart(now);
  return true;
}

// Rule 3 at the head of sender.h.
void Sender::ask_if_closed() {
  const bool is_closed = sent_.lost() == 0 && requests_.any_to_send() && fills_window(0);
  if (is_closed && sent_.under_way() > 0 && !answer_comes() && !probe_.is_open()) probe_.due = ProbeReason::full_window;
}

void Sender::complete_before(uint32_t end) {
  if (psn_distance(end, completed_end_) <= 0) return;
  completed_end_ = end;
  AckOutcome counted_elsewhere;
  requests_.complete_before(end, counted_elsewhere);
}

void Sender::learn_of_completed(Nanos now, AckOutcome& outcome) {
  if (psn_distance(completed_end_, sent_.oldest()) > 0) {
    const SentPacket& oldest = sent_.at(sent_.oldest());
    const bool alone = psn_distance(completed_end_, sent_.oldest()) == 1 && oldest.times == 1;
    const Nanos took_ns = now - oldest.sent_ns;
    arrived_before(completed_end_, now, outcome);
    if (alone) timer_.set_sample(took_ns);
  }
  outcome.bytes = uint64_t{outcome.packets} << mtu_shift_;
  timer_.note_progress(now);
}

Nanos Sender::deadline() const {
  if (fault_ != QpFault::none || !waits()) return kNever;
  if (sent_.lost() > 0 && sent_.under_way() == 0) return kNever;  // all lost, waiting to be retransmitted
  return std::min({timer_.deadline(), tail_.due_ns(timer_.patience_ns()), stuck_at_ns()});
}

void Sender::lose_older_than(Nanos sent_before_ns) {
  for (uint32_t psn = sent_.oldest(); psn != sent_.next(); psn = advance(psn, 1)) {
    const SentPacket& packet = sent_.at(psn);
    if (packet.state != SentState::under_way || packet.sent_ns > sent_before_ns) continue;
    entropy_.paths().apply(packet.entropy, EntropyEvent::withdrawn);
    retransmit(psn);
  }
}

// Retransmit a grant instead of probing: it is hardly longer than a probe, and saves a round trip. False: no grant is in flight.
bool Sender::resend_grant() {
  for (uint32_t psn = sent_.oldest(); psn != sent_.next(); psn = advance(psn, 1)) {
    const SentPacket& packet = sent_.at(psn);
    if (packet.state != SentState::under_way) continue;
    if (requests_.at_psn(psn).kind != WorkKind::clear_to_send) return false;
    entropy_.paths().lost(packet.entropy);
    retransmit(psn);
    return true;
  }
  return false;
}

void Sender::on_timer(Nanos now) {
  if (deadline() > now) return;
  if (stuck_at_ns() <= now) {
    unreported_losses_ += lose_overtaken(reordering_.enough_packets(), now);
    return;
  }
  if (timer_.deadline() > now) {
    ++counters_.tail_probes;
    tail_.restart(now);
    tail_.note_probe();
    if (!resend_grant()) want_probe();
    return;
  }
  const Nanos waited_since_ns = now - (timer_.deadline() - timer_.base_ns());
  timer_.restart(now);
  tail_.restart(now);
  ++counters_.local_ack_timeout_err;
  if (timer_.adaptive()) ++(timer_.is_short() ? counters_.roce_adp_retrans : counters_.roce_adp_retrans_to);
  timer_.expire();
  if (!timer_.may_retry(now)) {
    give_up();
    return;
  }
  lose_older_than(waited_since_ns);
  want_probe();
}

bool Sender::probe_due(Nanos now) {
  if (fault_ != QpFault::none) return false;
  if (probe_.due != ProbeReason::none) return true;
  if (sent_.under_way() == 0) return false;
  const Nanos interval_ns = std::max(kValueProbeNs, timer_.smoothed_rtt_ns());
  if (!entropy_.paths().next_to_probe(probe_.value_due, now, interval_ns)) return false;
  probe_.due = ProbeReason::value;
  return true;
}

bool Sender::resend_for_probe() {
  if (probe_.due != ProbeReason::silence) return false;
  probe_.due = ProbeReason::none;
  if (sent_.span() > 0 && sent_.at(sent_.oldest()).state == SentState::under_way) retransmit(sent_.oldest());
  return true;
}

void Sender::fail(QpFault fault) {
  fault_ = fault;
  requests_.flush();
}

}  // namespace etloop::multipath
