#include "multipath/sent_packets.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace etloop::multipath {

using wire::psn_distance;

namespace {

constexpr uint8_t kMostTimes = 127;

constexpr uint32_t after(uint32_t psn) { return (psn + 1) & wire::kPsnMask; }

}  // namespace

void SentPackets::grow() {
  std::vector<SentPacket> larger(std::max(kFirstRing, ring_.size() * 2));
  for (uint32_t psn = oldest_; psn != next_; psn = after(psn)) larger[psn & (larger.size() - 1)] = entry(psn);
  ring_ = std::move(larger);
}

void SentPackets::sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now) {
  const uint32_t departure = ++departures_;
  const uint8_t asking = asks ? 1 : 0;
  ++under_way_;
  asking_ += asking;
  if (psn == next_) {
    if (span() == ring_.size()) grow();
    if (span() == 0) arrived_end_ = psn;
    next_ = after(next_);
    entry(psn) = {now, departure, entropy, SentState::under_way, 1, asking};
    return;
  }
  SentPacket& packet = entry(psn);
  assert(packet.state == SentState::lost);
  --lost_;
  packet.times += packet.times < kMostTimes ? 1 : 0;
  packet = {now, departure, entropy, SentState::under_way, packet.times, asking};
}

bool SentPackets::arrived(uint32_t psn) {
  SentPacket& packet = entry(psn);
  if (packet.state == SentState::arrived) return false;
  if (packet.state == SentState::lost) --lost_;
  else leave_network(packet);
  packet.state = SentState::arrived;
  if (static_cast<int32_t>(packet.departure - latest_arrived_) > 0) latest_arrived_ = packet.departure;
  if (psn_distance(psn, arrived_end_) >= 0) arrived_end_ = after(psn);
  return true;
}

bool SentPackets::lose(uint32_t psn) {
  SentPacket& packet = entry(psn);
  if (packet.state != SentState::under_way) return false;
  packet.state = SentState::lost;
  leave_network(packet);
  ++lost_;
  if (psn_distance(psn, lost_from_) < 0) lost_from_ = psn;
  return true;
}

bool SentPackets::lose_from(uint32_t psn) {
  bool any = false;
  for (; psn != next_; psn = after(psn)) any = lose(psn) || any;
  return any;
}

uint32_t SentPackets::first_lost() {
  while (at(lost_from_).state != SentState::lost) lost_from_ = after(lost_from_);
  return lost_from_;
}

}  // namespace etloop::multipath
