// Micro segments of SRv6 (RFC 9800, NEXT-CSID with a block of 32 bits and identifiers of 16): the destination address of an
// outer IPv6 header carries up to six of them, and who is named by the first one shifts it out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ip_address.h"

namespace etloop::usid {

inline constexpr size_t kOuterHeaderBytes = 40;
inline constexpr size_t kMostUsids = 6;

// The front of an address: what a switch looks at.
struct Head {
  uint32_t block = 0;
  uint16_t usid = 0;  // 0: none is left

  bool operator==(const Head&) const = default;
};

Head head_of(const IpAddress& carrier);
// Takes the first one out: those behind it move up, and the last place becomes 0.
void shift(IpAddress& carrier);

// How packets to one host are led: at each tier one of several identifiers, by the packet's entropy value, and at last that by
// which the host knows that the outer header is to be taken off.
struct Route {
  IpAddress to = {};  // the host, inside
  uint32_t block = 0;
  std::vector<std::vector<uint16_t>> tiers;  // none empty
  uint16_t decapsulation = 0;
};

// The outer destination of a value, read as digits: of the first tier first. With tiers of powers of two these are fields of
// bits, the lowest ones of the first tier.
IpAddress carrier_of(const Route& route, uint16_t entropy);

// Whether the route fits one address and names nothing that is 0.
bool is_sound(const Route& route);

// Who takes outer headers off: packets with this front are for the host itself.
struct End {
  uint32_t block = 0;
  uint16_t decapsulation = 0;  // 0: nobody does

  bool is_for(const IpAddress& carrier) const {
    return decapsulation != 0 && head_of(carrier) == Head{block, decapsulation};
  }
};

}  // namespace etloop::usid
