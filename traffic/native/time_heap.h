// What is due first: a heap of small events by time, those of one time in the order in which they came.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "port.h"

namespace etloop {

// `Event` has `at_ns` and `order`; the heap sets the order.
template <typename Event>
class TimeHeap {
 public:
  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }
  // Requires one.
  const Event& front() const { return events_.front(); }
  Nanos next_ns() const { return events_.empty() ? kNever : events_.front().at_ns; }

  void push(Event event) {
    event.order = order_++;
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
  static constexpr size_t kWays = 4;  // shallower than two, and the children share a cache line or two

  static bool before(const Event& a, const Event& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.order < b.order;
  }

  // Puts `event` where the first one was, and down to its place.
  void sink(const Event& event) {
    size_t at = 0;
    while (true) {
      const size_t first = at * kWays + 1;
      if (first >= events_.size()) break;
      const size_t end = first + kWays < events_.size() ? first + kWays : events_.size();
      size_t least = first;
      for (size_t child = first + 1; child < end; ++child) {
        if (before(events_[child], events_[least])) least = child;
      }
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
