// What is sent again where a receiver takes packets in their order alone, and how much of it at a time. Pure.
//
// Where whole bursts are repeated for their first packet, those of several senders can push it out of a queue again and again:
// who goes back to the same packet in vain sends less at a time, down to that packet alone, until it arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "multipath/sent_packets.h"
#include "plan/plan.h"

namespace etloop::multipath {

class KeptOrder {
 public:
  // `kept`: what is behind a missing packet was not taken. Else one is sent again by itself.
  explicit KeptOrder(bool kept) : kept_(kept) {}

  bool is_kept() const { return kept_; }
  // So many may be under way, whatever the window.
  uint32_t burst_packets() const { return burst_packets_; }

  // `psn` is missing. False: that was known, or it has arrived.
  bool lose(SentPackets& sent, uint32_t psn) {
    if (!kept_) return sent.lose(psn);
    if (!sent.lose_from(psn)) return false;
    if (went_back_to_ == psn) burst_packets_ = std::max(burst_packets_ / 2, 1U);
    went_back_to_ = psn;
    return true;
  }
  void note_progress() { burst_packets_ = std::min(burst_packets_ * 2, kMostSprayedWindow); }

 private:
  bool kept_;
  uint32_t burst_packets_ = kMostSprayedWindow;
  std::optional<uint32_t> went_back_to_;
};

}  // namespace etloop::multipath
