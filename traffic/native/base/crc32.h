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

// Return the state after `bytes`, by the fastest method of this processor.
uint32_t update(uint32_t state, std::span<const uint8_t> bytes);

// Same for bytes in two places: generated headers, and the rest of a frame.
inline constexpr size_t kFirstBytes = 64;
using FirstBytes = std::span<const uint8_t, kFirstBytes>;
uint32_t update(uint32_t state, FirstBytes first, std::span<const uint8_t> rest);

// Methods: tables, or carry-less multiplication of 1, 2 or 4 times 128 bits at once (PCLMULQDQ; VPCLMULQDQ with AVX2; VPCLMULQDQ
// with AVX-512F).
enum class Way : uint8_t { table, clmul_128, clmul_256, clmul_512 };
inline constexpr std::array kWays = {Way::table, Way::clmul_128, Way::clmul_256, Way::clmul_512};
// Whether processor and kernel support a method.
bool is_here(Way way);
Way fastest();
// Set the method of `update`, initially the fastest one, for measurements in a process where no engine runs. It must be
// supported.
void choose(Way way);
// `update` by a given method, which must be supported; all methods agree.
uint32_t update_by(Way way, uint32_t state, std::span<const uint8_t> bytes);
uint32_t update_by(Way way, uint32_t state, FirstBytes first, std::span<const uint8_t> rest);

// Return the state after `count` zero bytes. Any count; multiples of path MTUs cost four table look-ups.
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
