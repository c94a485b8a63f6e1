// Headers as fields of so many bits. A header's layout is written once, as a function `lay_out(bits, header)` that names its
// fields from the first byte's highest bit on; counting, writing and reading follow it. Pure.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace etloop::wire {

class BitCounter {
 public:
  template <typename Value>
  constexpr void field(unsigned width, Value&) { bits_ += width; }
  constexpr void reserved(unsigned width) { bits_ += width; }
  constexpr size_t bits() const { return bits_; }

 private:
  size_t bits_ = 0;
};

class BitWriter {
 public:
  explicit BitWriter(std::span<uint8_t> out) : out_(out) { std::fill(out.begin(), out.end(), uint8_t{0}); }

  template <typename Value>
  void field(unsigned width, const Value& value) {
    const uint64_t bits = static_cast<uint64_t>(value);
    for (unsigned left = width; left > 0;) {
      const unsigned room = 8 - at_ % 8;
      const unsigned taken = std::min(room, left);
      const uint64_t part = (bits >> (left - taken)) & ((1U << taken) - 1);
      out_[at_ / 8] = static_cast<uint8_t>(out_[at_ / 8] | (part << (room - taken)));
      at_ += taken;
      left -= taken;
    }
  }
  void reserved(unsigned width) { at_ += width; }

 private:
  std::span<uint8_t> out_;
  unsigned at_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename Value>
  void field(unsigned width, Value& value) {
    uint64_t bits = 0;
    for (unsigned left = width; left > 0;) {
      const unsigned room = 8 - at_ % 8;
      const unsigned taken = std::min(room, left);
      bits = (bits << taken) | ((bytes_[at_ / 8] >> (room - taken)) & ((1U << taken) - 1));
      at_ += taken;
      left -= taken;
    }
    value = static_cast<Value>(bits);
  }
  void reserved(unsigned width) { at_ += width; }

 private:
  std::span<const uint8_t> bytes_;
  unsigned at_ = 0;
};

template <typename Header, typename Value>
concept Of = std::same_as<std::remove_const_t<Header>, Value>;

// Whether the layouts of these headers name each of their bits once.
template <typename... Headers>
consteval bool fill_their_bytes(auto lay_out) {
  const auto fills = [&]<typename Header>(Header header) {
    BitCounter counter;
    lay_out(counter, header);
    return counter.bits() == 8 * Header::kBytes;
  };
  return (fills(Headers{}) && ...);
}

// Takes headers from the front of bytes, which are known to hold them.
template <auto LayOut>
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename Header>
  Header take() {
    Header header{};
    BitReader reader{bytes_.template first<Header::kBytes>()};
    LayOut(reader, header);
    bytes_ = bytes_.subspan(Header::kBytes);
    return header;
  }
  const uint8_t* rest() const { return bytes_.data(); }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
};

// Puts headers one behind the other into room that is known to hold them.
template <auto LayOut>
class HeaderWriter {
 public:
  explicit HeaderWriter(std::span<uint8_t> out) : out_(out) {}
  template <typename Header>
  void put(const Header& header) {
    BitWriter writer{out_.subspan(used_).template first<Header::kBytes>()};
    LayOut(writer, header);
    used_ += Header::kBytes;
  }
  size_t used() const { return used_; }

 private:
  std::span<uint8_t> out_;
  size_t used_ = 0;
};

}  // namespace etloop::wire
