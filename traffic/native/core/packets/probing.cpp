#include "core/packets/probing.h"

#include <array>
#include <bit>
#include <cstring>

namespace etloop {

namespace {

constexpr size_t kShareBytes = 3;  // in a probe's reply, little-endian
constexpr uint32_t kShortBit = 1U << 23;  // of a probe's PSN, which the reply repeats
static_assert(std::endian::native == std::endian::little);

}  // namespace

void Probing::load() {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    const QpPlace& place = queue_pairs_.place(i);
    if (place.sends_data) prober_.add(place.connection, static_cast<int32_t>(place.ordinal), i);
  }
}

PacketRun Probing::request(size_t target) const {
  const Qp& qp = queue_pairs_[prober_.qp(target)];
  PacketRun run;
  run.flow = qp.flow();
  run.head.opcode = wire::Opcode::ud_send_only;
  run.head.dest_qpn = qp.remote_qpn();
  run.head.src_qpn = qp.local_qpn();
  const bool is_short = prober_.is_short(target);
  run.head.psn = static_cast<uint32_t>(target) | (is_short ? kShortBit : 0);
  run.head.qkey = kProbeRequestKey;
  run.head.payload_bytes = is_short ? kShortProbeBytes : plan_.transport.path_mtu_bytes;
  mark(run, marks());
  return run;
}

TxResult Probing::send_replies(TxPort& port) {
  while (!replies_.empty()) {
    const Reply reply = replies_.back();
    const Qp& qp = queue_pairs_[reply.qp];
    std::array<uint8_t, kProbeReplyBytes> payload{};
    const uint32_t window = queue_pairs_.offered_window(reply.qp);
    const uint32_t share = queue_pairs_.offered_share(reply.qp);
    std::memcpy(payload.data(), &window, sizeof window);
    payload[4] = reply.traffic_class;
    std::memcpy(&payload[5], &share, kShareBytes);
    PacketRun run;
    run.flow = qp.flow();
    run.head.opcode = wire::Opcode::ud_send_only;
    run.head.dest_qpn = qp.remote_qpn();
    run.head.src_qpn = qp.local_qpn();
    run.head.psn = reply.target;
    run.head.qkey = kProbeReplyKey;
    run.head.payload_bytes = kProbeReplyBytes;
    run.head.payload = payload.data();
    mark(run, marks());
    if (const TxResult result = port.send(run); result != TxResult::sent) return result;
    replies_.pop_back();
  }
  return TxResult::sent;
}

void Probing::on_request(uint32_t qp, const wire::Packet& packet, uint8_t traffic_class) {
  constexpr size_t kMostReplies = 4096;
  if (replies_.size() < kMostReplies) replies_.push_back({qp, packet.psn, traffic_class});
}

bool Probing::on_reply(uint32_t qp, const wire::Packet& packet, Nanos now, Offer& offer) {
  const uint32_t target = packet.psn & ~kShortBit;
  if (target >= prober_.size() || prober_.qp(target) != qp) return false;
  if ((packet.psn & kShortBit) != 0) {
    prober_.on_short_reply(target);
    return false;
  }
  const int16_t own_class = marks().traffic_class;
  const uint8_t expected = own_class == kFlowClass ? queue_pairs_.place(qp).traffic_class : static_cast<uint8_t>(own_class);
  prober_.on_reply(packet.psn, packet.payload[4], expected, now);
  offer.round_trip_ns = prober_.result(packet.psn).round_trip_ns;
  std::memcpy(&offer.window_packets, packet.payload, sizeof offer.window_packets);
  std::memcpy(&offer.share, &packet.payload[5], kShareBytes);
  if (plan_.transport.window_packets != 0) offer.window_packets = plan_.transport.window_packets;
  return true;
}

void Probing::on_written(uint32_t qp, Nanos now) {
  const uint8_t traffic_class = traffic_class_of(plan_.transport);
  for (uint32_t target = 0; target < prober_.size(); ++target) {
    if (prober_.qp(target) == qp) prober_.on_reply(target, traffic_class, traffic_class, now);
  }
}

Nanos Probing::round_trip_ns(uint32_t qp) const {
  // Binary search: targets were added in the order of their queue pairs.
  size_t low = 0;
  for (size_t high = prober_.size(); low < high;) {
    const size_t middle = low + (high - low) / 2;
    if (prober_.qp(middle) < qp) low = middle + 1;
    else high = middle;
  }
  const bool answered = low < prober_.size() && prober_.qp(low) == qp && prober_.result(low).verdict == ProbeVerdict::good;
  return answered ? prober_.result(low).round_trip_ns : -1;
}

void Probing::on_unreachable(uint32_t qp) {
  for (size_t target = 0; target < prober_.size(); ++target) {
    if (prober_.qp(target) == qp) prober_.unreachable(target);
  }
}

}  // namespace etloop
