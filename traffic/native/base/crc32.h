// CRC-32 (IEEE 802.3, reflected) as a running state, and the linear algebra that lets bytes already hashed be reused.
//
// A state is the shift register itself: it starts at kInitial and the CRC is its complement. Hashing is linear over
// GF(2): update(s, A ‖ B) == shift(update(s, A), |B|) ^ update(0, B). Which bytes belong to an ICRC is wire's business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace etloop::crc32 {

inline constexpr uint32_t kInitial = 0xFFFFFFFF;

// The state after `bytes`.
uint32_t update(uint32_t state, std::span<const uint8_t> bytes);

// The state after `count` zero bytes. Any count; lengths of whole path MTUs cost four table look-ups.
uint32_t shift(uint32_t state, size_t count);

// update(0, value repeated count times), for count at most kMaxRun, from a table of every length.
inline constexpr size_t kMaxRun = 4096;
class RepeatedByte {
 public:
  explicit RepeatedByte(uint8_t value);
  uint32_t run(size_t count) const { return states_[count]; }

 private:
  std::array<uint32_t, kMaxRun + 1> states_;
};

}  // namespace etloop::crc32
