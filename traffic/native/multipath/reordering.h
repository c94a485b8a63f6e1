// Reordering tolerance: how many packets and how much time a packet may be behind others before it counts as lost. With spraying,
// packets overtake each other by the difference of their paths' queues: by as many as were ever in flight, and by about a round
// trip. As RACK adapts its window (RFC 8985, 6.2), the tolerance grows when a packet was declared lost in vain, and shrinks when
// that has not happened for long. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "multipath/sent_packets.h"
#include "qp/answer_timer.h"

namespace etloop::multipath {

class Reordering {
 public:
  // `planes` of a card, with independent queues. `trims`: switches trim and the receiver reports it. Losses in full queues are
  // then known, so an overtaken packet is probably late.
  Reordering(uint32_t most_packets, uint32_t planes, bool trims)
      : most_packets_(std::max(SentPackets::kLeastOvertaken, most_packets)),
        enough_packets_(SentPackets::kLeastOvertaken * planes),
        least_quarters_(trims ? kTrimmingQuarters : kLeastQuarters),
        quarters_(least_quarters_) {}

  void note_sent(uint32_t under_way, Nanos now) {
    most_under_way_ = std::max(most_under_way_, under_way);
    last_sent_ns_ = now;
  }
  // A packet declared lost had arrived.
  void note_lost_in_vain(Nanos now) {
    quarters_ = std::min(quarters_ + 1, kMostQuarters);
    lost_in_vain_ns_ = now;
  }
  void note_answer(const AnswerTimer& timer, Nanos now) {
    if (quarters_ == least_quarters_ || now - lost_in_vain_ns_ <= kForgetRoundTrips * timer.smoothed_rtt_ns()) return;
    --quarters_;
    lost_in_vain_ns_ = now;
  }
  // Whether a packet in flight was overtaken by `enough_packets`, but by fewer than `overtaken_by`.
  void set_overtaken(bool overtaken) { overtaken_ = overtaken; }

  // Packets sent later that must arrive before a packet counts as overtaken.
  uint32_t overtaken_by() const { return std::clamp(most_under_way_, SentPackets::kLeastOvertaken, most_packets_); }
  // The same while no more packets leave: the minimum of a single port per plane.
  uint32_t enough_packets() const { return enough_packets_; }
  // Time after its departure at which a packet is late.
  Nanos late_after_ns(const AnswerTimer& timer) const { return timer.patience_ns() * quarters_ / 4; }
  // If no more packets leave, because the window is full of lost ones, no more can overtake: a packet is late when even the last
  // departure is.
  Nanos stuck_at_ns(const AnswerTimer& timer) const {
    return !overtaken_ || timer.smoothed_rtt_ns() < 0 ? kNever : last_sent_ns_ + late_after_ns(timer);
  }

 private:
  static constexpr uint32_t kLeastQuarters = 2;
  static constexpr uint32_t kTrimmingQuarters = 4;
  static constexpr uint32_t kMostQuarters = 8;
  static constexpr Nanos kForgetRoundTrips = 64;

  uint32_t most_packets_;
  uint32_t enough_packets_;
  uint32_t least_quarters_;
  uint32_t most_under_way_ = 0;  // maximum at any time
  uint32_t quarters_;  // tolerance in quarters of the timer's patience
  Nanos lost_in_vain_ns_ = 0;
  Nanos last_sent_ns_ = 0;
  bool overtaken_ = false;
};

}  // namespace etloop::multipath
