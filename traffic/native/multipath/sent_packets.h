// State of each packet from the oldest unacknowledged to the newest sent: in flight, arrived or lost, its departure and entropy
// value. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop::multipath {

enum class SentState : uint8_t { under_way, arrived, lost };

struct SentPacket {
  Nanos sent_ns = 0;
  uint32_t departure = 0;  // departure number; new for a retransmission
  uint16_t entropy = 0;
  SentState state = SentState::under_way;
  uint8_t times : 7 = 0;  // transmissions; saturates at 127
  uint8_t asks : 1 = 0;   // requests an answer on arrival
};
static_assert(sizeof(SentPacket) == 16);

class SentPackets {
 public:
  // Overtaken by fewer, a packet may be late on its own path (RFC 8985, 6.2: DupThresh).
  static constexpr uint32_t kLeastOvertaken = 3;

  explicit SentPackets(uint32_t first_psn)
      : oldest_(first_psn), next_(first_psn), lost_from_(first_psn), arrived_end_(first_psn) {}

  uint32_t oldest() const { return oldest_; }
  uint32_t next() const { return next_; }
  uint32_t span() const { return static_cast<uint32_t>(wire::psn_distance(next_, oldest_)); }
  bool has(uint32_t psn) const {
    return wire::psn_distance(psn, oldest_) >= 0 && wire::psn_distance(psn, next_) < 0;
  }
  // Requires `has`.
  const SentPacket& at(uint32_t psn) const { return ring_[psn & (ring_.size() - 1)]; }
  uint32_t under_way() const { return under_way_; }
  uint32_t lost() const { return lost_; }
  // Packets in flight that request an answer.
  uint32_t asking() const { return asking_; }
  // Requires lost() > 0.
  uint32_t first_lost();

  // `psn` was sent: the next one for the first time, or a lost one again. `asks`: it requests an answer.
  void sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now);
  // The packet has arrived. False: known already.
  bool arrived(uint32_t psn);
  // The packet is lost, and must be retransmitted. False: known already, or it has arrived.
  bool lose(uint32_t psn);
  // The packet and all later ones in flight are lost. False: none was in flight.
  bool lose_from(uint32_t psn);
  // All packets before `end` have arrived: call `notify(packet)` for each newly arrived one.
  template <typename Notify>
  void arrived_before(uint32_t end, Notify&& notify) {
    while (oldest_ != next_ && wire::psn_distance(oldest_, end) < 0) {
      if (arrived(oldest_)) notify(at(oldest_));
      oldest_ = (oldest_ + 1) & wire::kPsnMask;
    }
    if (wire::psn_distance(lost_from_, oldest_) < 0) lost_from_ = oldest_;
    if (wire::psn_distance(arrived_end_, oldest_) < 0) arrived_end_ = oldest_;
  }
  // Packets that left `by` departures before an arrived one, and not after `sent_before_ns`, are lost: call `notify(packet)` for
  // each newly lost one. Returns whether other packets in flight were overtaken by `enough`.
  template <typename Notify>
  bool lose_overtaken(uint32_t by, uint32_t enough, Nanos sent_before_ns, Notify&& notify) {
    bool any_left = false;
    for (uint32_t psn = oldest_; wire::psn_distance(psn, arrived_end_) < 0; psn = (psn + 1) & wire::kPsnMask) {
      const SentPacket& packet = at(psn);
      if (packet.state != SentState::under_way) continue;
      const auto behind = static_cast<int32_t>(latest_arrived_ - packet.departure);
      if (packet.sent_ns > sent_before_ns || behind < static_cast<int32_t>(by)) {
        any_left |= behind >= static_cast<int32_t>(enough);
        continue;
      }
      lose(psn);
      notify(packet);
    }
    return any_left;
  }

 private:
  static constexpr size_t kFirstRing = 16;
  SentPacket& entry(uint32_t psn) { return ring_[psn & (ring_.size() - 1)]; }
  void leave_network(const SentPacket& packet) {
    --under_way_;
    asking_ -= packet.asks;
  }
  void grow();

  uint32_t oldest_;
  uint32_t next_;
  uint32_t lost_from_;        // no packet before it is lost
  uint32_t arrived_end_;      // PSN after the newest arrived packet
  uint32_t under_way_ = 0;
  uint32_t asking_ = 0;  // of those in flight
  uint32_t lost_ = 0;
  uint32_t departures_ = 0;
  uint32_t latest_arrived_ = 0;
  std::vector<SentPacket> ring_;  // power of two, empty until the first packet
};

}  // namespace etloop::multipath
