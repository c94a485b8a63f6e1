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

// Table t maps a byte to the state after it and t zero bytes.
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

// The same product by a fixed power: one table look-up per byte of the state.
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

// Carry-less multiplication folds a message onto its tail: 128 bits, multiplied by the power for a distance, are added to the
// bits there, and the remainder is unchanged (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel 2009). Wide registers hold two or four times 128 bits; four of them hide the latency of a multiplication.
constexpr size_t kLaneBytes = 16;
constexpr size_t kStreams = 4;

// Multipliers for a distance of `bytes`: the lower half of 128 bits is 64 bits further away than the upper, and a product of
// reflected numbers is one bit too low.
constexpr int64_t lower_half(size_t bytes) { return static_cast<int64_t>(uint64_t{kPowers[bytes + 4]} << 1); }
constexpr int64_t upper_half(size_t bytes) { return static_cast<int64_t>(uint64_t{kPowers[bytes - 4]} << 1); }
static_assert(lower_half(64) == 0x154442BD4 && upper_half(64) == 0x1C6E41596);

// Each is compiled for processors with the instruction, and called only on these.
#define ETLOOP_CLMUL __attribute__((target("pclmul,sse4.1")))
#define ETLOOP_CLMUL_256 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))
#define ETLOOP_CLMUL_512 __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

ETLOOP_CLMUL __m128i load(const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
ETLOOP_CLMUL_256 __m256i load_256(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
ETLOOP_CLMUL_512 __m512i load_512(const uint8_t* at) { return _mm512_loadu_si512(at); }

ETLOOP_CLMUL __m128i distance(size_t bytes) { return _mm_set_epi64x(upper_half(bytes), lower_half(bytes)); }

ETLOOP_CLMUL_256 __m256i distances_256(size_t bytes) {
  return _mm256_set_epi64x(upper_half(bytes), lower_half(bytes), upper_half(bytes), lower_half(bytes));
}
ETLOOP_CLMUL_512 __m512i distances_512(size_t bytes) {
  const int64_t upper = upper_half(bytes);
  const int64_t lower = lower_half(bytes);
  return _mm512_set_epi64(upper, lower, upper, lower, upper, lower, upper, lower);
}

ETLOOP_CLMUL __m128i fold(__m128i lane, __m128i by, __m128i onto) {
  const __m128i lower = _mm_clmulepi64_si128(lane, by, 0x00);
  const __m128i upper = _mm_clmulepi64_si128(lane, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(lower, upper), onto);
}
ETLOOP_CLMUL_256 __m256i fold_256(__m256i lanes, __m256i by, __m256i onto) {
  const __m256i lower = _mm256_clmulepi64_epi128(lanes, by, 0x00);
  const __m256i upper = _mm256_clmulepi64_epi128(lanes, by, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(lower, upper), onto);
}
ETLOOP_CLMUL_512 __m512i fold_512(__m512i lanes, __m512i by, __m512i onto) {
  const __m512i lower = _mm512_clmulepi64_epi128(lanes, by, 0x00);
  const __m512i upper = _mm512_clmulepi64_epi128(lanes, by, 0x11);
  return _mm512_ternarylogic_epi64(lower, upper, onto, 0x96);  // three-way exclusive or
}

// Reduce the 128 bits that represent all data before `at`, and the rest.
ETLOOP_CLMUL uint32_t finish(__m128i last, const uint8_t* at, size_t left) {
  const __m128i near = distance(kLaneBytes);
  for (; left >= kLaneBytes; at += kLaneBytes, left -= kLaneBytes) last = fold(last, near, load(at));
  std::array<uint8_t, kLaneBytes> rest;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), last);
  return update_by_table(update_by_table(0, rest), {at, left});
}

ETLOOP_CLMUL uint32_t update_by_128(uint32_t state, FirstBytes first, std::span<const uint8_t> rest) {
  constexpr size_t kStride = kStreams * kLaneBytes;
  static_assert(kStride == kFirstBytes);
  const uint8_t* at = rest.data();
  size_t left = rest.size();
  __m128i lanes[kStreams];
  for (size_t i = 0; i < kStreams; ++i) lanes[i] = load(first.data() + i * kLaneBytes);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  const __m128i far = distance(kStride);
  for (; left >= kStride; at += kStride, left -= kStride) {
    for (size_t i = 0; i < kStreams; ++i) lanes[i] = fold(lanes[i], far, load(at + i * kLaneBytes));
  }
  const __m128i near = distance(kLaneBytes);
  for (size_t i = 1; i < kStreams; ++i) lanes[i] = fold(lanes[i - 1], near, lanes[i]);
  return finish(lanes[kStreams - 1], at, left);
}

ETLOOP_CLMUL_256 uint32_t update_by_256(uint32_t state, FirstBytes first, std::span<const uint8_t> rest) {
  constexpr size_t kWidth = 2 * kLaneBytes;
  constexpr size_t kStride = kStreams * kWidth;
  static_assert(2 * kWidth == kFirstBytes);
  const uint8_t* at = rest.data();
  size_t left = rest.size();
  const __m256i start = _mm256_set_epi64x(0, 0, 0, static_cast<int64_t>(uint64_t{state}));
  __m256i lanes[kStreams] = {_mm256_xor_si256(load_256(first.data()), start), load_256(first.data() + kWidth)};
  const __m256i next = distances_256(kWidth);
  __m256i last = lanes[0];
  size_t filled = 2;
  if (left >= 2 * kWidth + kStride) {
    for (; filled < kStreams; ++filled, at += kWidth, left -= kWidth) lanes[filled] = load_256(at);
    const __m256i far = distances_256(kStride);
    for (; left >= kStride; at += kStride, left -= kStride) {
      for (size_t i = 0; i < kStreams; ++i) lanes[i] = fold_256(lanes[i], far, load_256(at + i * kWidth));
    }
    last = lanes[0];
  }
  for (size_t i = 1; i < filled; ++i) last = fold_256(last, next, lanes[i]);
  for (; left >= kWidth; at += kWidth, left -= kWidth) last = fold_256(last, next, load_256(at));
  const __m128i one = fold(_mm256_castsi256_si128(last), distance(kLaneBytes), _mm256_extracti128_si256(last, 1));
  return finish(one, at, left);
}

ETLOOP_CLMUL_512 uint32_t update_by_512(uint32_t state, FirstBytes first, std::span<const uint8_t> rest) {
  constexpr size_t kWidth = 4 * kLaneBytes;
  constexpr size_t kStride = kStreams * kWidth;
  static_assert(kWidth == kFirstBytes);
  const uint8_t* at = rest.data();
  size_t left = rest.size();
  const __m512i start = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, static_cast<int64_t>(uint64_t{state}));
  __m512i last = _mm512_xor_si512(load_512(first.data()), start);
  const __m512i next = distances_512(kWidth);
  if (left >= kStride - kWidth + kStride) {
    __m512i lanes[kStreams] = {last, load_512(at), load_512(at + kWidth), load_512(at + 2 * kWidth)};
    const __m512i far = distances_512(kStride);
    for (at += kStride - kWidth, left -= kStride - kWidth; left >= kStride; at += kStride, left -= kStride) {
      for (size_t i = 0; i < kStreams; ++i) lanes[i] = fold_512(lanes[i], far, load_512(at + i * kWidth));
    }
    last = lanes[0];
    for (size_t i = 1; i < kStreams; ++i) last = fold_512(last, next, lanes[i]);
  }
  for (; left >= kWidth; at += kWidth, left -= kWidth) last = fold_512(last, next, load_512(at));
  std::array<uint8_t, kWidth> four;
  _mm512_storeu_si512(four.data(), last);
  __m128i one = load(four.data());
  for (size_t i = 1; i < 4; ++i) one = fold(one, distance(kLaneBytes), load(four.data() + i * kLaneBytes));
  return finish(one, at, left);
}

bool has_128() { return __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0; }
bool has_256() { return has_128() && __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("avx2") != 0; }
bool has_512() { return has_256() && __builtin_cpu_supports("avx512f") != 0; }

#endif

// Shortest length for which folding pays off.
constexpr size_t kLeastFolded = 128;

Way fastest_way() {
  for (const Way way : {Way::clmul_512, Way::clmul_256, Way::clmul_128}) {
    if (is_here(way)) return way;
  }
  return Way::table;
}
const Way kFastest = fastest_way();
Way chosen = kFastest;

}  // namespace

bool is_here(Way way) {
  switch (way) {
    case Way::table: return true;
#if defined(__x86_64__)
    case Way::clmul_128: return has_128();
    case Way::clmul_256: return has_256();
    case Way::clmul_512: return has_512();
#else
    case Way::clmul_128:
    case Way::clmul_256:
    case Way::clmul_512: return false;
#endif
  }
  return false;
}

Way fastest() { return kFastest; }

void choose(Way way) { chosen = way; }

uint32_t update(uint32_t state, std::span<const uint8_t> bytes) {
  return update_by(chosen, state, bytes);
}

uint32_t update(uint32_t state, FirstBytes first, std::span<const uint8_t> rest) {
  return update_by(chosen, state, first, rest);
}

uint32_t update_by(Way way, uint32_t state, std::span<const uint8_t> bytes) {
  if (bytes.size() < kLeastFolded) return update_by_table(state, bytes);
  return update_by(way, state, bytes.first<kFirstBytes>(), bytes.subspan(kFirstBytes));
}

uint32_t update_by(Way way, uint32_t state, FirstBytes first, std::span<const uint8_t> rest) {
  switch (way) {
    case Way::table: break;
#if defined(__x86_64__)
    case Way::clmul_128: return update_by_128(state, first, rest);
    case Way::clmul_256: return update_by_256(state, first, rest);
    case Way::clmul_512: return update_by_512(state, first, rest);
#else
    case Way::clmul_128:
    case Way::clmul_256:
    case Way::clmul_512: break;
#endif
  }
  return update_by_table(update_by_table(state, first), rest);
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
