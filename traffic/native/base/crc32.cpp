#include "base/crc32.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace etloop::crc32 {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;  // reflected: bit 31 is x^0

using Table = std::array<uint32_t, 256>;

// Table t maps a byte to the state it leaves when t zero bytes follow it.
constexpr std::array<Table, 8> make_slices() {
  std::array<Table, 8> slices{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
    slices[0][byte] = state;
  }
  for (size_t t = 1; t < slices.size(); ++t) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = slices[t - 1][byte];
      slices[t][byte] = (before >> 8) ^ slices[0][before & 0xFF];
    }
  }
  return slices;
}
constexpr std::array<Table, 8> kSlices = make_slices();

constexpr uint32_t step(uint32_t state, uint8_t byte) {
  return (state >> 8) ^ kSlices[0][(state ^ byte) & 0xFF];
}

// The product of two polynomials modulo the CRC's.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & (0U - ((a >> bit) & 1));
    b = (b >> 1) ^ (kPolynomial & (0U - (b & 1)));
  }
  return product;
}

// x^(8 n) for every n up to kMaxRun: multiplying a state by it appends n zero bytes.
constexpr std::array<uint32_t, kMaxRun + 1> make_powers() {
  std::array<uint32_t, kMaxRun + 1> powers{};
  powers[0] = 0x80000000;
  for (size_t n = 1; n < powers.size(); ++n) powers[n] = step(powers[n - 1], 0);
  return powers;
}
constexpr std::array<uint32_t, kMaxRun + 1> kPowers = make_powers();

// The same product by a fixed power, one look-up a byte of the state.
using ShiftTable = std::array<Table, 4>;
constexpr ShiftTable make_shift(size_t count) {
  ShiftTable tables{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      const uint32_t image = multiply(uint32_t{1} << (8 * byte + bit), kPowers[count]);
      for (uint32_t value = 0; value < 256; ++value) {
        if (((value >> bit) & 1) != 0) tables[byte][value] ^= image;
      }
    }
  }
  return tables;
}
constexpr size_t kFirstPathMtu = 256;
constexpr std::array<ShiftTable, 5> kPathMtuShifts = {make_shift(256), make_shift(512), make_shift(1024),
                                                      make_shift(2048), make_shift(4096)};

uint32_t shift_path_mtu(uint32_t state, size_t path_mtu) {
  const ShiftTable& t = kPathMtuShifts[static_cast<size_t>(std::countr_zero(path_mtu / kFirstPathMtu))];
  return t[0][state & 0xFF] ^ t[1][(state >> 8) & 0xFF] ^ t[2][(state >> 16) & 0xFF] ^ t[3][state >> 24];
}

uint32_t update_by_table(uint32_t state, std::span<const uint8_t> bytes) {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  static_assert(std::endian::native == std::endian::little, "the eight-byte step loads little-endian words");
  for (; left >= 8; at += 8, left -= 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= state;
    state = kSlices[7][low & 0xFF] ^ kSlices[6][(low >> 8) & 0xFF] ^ kSlices[5][(low >> 16) & 0xFF] ^
            kSlices[4][low >> 24] ^ kSlices[3][high & 0xFF] ^ kSlices[2][(high >> 8) & 0xFF] ^
            kSlices[1][(high >> 16) & 0xFF] ^ kSlices[0][high >> 24];
  }
  for (; left > 0; ++at, --left) state = step(state, *at);
  return state;
}

#if defined(__x86_64__)

// Carry-less multiplication folds a message onto its own tail: 128 bits, multiplied by what moves them on by a distance, are
// added to those that stand there, and the remainder stays the same (V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009).
constexpr size_t kLaneBytes = 16;
constexpr size_t kLanes = 4;
constexpr size_t kLeastFolded = 2 * kLanes * kLaneBytes;

// Moves by `bytes`: the lower half of 128 bits has 64 more to go than the upper, and a product of reflected numbers
// stands one bit too low.
constexpr int64_t lower_half(size_t bytes) { return static_cast<int64_t>(uint64_t{kPowers[bytes + 4]} << 1); }
constexpr int64_t upper_half(size_t bytes) { return static_cast<int64_t>(uint64_t{kPowers[bytes - 4]} << 1); }
static_assert(lower_half(kLanes * kLaneBytes) == 0x154442BD4 && upper_half(kLanes * kLaneBytes) == 0x1C6E41596);

// Compiled for processors that have it, and called only where this one does.
#define ETLOOP_CLMUL __attribute__((target("pclmul,sse4.1")))

ETLOOP_CLMUL __m128i load(const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

ETLOOP_CLMUL __m128i fold(__m128i lane, __m128i distance, __m128i onto) {
  const __m128i lower = _mm_clmulepi64_si128(lane, distance, 0x00);
  const __m128i upper = _mm_clmulepi64_si128(lane, distance, 0x11);
  return _mm_xor_si128(_mm_xor_si128(lower, upper), onto);
}

ETLOOP_CLMUL uint32_t update_by_folding(uint32_t state, std::span<const uint8_t> bytes) {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = load(at + i * kLaneBytes);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  const __m128i far = _mm_set_epi64x(upper_half(kLanes * kLaneBytes), lower_half(kLanes * kLaneBytes));
  for (at += kLanes * kLaneBytes, left -= kLanes * kLaneBytes; left >= kLanes * kLaneBytes;
       at += kLanes * kLaneBytes, left -= kLanes * kLaneBytes) {
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = fold(lanes[i], far, load(at + i * kLaneBytes));
  }
  const __m128i near = _mm_set_epi64x(upper_half(kLaneBytes), lower_half(kLaneBytes));
  __m128i last = lanes[0];
  for (size_t i = 1; i < kLanes; ++i) last = fold(last, near, lanes[i]);
  for (; left >= kLaneBytes; at += kLaneBytes, left -= kLaneBytes) last = fold(last, near, load(at));
  std::array<uint8_t, kLaneBytes> rest;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), last);
  return update_by_table(update_by_table(0, rest), {at, left});
}

const bool kFolds = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;

#endif

}  // namespace

uint32_t update(uint32_t state, std::span<const uint8_t> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= kLeastFolded && kFolds) return update_by_folding(state, bytes);
#endif
  return update_by_table(state, bytes);
}

uint32_t shift(uint32_t state, size_t count) {
  for (; count > kMaxRun; count -= kMaxRun) state = shift_path_mtu(state, kMaxRun);
  if (count >= kFirstPathMtu && std::has_single_bit(count)) return shift_path_mtu(state, count);
  if (count < 4) {  // the pad of a payload
    for (; count > 0; --count) state = step(state, 0);
    return state;
  }
  return multiply(state, kPowers[count]);
}

RepeatedByte::RepeatedByte(uint8_t value) : states_{} {
  for (size_t n = 1; n < states_.size(); ++n) states_[n] = step(states_[n - 1], value);
}

}  // namespace etloop::crc32
