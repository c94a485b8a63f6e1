// A FIFO queue that keeps its memory: only growth allocates.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace etloop {

template <typename T>
class Ring {
 public:
  bool empty() const { return first_ == end_; }
  size_t size() const { return static_cast<uint32_t>(end_ - first_); }
  const T& front() const {
    assert(!empty());
    return slots_[first_ & mask_];
  }
  const T& back() const {
    assert(!empty());
    return slots_[(end_ - 1) & mask_];
  }
  const T& operator[](size_t index) const {
    assert(index < size());
    return slots_[(first_ + static_cast<uint32_t>(index)) & mask_];
  }
  void push_back(const T& value) {
    if (end_ - first_ == mask_ + 1) grow();
    slots_[end_++ & mask_] = value;
  }
  void pop_front() {
    assert(!empty());
    // Restart at slot 0 when empty: a short queue stays within the same cache lines.
    if (++first_ == end_) first_ = end_ = 0;
  }

 private:
  static constexpr uint32_t kFirstSlots = 4;

  void grow() {
    const uint32_t count = end_ - first_;
    const uint32_t slots = count == 0 ? kFirstSlots : 2 * count;
    auto larger = std::make_unique<T[]>(slots);
    for (uint32_t i = 0; i < count; ++i) larger[i] = (*this)[i];
    slots_ = std::move(larger);
    mask_ = slots - 1;
    first_ = 0;
    end_ = count;
  }

  std::unique_ptr<T[]> slots_;  // a power of two, or none
  uint32_t mask_ = UINT32_MAX;  // for no slots
  uint32_t first_ = 0;          // free-running, wraps around
  uint32_t end_ = 0;
};

}  // namespace etloop
