// The sender's scoreboard for selective repeat: per packet in flight its last departure, and whether it is lost. A packet is lost
// once a packet that was sent after it has arrived (RACK, RFC 8985, by order of departure instead of time; a retransmission
// counts as a new departure). Pure.
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
  // The first lost range; requires any_lost().
  Range first_lost() const;
  // Packets neither known to have arrived nor lost.
  uint32_t under_way() const { return under_way_; }
  // The last packet sent requests an answer, expected until it or a later packet has arrived.
  void note_asked() {
    asked_departure_ = departures_;
    is_asked_lost_ = false;
  }
  bool answer_expected() const { return latest_arrived_ < asked_departure_; }
  // Whether that packet is in flight as far as known: otherwise it will not be answered.
  bool answer_comes() const { return answer_expected() && !is_asked_lost_; }

  // `count` packets from `psn` were sent, for the first time or again.
  void sent(uint32_t psn, uint32_t count);
  // All packets before `psn` have arrived.
  void arrived_before(uint32_t psn);
  // These packets arrived, ahead of others. Returns how many were not known to have arrived.
  uint32_t arrived(uint32_t psn, uint32_t count);
  // Mark packets that left before an arrived one as lost. Returns how many are newly lost.
  uint32_t lose_overtaken();
  // Mark those of `count` packets from `psn` that have not arrived as lost. Returns how many are newly lost.
  uint32_t lose(uint32_t psn, uint32_t count);
  // Retransmit a packet that may have arrived: the answer shows what else has arrived.
  void doubt(uint32_t psn);
  // The newest packet not known to have arrived; false: none.
  bool newest(uint32_t& psn) const;

 private:
  // Consecutive packets with consecutive departures.
  struct Sent {
    uint32_t psn;
    uint32_t count;
    uint64_t departure;  // departure number of its first packet
    bool lost;
  };

  static uint32_t end_of(const Sent& sent) { return (sent.psn + sent.count) & wire::kPsnMask; }
  static Sent rest_from(const Sent& sent, uint32_t psn);
  size_t split_at(uint32_t psn);
  void note_arrived(const Sent& sent);
  void forget(const Sent& sent) { (sent.lost ? lost_packets_ : under_way_) -= sent.count; }
  void mark_lost(Sent& sent);

  std::vector<Sent> sent_;  // by PSN; arrived packets are removed
  uint32_t lost_packets_ = 0;
  uint32_t under_way_ = 0;
  // Departures are numbered; a retransmission gets a new number.
  uint64_t departures_ = 0;
  uint64_t latest_arrived_ = 0;
  uint64_t asked_departure_ = 0;
  bool is_asked_lost_ = false;
};

}  // namespace etloop
