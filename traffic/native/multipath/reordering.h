// How far a packet may be behind others, in packets and in time, before it counts as lost. With spraying, packets overtake each
// other by what their paths' queues differ: by as many as were ever under way, though it may be fewer now, and by about a round
// trip. As RACK widens its window (RFC 8985, 6.2), a packet may be later once one that counted as lost had only been late, and
// less late again when that has not happened for long. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "multipath/sent_packets.h"
#include "qp/answer_timer.h"

namespace etloop::multipath {

class Reordering {
 public:
  // `planes` of a card, whose queues know nothing of each other. `trims`: switches trim, and the receiver says so. What a full
  // queue cost is then known without inference, and what is overtaken is late rather than lost.
  Reordering(uint32_t most_packets, uint32_t planes, bool trims)
      : most_packets_(std::max(SentPackets::kLeastOvertaken, most_packets)),
        enough_packets_(SentPackets::kLeastOvertaken * planes),
        least_quarters_(trims ? kTrimmingQuarters : kLeastQuarters),
        quarters_(least_quarters_) {}

  void note_sent(uint32_t under_way, Nanos now) {
    most_under_way_ = std::max(most_under_way_, under_way);
    last_sent_ns_ = now;
  }
  // A packet that counted as lost turned out to have arrived.
  void note_lost_in_vain(Nanos now) {
    quarters_ = std::min(quarters_ + 1, kMostQuarters);
    lost_in_vain_ns_ = now;
  }
  void note_answer(const AnswerTimer& timer, Nanos now) {
    if (quarters_ == least_quarters_ || now - lost_in_vain_ns_ <= kForgetRoundTrips * timer.smoothed_rtt_ns()) return;
    --quarters_;
    lost_in_vain_ns_ = now;
  }
  // Whether something under way was overtaken by `enough_packets`, not yet by as many as make it lost.
  void set_overtaken(bool overtaken) { overtaken_ = overtaken; }

  // By so many that left later a packet is overtaken, and not only passed by.
  uint32_t overtaken_by() const { return std::clamp(most_under_way_, SentPackets::kLeastOvertaken, most_packets_); }
  // By so many where nothing else leaves meanwhile: as many of its own plane as are the least of one port.
  uint32_t enough_packets() const { return enough_packets_; }
  // So long after it left it is late.
  Nanos late_after_ns(const AnswerTimer& timer) const { return timer.patience_ns() * quarters_ / 4; }
  // Where nothing else leaves meanwhile, as a window is full of what was lost, no more packets overtake it: it is late once even
  // the last that left is.
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
  uint32_t most_under_way_ = 0;  // at any time
  uint32_t quarters_;  // of the timer's patience: so late a packet may be
  Nanos lost_in_vain_ns_ = 0;
  Nanos last_sent_ns_ = 0;
  bool overtaken_ = false;
};

}  // namespace etloop::multipath
