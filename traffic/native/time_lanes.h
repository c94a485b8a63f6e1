// What is due first, where almost all events come from sources whose times only rise, as the frames of a line do: a queue for
// each source, and a tree of matches between those in front. The order is that of a TimeHeap: by time, and those of one time
// as they came. What does not rise goes through a heap beside the queues.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "earliest.h"
#include "port.h"
#include "prefetch.h"
#include "ring.h"
#include "time_heap.h"

namespace etloop {

// `Event` has `at_ns`, not below 0, and `order`, which is set here.
template <typename Event>
class TimeLanes {
 public:
  // Sources are numbered from 0. Behind the last of them, the heap is one more.
  explicit TimeLanes(size_t sources) : lanes_(sources), first_(sources + 1) {}

  bool empty() const { return first().empty(); }
  Nanos next_ns() const { return first().next_ns(); }
  // Requires one.
  const Event& front() const {
    assert(!empty());
    const size_t lane = first().next();
    return lane < lanes_.size() ? lanes_[lane].first : strays_.front();
  }
  // What comes first is soon asked for.
  void expect_pop() const {
    if (const size_t lane = first().next(); lane < lanes_.size()) prefetch(&lanes_[lane]);
  }

  void push(size_t source, Event event) {
    event.order = order_++;
    Lane& lane = lanes_[source];
    if (!lane.has_any) {
      lane.has_any = true;
      lane.first = event;
      lane.last_ns = event.at_ns;
      if (source == emptied_) {
        emptied_ = kNone;
        first_.set(source, event.at_ns, event.order);
      } else {
        first_.add(source, event.at_ns, event.order);
      }
    } else if (event.at_ns >= lane.last_ns) {
      lane.last_ns = event.at_ns;
      lane.others.push_back(event);
    } else {
      strays_.put(event);
      enter_stray();
    }
  }

  Event pop() {
    assert(!empty());
    const size_t first = this->first().next();
    if (first == lanes_.size()) return pop_stray();
    Lane& lane = lanes_[first];
    const Event event = lane.first;
    if (lane.others.empty()) {
      lane.has_any = false;
      emptied_ = first;
    } else {
      lane.first = lane.others.front();
      lane.others.pop_front();
      first_.set(first, lane.first.at_ns, lane.first.order);
    }
    return event;
  }

 private:
  // What is looked at is in one cache line; what waits behind the first is only written and moved up.
  struct alignas(64) Lane {
    Event first{};
    Nanos last_ns = 0;  // of all in it
    Ring<Event> others;
    bool has_any = false;
  };

  // The tree as it is once the lane that was emptied last has nothing in it.
  const Earliest& first() const {
    if (emptied_ != kNone) {
      first_.clear(emptied_);
      emptied_ = kNone;
    }
    return first_;
  }

  Event pop_stray() {
    const Event stray = strays_.pop();
    if (strays_.empty()) {
      first_.clear(lanes_.size());
    } else {
      enter_stray();
    }
    return stray;
  }
  void enter_stray() { first_.set(lanes_.size(), strays_.front().at_ns, strays_.front().order); }

  static constexpr size_t kNone = SIZE_MAX;

  std::vector<Lane> lanes_;
  TimeHeap<Event> strays_;
  mutable Earliest first_;
  // A lane that is still in front in the tree, though its only event is gone: what follows from an event is mostly the next of
  // its source, which takes its place there in one walk instead of two.
  mutable size_t emptied_ = kNone;
  uint64_t order_ = 0;
};

}  // namespace etloop
