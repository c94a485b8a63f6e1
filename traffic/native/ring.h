// A queue that keeps its memory: elements come at the back and leave at the front, and only growth allocates.
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace etloop {

template <typename T>
class Ring {
 public:
  bool empty() const { return first_ == end_; }
  size_t size() const { return end_ - first_; }
  const T& front() const {
    assert(!empty());
    return slots_[first_ & mask()];
  }
  const T& operator[](size_t index) const {
    assert(index < size());
    return slots_[(first_ + index) & mask()];
  }
  void push_back(const T& value) {
    if (size() == slots_.size()) grow();
    slots_[end_++ & mask()] = value;
  }
  void pop_front() {
    assert(!empty());
    ++first_;
  }

 private:
  size_t mask() const { return slots_.size() - 1; }
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : 2 * slots_.size());
    const size_t count = size();
    for (size_t i = 0; i < count; ++i) larger[i] = (*this)[i];
    slots_ = std::move(larger);
    first_ = 0;
    end_ = count;
  }

  std::vector<T> slots_;  // a power of two of them, or none
  size_t first_ = 0;
  size_t end_ = 0;
};

}  // namespace etloop
