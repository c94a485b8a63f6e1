// Parses the kernel's control messages of received UDP datagrams, and provides the receive buffers.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <vector>

#include "port/arrival_stamps.h"
#include "port/udp_socket.h"

namespace etloop {

inline constexpr int kReceiveBatch = 4;          // more buffers would leave the cache before reuse
inline constexpr size_t kReceiveBytes = 65536;   // longest coalesced datagram

// Metadata from the control messages of a received datagram.
struct Arrival {
  size_t segment_bytes = 0;
  uint8_t traffic_class = 0;
  Stamps stamps;
};

inline Arrival read_control(msghdr& header, size_t datagram_bytes) {
  Arrival arrival{datagram_bytes, 0, {}};
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
      int gso_bytes = 0;
      std::memcpy(&gso_bytes, CMSG_DATA(control), sizeof gso_bytes);
      if (gso_bytes > 0) arrival.segment_bytes = static_cast<size_t>(gso_bytes);
    } else if (control->cmsg_level == SOL_IP && control->cmsg_type == IP_TOS) {
      arrival.traffic_class = *CMSG_DATA(control);
    } else if (control->cmsg_level == SOL_IPV6 && control->cmsg_type == IPV6_TCLASS) {
      int traffic_class = 0;
      std::memcpy(&traffic_class, CMSG_DATA(control), sizeof traffic_class);
      arrival.traffic_class = static_cast<uint8_t>(traffic_class);
    } else {
      read_stamps(*control, arrival.stamps);
    }
  }
  return arrival;
}

// Buffers of one recvmmsg call, reused so that they stay in the cache.
struct ReceiveBuffers {
  static constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(int)) + CMSG_SPACE(kStampBytes);

  ReceiveBuffers() : bytes(kReceiveBatch * kReceiveBytes) {
    for (size_t i = 0; i < kReceiveBatch; ++i) {
      vectors[i] = {bytes.data() + i * kReceiveBytes, kReceiveBytes};
      msghdr& header = messages[i].msg_hdr;
      header.msg_iov = &vectors[i];
      header.msg_iovlen = 1;
      header.msg_name = &sources[i].any;
      header.msg_control = controls[i].bytes;
    }
  }
  void reset() {  // recvmmsg modifies the lengths
    for (mmsghdr& message : messages) {
      message.msg_hdr.msg_namelen = sizeof(sockaddr_in6);
      message.msg_hdr.msg_controllen = kControlBytes;
    }
  }

  struct alignas(cmsghdr) Control {
    uint8_t bytes[kControlBytes];
  };
  std::vector<uint8_t> bytes;
  std::array<mmsghdr, kReceiveBatch> messages{};
  std::array<iovec, kReceiveBatch> vectors{};
  std::array<SocketAddress, kReceiveBatch> sources{};
  std::array<Control, kReceiveBatch> controls{};
};

}  // namespace etloop
