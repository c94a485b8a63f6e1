// Headers as bit fields. A header declares its layout once, in `lay_out(bits, header)`: each field in wire order, from the most
// significant bit of the first byte, with its width, its name in the specification and its meaning. Encoder, decoder, Python's
// view and the Wireshark dissectors follow from it. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace etloop::wire {

// Name and meaning are literals that only visitors outside of the packet path read. A field that several headers share states its
// meaning in one of them.
class BitCounter {
 public:
  template <typename Value>
  constexpr void field(unsigned width, Value&, const char* /*name*/, const char* /*meaning*/ = nullptr) {
    fits_ = fits_ && width > 0 && bits_ % 8 + width <= 64;
    bits_ += width;
  }
  constexpr void reserved(unsigned width) { bits_ += width; }
  constexpr size_t bits() const { return bits_; }
  // Whether each field lies within eight bytes, as reading and writing require.
  constexpr bool fits() const { return fits_; }

 private:
  size_t bits_ = 0;
  bool fits_ = true;
};

// Writes fields in network byte order; reserved bits are zero.
class BitWriter {
 public:
  explicit BitWriter(std::span<uint8_t> out) : out_(out) { std::fill(out.begin(), out.end(), uint8_t{0}); }

  template <typename Value>
  void field(unsigned width, const Value& value, const char* /*name*/, const char* /*meaning*/ = nullptr) {
    put(width, static_cast<uint64_t>(value));
  }
  void reserved(unsigned width) { bit_ += width; }

 private:
  void put(unsigned width, uint64_t value) {
    const unsigned end = bit_ + width;
    const unsigned first = bit_ / 8;
    const unsigned last = (end - 1) / 8;
    uint64_t part = (value & (~uint64_t{0} >> (64 - width))) << (8 * (last + 1) - end);
    for (unsigned i = last + 1; i-- > first; part >>= 8) out_[i] = static_cast<uint8_t>(out_[i] | (part & 0xFF));
    bit_ = end;
  }

  std::span<uint8_t> out_;
  unsigned bit_ = 0;
};

// Reads fields in network byte order; reserved bits are ignored.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename Value>
  void field(unsigned width, Value& value, const char* /*name*/, const char* /*meaning*/ = nullptr) {
    value = static_cast<Value>(get(width));
  }
  void reserved(unsigned width) { bit_ += width; }

 private:
  uint64_t get(unsigned width) {
    const unsigned end = bit_ + width;
    const unsigned first = bit_ / 8;
    const unsigned last = (end - 1) / 8;
    uint64_t value = 0;
    for (unsigned i = first; i <= last; ++i) value = value << 8 | bytes_[i];
    bit_ = end;
    return (value >> (8 * (last + 1) - end)) & (~uint64_t{0} >> (64 - width));
  }

  std::span<const uint8_t> bytes_;
  unsigned bit_ = 0;
};

// Whether the fields and reserved bits of this header add up to its size.
template <typename Header>
consteval bool fills_its_bytes(Header header = {}) {
  BitCounter counter;
  Header::lay_out(counter, header);
  return counter.fits() && counter.bits() == 8 * Header::kBytes;
}

// Decodes consecutive headers. The caller checks that the bytes hold them.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  // Flattened so that the places of all fields are constants.
  template <typename Header>
  [[gnu::flatten]] Header take() {
    Header header{};
    BitReader reader{bytes_.template first<Header::kBytes>()};
    Header::lay_out(reader, header);
    bytes_ = bytes_.subspan(Header::kBytes);
    return header;
  }
  const uint8_t* rest() const { return bytes_.data(); }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
};

// Encodes consecutive headers. The caller provides room for them.
class HeaderWriter {
 public:
  explicit HeaderWriter(std::span<uint8_t> out) : out_(out) {}
  template <typename Header>
  [[gnu::flatten]] void put(const Header& header) {
    BitWriter writer{out_.subspan(used_).template first<Header::kBytes>()};
    Header::lay_out(writer, header);
    used_ += Header::kBytes;
  }
  size_t used() const { return used_; }

 private:
  std::span<uint8_t> out_;
  size_t used_ = 0;
};

}  // namespace etloop::wire
