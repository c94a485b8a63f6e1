// One AF_XDP socket: its memory of 4 KiB chunks and the four rings shared with the kernel. A frame may take several chunks
// (multi-buffer, Linux 6.6).
#pragma once

#include <linux/if_xdp.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/udp_socket.h"

namespace etloop {

inline constexpr uint32_t kChunkBytes = 4096;

struct XdpSettings {
  int interface_index = 0;
  std::string interface;
  uint32_t queue = 0;
  uint32_t rx_chunks = 8192;  // powers of two
  uint32_t tx_chunks = 4096;
  uint32_t busy_poll_us = 0;
};

class XdpSocket {
 public:
  XdpSocket() = default;
  XdpSocket(const XdpSocket&) = delete;
  XdpSocket& operator=(const XdpSocket&) = delete;
  ~XdpSocket();

  Result<void> open(const XdpSettings& settings);
  int fd() const { return socket_.get(); }
  bool zero_copy() const { return zero_copy_; }
  // Whether the kernel accepted `busy_poll_us`.
  bool busy_polls() const { return busy_polls_; }
  // Let the calling thread drive the device; only with busy_polls().
  void drive();

  // Queue a frame of two pieces. False: no room now.
  bool put(std::span<const uint8_t> head, std::span<const uint8_t> tail);
  // Whether `frames` frames of at most `bytes` each have room, after reclaiming sent chunks.
  bool has_room(size_t frames, size_t bytes);
  // Make the kernel send the queued frames. Returns zero, or an error other than lack of room.
  int kick();
  bool idle();  // no frame queued

  // Pass received frames, at most `budget`, to `take` as one piece each; returns their number.
  template <typename Take>
  size_t receive(size_t budget, Take take);
  // Frames dropped by the kernel for lack of chunks or ring entries.
  int64_t dropped() const;

 private:
  // This end of one ring. `Entry` is a descriptor or a chunk's address.
  template <typename Entry>
  struct Ring {
    std::atomic<uint32_t>* producer = nullptr;
    std::atomic<uint32_t>* consumer = nullptr;
    std::atomic<uint32_t>* flags = nullptr;
    Entry* entries = nullptr;
    uint32_t size = 0;
    uint32_t at = 0;  // own counter
    void* mapped = nullptr;
    size_t mapped_bytes = 0;

    uint32_t filled() const { return producer->load(std::memory_order_acquire) - at; }  // for a consumed ring
    uint32_t room() const { return size - (at - consumer->load(std::memory_order_acquire)); }  // for a produced ring
    Entry& next() { return entries[at++ & (size - 1)]; }
    bool wants_wakeup() const { return (flags->load(std::memory_order_relaxed) & XDP_RING_NEED_WAKEUP) != 0; }
  };
  template <typename Entry>
  Result<void> map_ring(Ring<Entry>& ring, const xdp_ring_offset& offset, uint32_t size, uint64_t page);
  void take_back();
  void give_back(uint64_t address);

  Descriptor socket_;
  uint8_t* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  bool zero_copy_ = false;
  bool busy_polls_ = false;
  Ring<xdp_desc> rx_;
  Ring<xdp_desc> tx_;
  Ring<uint64_t> fill_;
  Ring<uint64_t> completed_;
  std::vector<uint64_t> free_;    // free transmit chunks
  std::vector<uint8_t> joined_;   // a partly received frame of several chunks
};

template <typename Take>
size_t XdpSocket::receive(size_t budget, Take take) {
  constexpr uint32_t kContinued = 1;  // XDP_PKT_CONTD
  size_t frames = 0;
  for (uint32_t left = rx_.filled(); left > 0 && frames < budget; --left) {
    const xdp_desc chunk = rx_.next();
    const std::span<const uint8_t> bytes(memory_ + chunk.addr, chunk.len);
    if ((chunk.options & kContinued) != 0 || !joined_.empty()) {
      joined_.insert(joined_.end(), bytes.begin(), bytes.end());
      if ((chunk.options & kContinued) == 0) {
        take(std::span<const uint8_t>(joined_));
        joined_.clear();
        ++frames;
      }
    } else {
      take(bytes);
      ++frames;
    }
    give_back(chunk.addr);
  }
  rx_.consumer->store(rx_.at, std::memory_order_release);
  fill_.producer->store(fill_.at, std::memory_order_release);
  return frames;
}

}  // namespace etloop
