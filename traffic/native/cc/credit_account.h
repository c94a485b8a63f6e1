// A sender's credit from its receiver (UET's receiver-credit congestion control, RCCC). Bytes count all that a packet occupies on
// its link; totals are in units of 256 bytes since the beginning, modulo 2^24, as in headers. Pure. Rules: uet-htsim,
// htsim/sim/uec.cpp, as interpreted in docs/uet.md.
#pragma once

#include <algorithm>
#include <cstdint>

namespace etloop {

inline constexpr uint32_t kCreditUnitBytes = 256;
inline constexpr uint32_t kCreditMask = 0xFFFFFF;

// By how much `total` is ahead of `before`; 0 or less if it is not.
constexpr int32_t credit_since(uint32_t total, uint32_t before) {
  return static_cast<int32_t>((total - before) << 8) >> 8;
}

class CreditAccount {
 public:
  // Require credit from now on, starting with a window of it. The window also bounds the credit kept.
  void open(uint64_t window_bytes) {
    open_ = true;
    window_bytes_ = credit_bytes_ = static_cast<int64_t>(std::min<uint64_t>(window_bytes, INT32_MAX));
  }
  bool is_open() const { return open_; }
  // Any positive credit allows a packet.
  bool may_send() const { return !open_ || credit_bytes_ > 0; }
  // Whether a packet of `packet_bytes` uses up the credit.
  bool ends_with(uint32_t packet_bytes) const { return open_ && credit_bytes_ <= int64_t{packet_bytes}; }
  void spend(uint32_t packet_bytes) {
    if (open_) credit_bytes_ -= packet_bytes;
  }
  // Note the total granted so far. False: known already.
  bool granted(uint32_t total) {
    const int32_t more = credit_since(total, total_);
    if (!open_ || more <= 0) return false;
    total_ = total & kCreditMask;
    credit_bytes_ = std::min(credit_bytes_ + int64_t{more} * kCreditUnitBytes, window_bytes_);
    return true;
  }
  // The total needed to send `waiting_bytes` once `leaving_bytes` have left, at most a window ahead.
  uint32_t target(uint64_t waiting_bytes, uint32_t leaving_bytes) const {
    const int64_t left = credit_bytes_ - int64_t{leaving_bytes};
    const int64_t wanted = std::min(static_cast<int64_t>(waiting_bytes), window_bytes_) - left;
    const auto units = static_cast<uint32_t>((std::max<int64_t>(wanted, 0) + kCreditUnitBytes - 1) / kCreditUnitBytes);
    return (total_ + units) & kCreditMask;
  }

 private:
  bool open_ = false;
  int64_t window_bytes_ = 0;
  int64_t credit_bytes_ = 0;  // at most a packet below 0
  uint32_t total_ = 0;
};

}  // namespace etloop
