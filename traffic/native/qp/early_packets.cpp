#include "qp/early_packets.h"

#include <bit>
#include <utility>

#include "qp/work.h"

namespace etloop {

namespace {

constexpr size_t kFirstEarly = 16;

}  // namespace

EarlyPackets::Kept EarlyPackets::keep(const wire::Packet& packet, uint32_t ahead, bool content_matters) {
  if (!accepts_ || wire::shape(packet.opcode).role != wire::Role::write || ahead > kReorderWindow) return Kept::no;
  if (ahead >= early_.size()) {
    std::vector<Early> larger(std::max(kFirstEarly, std::bit_ceil(size_t{ahead} + 1)));
    for (Early& held : early_) {
      if (held.here) larger[held.packet.psn & (larger.size() - 1)] = std::move(held);
    }
    early_ = std::move(larger);
  }
  Early& place = early_[packet.psn & (early_.size() - 1)];
  if (place.here) return Kept::again;
  place.here = true;
  place.packet = packet;
  // Copy the payload: the receive buffer is reused before the packet's turn. Bulk data that is never read is not copied.
  place.has_payload = packet.payload != nullptr && content_matters;
  if (place.has_payload) place.payload.assign(packet.payload, packet.payload + packet.payload_bytes);
  place.packet.payload = nullptr;
  ++count_;
  return Kept::new_one;
}

// A READ takes several PSNs; no write can have one of them.
void EarlyPackets::drop_before(uint32_t expected_psn) {
  for (Early& held : early_) {
    if (!held.here || wire::psn_distance(held.packet.psn, expected_psn) >= 0) continue;
    held.here = false;
    --count_;
  }
}

void EarlyPackets::put_bitmap(uint32_t expected_psn, std::span<uint8_t, wire::kSelectiveBitmapBytes> bitmap) const {
  std::fill(bitmap.begin(), bitmap.end(), uint8_t{0});
  const uint32_t seen = std::min<uint32_t>(furthest_, wire::kSelectiveBitmapBytes * 8);
  for (uint32_t i = 0; i < seen; ++i) {
    const uint32_t psn = (expected_psn + i + 1) & wire::kPsnMask;
    const Early& held = early_[psn & (early_.size() - 1)];
    if (held.here && held.packet.psn == psn) bitmap[i / 8] = static_cast<uint8_t>(bitmap[i / 8] | 1U << (i % 8));
  }
}

}  // namespace etloop
