// The control messages of one send on a UDP socket: traffic class, segmentation and departure time.
#pragma once

#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/time.h"
#include "port/udp_socket.h"

#ifndef SCM_TXTIME
#define SCM_TXTIME 61
#endif

namespace etloop {

class SendControl {
 public:
  void class_of(bool ipv4, int traffic_class) { add(ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, traffic_class); }
  // After the class, which also sets the priority; only if `packets_have_priorities`.
  void priority_of(int priority) { add(SOL_SOCKET, SO_PRIORITY, priority); }
  // 0: unsegmented, whatever the socket's setting.
  void segments_of(size_t bytes) { add(SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(bytes)); }
  void departs(Nanos at_ns) { add(SOL_SOCKET, SCM_TXTIME, static_cast<uint64_t>(at_ns)); }

  bool empty() const { return bytes_ == 0; }
  // `header` references this object from now on.
  void attach(msghdr& header) {
    header.msg_control = bytes_ == 0 ? nullptr : room_.data();
    header.msg_controllen = bytes_;
  }

 private:
  template <typename Value>
  void add(int level, int type, Value value) {
    assert(bytes_ + CMSG_SPACE(sizeof value) <= room_.size());
    cmsghdr head{};
    head.cmsg_level = level;
    head.cmsg_type = type;
    head.cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(room_.data() + bytes_, &head, sizeof head);
    std::memcpy(room_.data() + bytes_ + CMSG_LEN(0), &value, sizeof value);
    bytes_ += CMSG_SPACE(sizeof value);
  }

  alignas(cmsghdr) std::array<uint8_t, 2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(uint64_t))>
      room_{};
  size_t bytes_ = 0;
};

}  // namespace etloop
