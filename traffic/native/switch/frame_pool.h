// Frame memory of the soft switch: slots of two sizes, in blocks that are allocated on demand up to a limit, and kept. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "switch/soft_frame.h"

namespace etloop {

struct StoredFrame {
  soft::OffloadHeader offload;
  uint16_t ip_at = 0;  // 0: not IP
  uint16_t bytes = 0;
};

class FramePool {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kSmallBytes = 256;

  FramePool(size_t frame_bytes, int64_t limit_bytes) : limit_bytes_(limit_bytes) {
    sizes_[0].slot_bytes = kSmallBytes;
    sizes_[1].slot_bytes = frame_bytes;
  }

  // Return a slot for a frame of `bytes`; kNone: out of memory.
  uint32_t take(size_t bytes) {
    const uint32_t size = bytes <= kSmallBytes ? 0 : 1;
    Size& slots = sizes_[size];
    if (slots.free.empty() && !grow(slots)) return kNone;
    const uint32_t index = slots.free.back();
    slots.free.pop_back();
    return (index << 1) | size;
  }
  void give(uint32_t handle) { sizes_[handle & 1].free.push_back(handle >> 1); }

  // Return the whole slot, whatever the frame length.
  std::span<uint8_t> room(uint32_t handle) {
    Size& slots = sizes_[handle & 1];
    const uint32_t index = handle >> 1;
    return {slots.blocks[index / kBlockSlots].get() + (index % kBlockSlots) * slots.slot_bytes, slots.slot_bytes};
  }
  StoredFrame& stored(uint32_t handle) { return sizes_[handle & 1].frames[handle >> 1]; }
  std::span<uint8_t> frame(uint32_t handle) { return room(handle).first(stored(handle).bytes); }

 private:
  static constexpr uint32_t kBlockSlots = 256;
  struct Size {
    size_t slot_bytes = 0;
    std::vector<std::unique_ptr<uint8_t[]>> blocks;
    std::vector<StoredFrame> frames;
    std::vector<uint32_t> free;
  };

  bool grow(Size& slots) {
    const auto block_bytes = static_cast<int64_t>(kBlockSlots * slots.slot_bytes);
    if (used_bytes_ + block_bytes > limit_bytes_) return false;
    used_bytes_ += block_bytes;
    const auto first = static_cast<uint32_t>(slots.frames.size());
    slots.blocks.push_back(std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(block_bytes)));
    slots.frames.resize(first + kBlockSlots);
    slots.free.reserve(slots.frames.size());
    for (uint32_t i = kBlockSlots; i > 0; --i) slots.free.push_back(first + i - 1);
    return true;
  }

  Size sizes_[2];
  int64_t limit_bytes_;
  int64_t used_bytes_ = 0;
};

}  // namespace etloop
