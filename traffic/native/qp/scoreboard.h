// What is known at the sender of every packet under way, with selective repeat: when it was sent last, whether it arrived, and
// whether it is lost. A packet is lost when one that was sent after it has arrived (RACK, RFC 8985, in order of departures
// instead of time: what was sent again counts from then on). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/wire.h"

namespace etloop {

class Scoreboard {
 public:
  struct Range {
    uint32_t psn;
    uint32_t count;
  };

  bool any_lost() const { return lost_packets_ != 0; }
  // The first of what is lost; requires any.
  Range first_lost() const;
  // Packets that are neither known to have arrived nor lost.
  uint32_t under_way() const { return under_way_; }
  // The packet that left last asks for an answer, which is expected until it, or what left later, has arrived.
  void note_asked() {
    asked_departure_ = departures_;
    is_asked_lost_ = false;
  }
  bool answer_expected() const { return latest_arrived_ < asked_departure_; }
  // Whether it is still under way, as far as known: else no answer to it will come.
  bool answer_comes() const { return answer_expected() && !is_asked_lost_; }

  // `count` packets from `psn` on left, for the first time or again.
  void sent(uint32_t psn, uint32_t count);
  // Everything below `psn` has arrived.
  void arrived_before(uint32_t psn);
  // These arrived, ahead of others. Returns how many that was not known of.
  uint32_t arrived(uint32_t psn, uint32_t count);
  // Whatever left before something that arrived counts as lost. Returns how many are newly so.
  uint32_t lose_overtaken();
  // What of `count` packets from `psn` on has not arrived counts as lost. Returns how many are newly so.
  uint32_t lose(uint32_t psn, uint32_t count);
  // It is to be sent again, though it may have arrived: whoever has it says what else it has.
  void doubt(uint32_t psn);
  // The newest packet that is not known to have arrived; false: there is none.
  bool newest(uint32_t& psn) const;

 private:
  // Consecutive packets that left one after the other.
  struct Sent {
    uint32_t psn;
    uint32_t count;
    uint64_t departure;  // of its first packet
    bool lost;
  };

  static uint32_t end_of(const Sent& sent) { return (sent.psn + sent.count) & wire::kPsnMask; }
  static Sent rest_from(const Sent& sent, uint32_t psn);
  size_t split_at(uint32_t psn);
  void note_arrived(const Sent& sent);
  void forget(const Sent& sent) { (sent.lost ? lost_packets_ : under_way_) -= sent.count; }
  void mark_lost(Sent& sent);

  std::vector<Sent> sent_;  // by sequence number; what has arrived is not in it
  uint32_t lost_packets_ = 0;
  uint32_t under_way_ = 0;
  // Packets are numbered as they leave, anew when they are sent again.
  uint64_t departures_ = 0;
  uint64_t latest_arrived_ = 0;
  uint64_t asked_departure_ = 0;
  bool is_asked_lost_ = false;
};

}  // namespace etloop
