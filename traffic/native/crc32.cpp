#include "crc32.h"

#include <bit>
#include <cstring>

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

}  // namespace

uint32_t update(uint32_t state, std::span<const uint8_t> bytes) {
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
