// A heap of small events by time, in insertion order at equal times.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

// Compare time and order as one number, branch-free: which event is first cannot be predicted.
template <typename Event>
inline bool is_before(const Event& a, const Event& b) {
  const auto key = [](const Event& event) { return static_cast<__int128>(event.at_ns) << 64 | event.order; };
  return key(a) < key(b);
}

// `Event` has `at_ns` and `order`; the heap sets the order.
template <typename Event>
class TimeHeap {
 public:
  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }
  // Requires a non-empty heap.
  const Event& front() const { return events_.front(); }
  Nanos next_ns() const { return events_.empty() ? kNever : events_.front().at_ns; }

  void push(Event event) {
    event.order = order_++;
    put(event);
  }

  // Insert with the event's own order, which must be unique.
  void put(const Event& event) {
    size_t at = events_.size();
    events_.push_back(event);
    while (at > 0) {
      const size_t above = (at - 1) / kWays;
      if (!before(event, events_[above])) break;
      events_[at] = events_[above];
      at = above;
    }
    events_[at] = event;
  }

  Event pop() {
    assert(!empty());
    const Event first = events_.front();
    const Event last = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(last);
    return first;
  }

 private:
  static constexpr size_t kWays = 4;  // shallower than a binary heap; the children share one or two cache lines

  static bool before(const Event& a, const Event& b) { return is_before(a, b); }

  size_t least_of(size_t first, size_t end) const {
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (before(events_[child], events_[least])) least = child;
    }
    return least;
  }

  // Branch-free selection: which child is first cannot be predicted.
  size_t least_of_four(size_t first) const {
    static_assert(kWays == 4);
    const Event* child = events_.data() + first;
    const size_t left = first_of(child[0], child[1]);
    const size_t right = 2 + first_of(child[2], child[3]);
    return first + (first_of(child[left], child[right]) == 0 ? left : right);
  }

  static size_t first_of(const Event& a, const Event& b) { return before(b, a) ? 1 : 0; }

  // Put `event` at the root, and sift it down.
  void sink(const Event& event) {
    size_t at = 0;
    while (true) {
      const size_t first = at * kWays + 1;
      if (first >= events_.size()) break;
      const size_t end = first + kWays < events_.size() ? first + kWays : events_.size();
      const size_t least = end - first == kWays ? least_of_four(first) : least_of(first, end);
      if (!before(events_[least], event)) break;
      events_[at] = events_[least];
      at = least;
    }
    events_[at] = event;
  }

  std::vector<Event> events_;
  uint64_t order_ = 0;
};

}  // namespace etloop
