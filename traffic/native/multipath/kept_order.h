// Decides what to retransmit to a receiver that accepts packets only in order, and the burst size. Pure.
//
// With go-back-N, the bursts of several senders can push each other's first packet out of a queue again and again: a sender that
// goes back to the same packet halves its burst, down to that packet alone, until it arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "multipath/sent_packets.h"
#include "plan/plan.h"

namespace etloop::multipath {

class KeptOrder {
 public:
  // `kept`: packets behind a missing one were not accepted. Otherwise a missing packet is retransmitted alone.
  explicit KeptOrder(bool kept) : kept_(kept) {}

  bool is_kept() const { return kept_; }
  // Most packets in flight, whatever the window.
  uint32_t burst_packets() const { return burst_packets_; }

  // `psn` is missing. False: known already, or it has arrived.
  bool lose(SentPackets& sent, uint32_t psn) {
    if (!kept_) return sent.lose(psn);
    if (!sent.lose_from(psn)) return false;
    if (last_rewind_psn_ == psn) burst_packets_ = std::max(burst_packets_ / 2, 1U);
    last_rewind_psn_ = psn;
    return true;
  }
  void note_progress() { burst_packets_ = std::min(burst_packets_ * 2, kMostSprayedWindow); }

 private:
  bool kept_;
  uint32_t burst_packets_ = kMostSprayedWindow;
  std::optional<uint32_t> last_rewind_psn_;
};

}  // namespace etloop::multipath
