// Packet sequence numbers of 32 bits, as they are on the wire, and of 24, as the multipath layer counts them: the lower bits are
// the same, and the rest follows from a number nearby that is known.
#pragma once

#include <cstdint>

#include "wire/wire.h"

namespace etloop::uet {

class WidePsn {
 public:
  explicit WidePsn(uint32_t wide) : wide_(wide) {}

  uint32_t widen(uint32_t psn) const { return wide_ + static_cast<uint32_t>(wire::psn_distance(psn, narrow(wide_))); }
  // False: it is nowhere near.
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
