// The 64-byte clear-to-send by which a receiver grants one message, as NCCL writes it (NVIDIA/nccl:src/transport/net_ib, struct
// ncclIbSendFifo, one request): destination and largest size of the message, and the number of the grant. The tag identifies the
// op of the connection. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace etloop {

struct ClearToSend {
  uint64_t va = 0;
  uint64_t bytes = 0;
  uint32_t rkey = 0;
  uint32_t tag = 0;
  uint64_t number = 0;  // counted from 1 over the grants of a connection
};

inline constexpr size_t kGrantWireBytes = 64;
// The number comes last: a reader that sees it in memory also sees the other fields.
inline constexpr size_t kGrantNumberOffset = 56;

inline void put_grant(const ClearToSend& grant, std::span<uint8_t, kGrantWireBytes> out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint32_t kRequests = 1;
  std::memset(out.data(), 0, out.size());
  std::memcpy(&out[0], &grant.va, 8);
  std::memcpy(&out[8], &grant.bytes, 8);
  std::memcpy(&out[16], &grant.rkey, 4);
  std::memcpy(&out[48], &kRequests, 4);
  std::memcpy(&out[52], &grant.tag, 4);
  std::memcpy(&out[kGrantNumberOffset], &grant.number, 8);
}

inline ClearToSend read_grant(std::span<const uint8_t, kGrantWireBytes> in) {
  ClearToSend grant;
  std::memcpy(&grant.va, &in[0], 8);
  std::memcpy(&grant.bytes, &in[8], 8);
  std::memcpy(&grant.rkey, &in[16], 4);
  std::memcpy(&grant.tag, &in[52], 4);
  std::memcpy(&grant.number, &in[kGrantNumberOffset], 8);
  return grant;
}

}  // namespace etloop
