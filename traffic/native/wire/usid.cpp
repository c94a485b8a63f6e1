#include "wire/usid.h"

#include <algorithm>

namespace etloop::usid {

namespace {

constexpr size_t kFirstUsidAt = 4;

}  // namespace

Head head_of(const IpAddress& carrier) {
  const auto& b = carrier.bytes;
  return {uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3], static_cast<uint16_t>(b[4] << 8 | b[5])};
}

void shift(IpAddress& carrier) {
  auto& b = carrier.bytes;
  std::copy(b.begin() + kFirstUsidAt + 2, b.end(), b.begin() + kFirstUsidAt);
  b[b.size() - 2] = b[b.size() - 1] = 0;
}

IpAddress carrier_of(const Route& route, uint16_t entropy) {
  IpAddress carrier;
  auto& b = carrier.bytes;
  for (size_t i = 0; i < kFirstUsidAt; ++i) b[i] = static_cast<uint8_t>(route.block >> (24 - 8 * i));
  size_t at = kFirstUsidAt;
  uint32_t left = entropy;
  const auto put = [&](uint16_t usid) {
    b[at] = static_cast<uint8_t>(usid >> 8);
    b[at + 1] = static_cast<uint8_t>(usid);
    at += 2;
  };
  for (const std::vector<uint16_t>& tier : route.tiers) {
    const auto ways = static_cast<uint32_t>(tier.size());
    put(tier[left % ways]);
    left /= ways;
  }
  put(route.decapsulation);
  return carrier;
}

bool is_sound(const Route& route) {
  const auto names = [](const std::vector<uint16_t>& tier) {
    return !tier.empty() && std::none_of(tier.begin(), tier.end(), [](uint16_t usid) { return usid == 0; });
  };
  return route.decapsulation != 0 && route.tiers.size() < kMostUsids &&
         std::all_of(route.tiers.begin(), route.tiers.end(), names);
}

}  // namespace etloop::usid
