// A contiguous array whose elements never move: memory for all is allocated before the first is made. Access is by index, without
// indirection.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>

namespace etloop {

template <typename T>
class FixedRow {
 public:
  explicit FixedRow(std::pmr::memory_resource& memory) : memory_(memory) {}
  FixedRow(const FixedRow&) = delete;
  FixedRow& operator=(const FixedRow&) = delete;
  ~FixedRow() {
    std::destroy_n(first_, size_);
    if (first_ != nullptr) memory_.deallocate(first_, room_ * sizeof(T), alignof(T));
  }

  // Call once, before the first element.
  void reserve(size_t elements) {
    assert(first_ == nullptr);
    if (elements == 0) return;
    first_ = static_cast<T*>(memory_.allocate(elements * sizeof(T), alignof(T)));
    room_ = elements;
  }
  // Requires size() below the reserved number.
  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    assert(size_ < room_);
    T* made = std::construct_at(first_ + size_, std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  size_t size() const { return size_; }
  T& operator[](size_t index) { return first_[index]; }
  const T& operator[](size_t index) const { return first_[index]; }
  T& back() { return first_[size_ - 1]; }
  T* begin() { return first_; }
  T* end() { return first_ + size_; }
  const T* begin() const { return first_; }
  const T* end() const { return first_ + size_; }

 private:
  std::pmr::memory_resource& memory_;
  T* first_ = nullptr;
  size_t size_ = 0;
  size_t room_ = 0;
};

}  // namespace etloop
