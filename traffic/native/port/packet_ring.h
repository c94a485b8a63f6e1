// The receive ring that the kernel shares with a packet socket (TPACKET_V2, Linux Documentation/networking/packet_mmap.rst):
// arrivals are read without a system call. Frames are in slots of equal size; a longer one, such as joined datagrams, is read
// from the socket as without a ring.
#pragma once

#include <linux/if_packet.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "port/arrival_stamps.h"
#include "wire/ethernet.h"

namespace etloop {

class PacketRing {
 public:
  struct Frame {
    std::span<const uint8_t> bytes;  // with the offload header; empty: the frame is at the socket
    std::optional<ethernet::Tag> tag;
    Stamps stamps;
  };

  PacketRing() = default;
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing();

  // Map about `bytes` of kernel memory; `offload_bytes` precede each frame. `card_stamps`: use the NIC's timestamps, if any. Call
  // after setting the socket's options, before joining a fanout group.
  Result<void> open(int fd, int64_t bytes, size_t offload_bytes, bool card_stamps);
  bool is_open() const { return memory_ != nullptr; }
  int64_t bytes() const { return static_cast<int64_t>(mapped_bytes_); }  // mapped
  // Return the next frame, valid until `give_back`; nullopt: none.
  std::optional<Frame> next();
  void give_back();
  // Frames truncated because the socket had no room for all of it.
  int64_t cut() const { return cut_; }

 private:
  tpacket2_hdr& slot() const;

  uint8_t* memory_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t slots_ = 0;
  size_t at_ = 0;
  size_t offload_bytes_ = 0;
  int64_t cut_ = 0;
};

}  // namespace etloop
