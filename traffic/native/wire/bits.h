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
  constexpr void field(unsigned width, Value&, const char* /*name*/, const char* /*meaning*/ = nullptr) { bits_ += width; }
  constexpr void reserved(unsigned width) { bits_ += width; }
  constexpr size_t bits() const { return bits_; }

 private:
  size_t bits_ = 0;
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
    for (unsigned left = width; left > 0;) {
      const unsigned free_bits = 8 - bit_ % 8;
      const unsigned count = std::min(free_bits, left);
      const uint64_t part = (value >> (left - count)) & ((1U << count) - 1);
      out_[bit_ / 8] = static_cast<uint8_t>(out_[bit_ / 8] | (part << (free_bits - count)));
      bit_ += count;
      left -= count;
    }
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
    uint64_t value = 0;
    for (unsigned left = width; left > 0;) {
      const unsigned unread_bits = 8 - bit_ % 8;
      const unsigned count = std::min(unread_bits, left);
      value = (value << count) | ((bytes_[bit_ / 8] >> (unread_bits - count)) & ((1U << count) - 1));
      bit_ += count;
      left -= count;
    }
    return value;
  }

  std::span<const uint8_t> bytes_;
  unsigned bit_ = 0;
};

// Whether the fields and reserved bits of this header add up to its size.
template <typename Header>
consteval bool fills_its_bytes(Header header = {}) {
  BitCounter counter;
  Header::lay_out(counter, header);
  return counter.bits() == 8 * Header::kBytes;
}

// Decodes consecutive headers. The caller checks that the bytes hold them.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename Header>
  Header take() {
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
  void put(const Header& header) {
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
