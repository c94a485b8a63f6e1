#include "base/ip_address.h"

#include <arpa/inet.h>

#include <algorithm>

namespace etloop {

std::optional<IpAddress> IpAddress::parse(const std::string& text) {
  std::array<uint8_t, 4> four{};
  if (inet_pton(AF_INET, text.c_str(), four.data()) == 1) {
    IpAddress address = v4(0);
    std::copy(four.begin(), four.end(), address.bytes.begin() + 12);
    return address;
  }
  IpAddress address;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) != 1 || address.is_v4()) return std::nullopt;
  return address;
}

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  const bool four = is_v4();
  return inet_ntop(four ? AF_INET : AF_INET6, four ? bytes.data() + 12 : bytes.data(), out.data(), out.size());
}

}  // namespace etloop
