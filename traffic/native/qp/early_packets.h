// Packets that overtook others, kept until their turn where the ends agreed to, and what is known of the gaps before them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "wire/packet_run.h"
#include "wire/wire.h"

namespace etloop {

class EarlyPackets {
 public:
  explicit EarlyPackets(const TransportSettings& params)
      : patience_(params.recovery.accept_out_of_order ? params.recovery.reorder_packets : 1),
        accepts_(params.recovery.accept_out_of_order || params.recovery.selective_repeat) {}

  bool empty() const { return count_ == 0; }
  // What is missing counts as lost once as many overtook it as may.
  bool missing_may_be_late() const { return count_ < patience_; }
  bool reached_patience() const { return count_ == patience_; }

  // Keeps a write that came so far ahead of its turn, with its payload where content matters; what cannot be kept must come
  // again.
  enum class Kept : uint8_t { no, new_one, again };
  Kept keep(const wire::Packet& packet, uint32_t ahead, bool content_matters);
  // One came ahead of its turn. True: what is missing before it was not known to be.
  bool note_gap(uint32_t ahead) {
    const bool opens_gap = furthest_ == 0 || ahead > furthest_ + 1;
    furthest_ = std::max(furthest_, ahead);
    return opens_gap;
  }
  bool has(uint32_t psn) const {
    if (early_.empty()) return false;
    const Early& place = early_[psn & (early_.size() - 1)];
    return place.here && place.packet.psn == psn;
  }
  // The one whose turn it is, nullptr if it is not here; valid until the next `keep`.
  const wire::Packet* take(uint32_t expected_psn) {
    Early& next = early_[expected_psn & (early_.size() - 1)];
    if (!next.here || next.packet.psn != expected_psn) return nullptr;
    next.here = false;
    --count_;
    if (next.has_payload) next.packet.payload = next.payload.data();
    return &next.packet;
  }
  // So many sequence numbers were taken, up to `expected_psn`.
  void advance(uint32_t packets, uint32_t expected_psn) {
    furthest_ -= std::min(furthest_, packets);
    if (packets > 1 && count_ > 0) drop_before(expected_psn);
  }
  // Bit i: expected_psn + 1 + i is here.
  void put_bitmap(uint32_t expected_psn, std::span<uint8_t, wire::kSelectiveBitmapBytes> bitmap) const;

 private:
  struct Early {
    bool here = false;
    bool has_payload = false;
    wire::Packet packet;
    std::vector<uint8_t> payload;  // kept only where content matters
  };

  void drop_before(uint32_t expected_psn);

  uint32_t count_ = 0;
  uint32_t furthest_ = 0;  // sequence numbers beyond the expected one that have been seen
  std::vector<Early> early_;  // ring by sequence number, grown to how far packets really overtake
  uint32_t patience_;
  bool accepts_;
};

}  // namespace etloop
