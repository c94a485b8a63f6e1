#include "switch/flow_hash.h"

#include <bit>
#include <cstring>

namespace etloop {

namespace {

constexpr uint64_t kFirstKey = 0x9E3779B97F4A7C15;

uint64_t with_address(uint64_t key, const IpAddress& address) {
  uint64_t half = 0;
  for (size_t at = 0; at < address.bytes.size(); at += sizeof half) {
    std::memcpy(&half, address.bytes.data() + at, sizeof half);
    key = mixed(key + half + 1);
  }
  return key;
}

}  // namespace

size_t way_of(uint64_t value, size_t ways) {
  return static_cast<size_t>(std::has_single_bit(ways) ? value & (ways - 1) : value % ways);
}

uint64_t flow_key(const uint8_t (&src)[16], const uint8_t (&dst)[16], uint16_t src_port, uint16_t dst_port,
                  uint8_t protocol) {
  uint64_t key = kFirstKey;
  for (size_t i = 0; i < 16; ++i) key = mixed(key + (uint64_t{src[i]} << 8 | dst[i]) + 1);
  return mixed(key + (uint64_t{src_port} << 24 | uint64_t{dst_port} << 8 | protocol));
}

uint64_t flow_key(const FiveTuple& flow) {
  uint8_t src[16];
  uint8_t dst[16];
  std::memcpy(src, flow.src_ip.bytes.data(), sizeof src);
  std::memcpy(dst, flow.dst_ip.bytes.data(), sizeof dst);
  return flow_key(src, dst, flow.src_port, flow.dst_port, flow.protocol);
}

uint64_t hash_key(const HashedHeaders& headers, HashFields fields) {
  if (fields == kFiveTuple) return flow_key(headers.outer);
  uint64_t key = kFirstKey;
  for (unsigned number = 0; number < kHashFields; ++number) {
    if ((fields >> number & 1) == 0) continue;
    key = mixed(key + number + 1);  // distinguishes equal values of different fields
    switch (static_cast<HashField>(number)) {
      case HashField::src_ip: key = with_address(key, headers.outer.src_ip); break;
      case HashField::dst_ip: key = with_address(key, headers.outer.dst_ip); break;
      case HashField::protocol: key = mixed(key + headers.outer.protocol); break;
      case HashField::src_port: key = mixed(key + headers.outer.src_port); break;
      case HashField::dst_port: key = mixed(key + headers.outer.dst_port); break;
      case HashField::dest_qp: key = mixed(key + headers.dest_qp); break;
      case HashField::in_port: break;
      case HashField::flow_label: key = mixed(key + headers.flow_label); break;
      case HashField::inner_src_ip: key = with_address(key, headers.inner.src_ip); break;
      case HashField::inner_dst_ip: key = with_address(key, headers.inner.dst_ip); break;
      case HashField::inner_protocol: key = mixed(key + headers.inner.protocol); break;
      case HashField::inner_src_port: key = mixed(key + headers.inner.src_port); break;
      case HashField::inner_dst_port: key = mixed(key + headers.inner.dst_port); break;
    }
  }
  return key;
}

uint64_t seed_of_hash(uint64_t seed) { return mixed(seed + 0x9E3779B97F4A7C15); }

size_t ecmp_choice(uint64_t flow_key, uint64_t seed, size_t ways) {
  return way_of(mixed(flow_key + seed_of_hash(seed)), ways);
}

}  // namespace etloop
