// Memory that a peer may address, and receives posted for its messages.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace etloop {

// Memory with real contents, for READs, atomics, and writes whose content matters. All other accesses use a queue pair's pattern
// key: writes to any address are discarded, reads return the pattern.
class MemoryRegion {
 public:
  static constexpr size_t kMostBytes = 64 << 20;

  MemoryRegion(uint64_t base, uint32_t rkey, size_t bytes) : base_(base), rkey_(rkey), bytes_(bytes) {}

  uint32_t rkey() const { return rkey_; }
  uint64_t base() const { return base_; }
  std::span<uint8_t> bytes() { return bytes_; }
  // Return the address in this process; nullptr: not completely inside the region.
  uint8_t* at(uint64_t va, uint64_t length) {
    if (va < base_ || length > bytes_.size() || va - base_ > bytes_.size() - length) return nullptr;
    return bytes_.data() + (va - base_);
  }

 private:
  uint64_t base_;
  uint32_t rkey_;
  std::vector<uint8_t> bytes_;
};

struct Receive {
  uint64_t mark = 0;  // the owner's tag, returned with the message
  uint32_t bytes = UINT32_MAX;
  uint8_t* into = nullptr;
};

// Receives in posting order. Several queue pairs may share one (InfiniBand: shared receive queue).
class ReceiveQueue {
 public:
  void post(const Receive& receive) {
    if (count_ == ring_.size()) grow();
    ring_[(head_ + count_++) & (ring_.size() - 1)] = receive;
  }
  bool take(Receive& out) {
    if (count_ == 0) return false;
    out = ring_[head_ & (ring_.size() - 1)];
    ++head_;
    --count_;
    return true;
  }
  size_t size() const { return count_; }

 private:
  void grow() {
    std::vector<Receive> larger(ring_.empty() ? 4 : ring_.size() * 2);
    for (size_t i = 0; i < count_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    head_ = 0;
  }

  std::vector<Receive> ring_;  // power of two
  size_t head_ = 0;
  size_t count_ = 0;
};

}  // namespace etloop
