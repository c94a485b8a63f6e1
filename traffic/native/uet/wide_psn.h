// Converts between the 32-bit PSNs of the wire and the 24-bit PSNs of the multipath layer: the lower bits are equal, and the
// upper ones follow from a known PSN nearby.
#pragma once

#include <cstdint>

#include "wire/wire.h"

namespace etloop::uet {

class WidePsn {
 public:
  explicit WidePsn(uint32_t wide) : wide_(wide) {}

  uint32_t widen(uint32_t psn) const { return wide_ + static_cast<uint32_t>(wire::psn_distance(psn, narrow(wide_))); }
  // False: not near the known PSN.
  bool is_near(uint32_t wide) const {
    const auto distance = static_cast<int32_t>(wide - wide_);
    return distance > -kNear && distance < kNear;
  }
  void move_to(uint32_t psn) { wide_ = widen(psn); }
  uint32_t wide() const { return wide_; }
  static constexpr uint32_t narrow(uint32_t wide) { return wide & wire::kPsnMask; }

 private:
  static constexpr int32_t kNear = 1 << 22;
  uint32_t wide_;
};

}  // namespace etloop::uet
