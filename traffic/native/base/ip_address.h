// An IPv4 or IPv6 address as one value of 16 bytes. IPv4 is kept as IPv6 maps it, ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace etloop {

struct IpAddress {
  std::array<uint8_t, 16> bytes{};  // network order

  static constexpr IpAddress v4(uint32_t host_order) {
    IpAddress address;
    address.bytes[10] = address.bytes[11] = 0xFF;
    for (unsigned i = 0; i < 4; ++i) address.bytes[12 + i] = static_cast<uint8_t>(host_order >> (24 - 8 * i));
    return address;
  }
  // Parse "10.0.0.1" or "fd00::1"; no zone, no mapped IPv4 in IPv6 notation. Any other text: nullopt.
  static std::optional<IpAddress> parse(const std::string& text);

  constexpr bool is_v4() const {
    for (size_t i = 0; i < 10; ++i) {
      if (bytes[i] != 0) return false;
    }
    return bytes[10] == 0xFF && bytes[11] == 0xFF;
  }
  // Return the 32 bits of an IPv4 address.
  constexpr uint32_t v4() const {
    return (uint32_t{bytes[12]} << 24) | (uint32_t{bytes[13]} << 16) | (uint32_t{bytes[14]} << 8) | bytes[15];
  }
  // Return the canonical text.
  std::string text() const;

  constexpr auto operator<=>(const IpAddress&) const = default;
};
static_assert(sizeof(IpAddress) == 16);

struct IpAddressHash {
  size_t operator()(const IpAddress& address) const {
    uint64_t halves[2];
    std::memcpy(halves, address.bytes.data(), sizeof halves);
    return static_cast<size_t>((halves[0] ^ halves[1]) * 0x9E3779B97F4A7C15 >> 7);
  }
};

}  // namespace etloop
