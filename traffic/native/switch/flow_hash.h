// The hash of ECMP: a key over fields of a packet, combined with the switch's seed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ip_address.h"

namespace etloop {

// Fields that a hash may cover, as bits of a set. Numbers match `HashField` in contract/model/topology.py.
enum class HashField : uint8_t {
  src_ip,
  dst_ip,
  protocol,
  src_port,
  dst_port,
  dest_qp,     // of the BTH: RoCEv2 on UDP port 4791 (SAI_NATIVE_HASH_FIELD_RDMA_BTH_DEST_QP)
  in_port,     // ingress port
  flow_label,  // of IPv6
  inner_src_ip,  // of IP in IP, like those below
  inner_dst_ip,
  inner_protocol,
  inner_src_port,
  inner_dst_port,
};
using HashFields = uint16_t;
inline constexpr size_t kHashFields = 13;

constexpr HashFields bit_of(HashField field) { return static_cast<HashFields>(1U << static_cast<unsigned>(field)); }
inline constexpr HashFields kFiveTuple = bit_of(HashField::src_ip) | bit_of(HashField::dst_ip) | bit_of(HashField::protocol) |
                                         bit_of(HashField::src_port) | bit_of(HashField::dst_port);

struct FiveTuple {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint8_t protocol = 0;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
};

// The hashed fields of a packet except its ingress port; 0 where it has none.
struct HashedHeaders {
  FiveTuple outer;
  FiveTuple inner;
  uint32_t dest_qp = 0;
  uint32_t flow_label = 0;
};

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
constexpr uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Reduce a hash to an index; fast for the usual power of two, because division is slow.
size_t way_of(uint64_t value, size_t ways);

// Return the key of a five-tuple, the same everywhere; the seed makes the choice differ between switches.
uint64_t flow_key(const uint8_t (&src)[16], const uint8_t (&dst)[16], uint16_t src_port, uint16_t dst_port, uint8_t protocol);
uint64_t flow_key(const FiveTuple& flow);
// Return the key of any fields; `flow_key` of the outer headers for `kFiveTuple`. The switch adds `in_port`.
uint64_t hash_key(const HashedHeaders& headers, HashFields fields);

uint64_t seed_of_hash(uint64_t seed);
// Return which of `ways` equal routes a switch with that seed uses for a flow.
size_t ecmp_choice(uint64_t flow_key, uint64_t seed, size_t ways);

}  // namespace etloop
