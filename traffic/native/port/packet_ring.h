// Memory that the kernel shares with a packet socket and puts arriving frames into (TPACKET_V2, Linux
// Documentation/networking/packet_mmap.rst): what has come is read without a system call. Frames lie in slots of equal
// size; one that is longer, such as several datagrams joined by the kernel, is read from the socket as without a ring.
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
    std::span<const uint8_t> bytes;  // the offload header before it; empty: the frame waits at the socket
    std::optional<ethernet::Tag> tag;
    Stamps stamps;
  };

  PacketRing() = default;
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing();

  // About `bytes` of memory, which the kernel holds; `offload_bytes` stand before each frame. `card_stamps`: of the card's
  // clock, where it stamps. After the socket's options, before others share its frames.
  Result<void> open(int fd, int64_t bytes, size_t offload_bytes, bool card_stamps);
  bool is_open() const { return memory_ != nullptr; }
  int64_t bytes() const { return static_cast<int64_t>(mapped_bytes_); }  // mapped
  // The next frame; it stays until `give_back`. None: nothing has come.
  std::optional<Frame> next();
  void give_back();
  // Frames that were cut because the socket had no room for the whole.
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
