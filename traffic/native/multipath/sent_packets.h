// What became of every packet between the oldest that is not acknowledged and the newest that was sent: under way, arrived or
// lost, when it left and by which entropy value. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop::multipath {

enum class SentState : uint8_t { under_way, arrived, lost };

struct SentPacket {
  Nanos sent_ns = 0;
  uint32_t departure = 0;  // packets are numbered as they leave, anew when they are sent again
  uint16_t entropy = 0;
  SentState state = SentState::under_way;
  uint8_t times : 7 = 0;  // 127: as often, or more
  uint8_t asks : 1 = 0;   // the receiver answers it as soon as it arrives
};
static_assert(sizeof(SentPacket) == 16);

class SentPackets {
 public:
  // By fewer, a packet may be late on a path of its own (RFC 8985, 6.2: DupThresh).
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
  // Packets under way that the receiver answers as soon as they arrive.
  uint32_t asking() const { return asking_; }
  // Requires one that is lost.
  uint32_t first_lost();

  // `psn` leaves: the next one for the first time, or one that was lost. `asks`: the receiver answers it at once.
  void sent(uint32_t psn, uint16_t entropy, bool asks, Nanos now);
  // It has arrived. False: that was known.
  bool arrived(uint32_t psn);
  // It has not, and is to be sent again. False: that was known, or it has arrived.
  bool lose(uint32_t psn);
  // So have it and all behind it that is under way. False: nothing of that was.
  bool lose_from(uint32_t psn);
  // Everything before `end` has arrived: `told(packet)` for each of which that is news.
  template <typename Told>
  void arrived_before(uint32_t end, Told&& told) {
    while (oldest_ != next_ && wire::psn_distance(oldest_, end) < 0) {
      if (arrived(oldest_)) told(at(oldest_));
      oldest_ = (oldest_ + 1) & wire::kPsnMask;
    }
    if (wire::psn_distance(lost_from_, oldest_) < 0) lost_from_ = oldest_;
    if (wire::psn_distance(arrived_end_, oldest_) < 0) arrived_end_ = oldest_;
  }
  // What left so many departures before one that arrived, and not after `sent_before_ns`, counts as lost: `told(packet)`
  // for each that is newly so. Returns whether others that are under way were overtaken by `enough`.
  template <typename Told>
  bool lose_overtaken(uint32_t by, uint32_t enough, Nanos sent_before_ns, Told&& told) {
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
      told(packet);
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
  uint32_t lost_from_;        // nothing before it is lost
  uint32_t arrived_end_;      // behind the newest that arrived
  uint32_t under_way_ = 0;
  uint32_t asking_ = 0;  // of those under way
  uint32_t lost_ = 0;
  uint32_t departures_ = 0;
  uint32_t latest_arrived_ = 0;
  std::vector<SentPacket> ring_;  // power of two, empty until something is sent
};

}  // namespace etloop::multipath
