// What is due first, where almost all events come from sources whose times only rise, as the frames of a line do: a queue for
// each source, and a tree of matches between those in front. The order is that of a TimeHeap: by time, and those of one time
// as they came. What does not rise goes through a heap beside the queues.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "port.h"
#include "prefetch.h"
#include "ring.h"
#include "time_heap.h"

namespace etloop {

// `Event` has `at_ns`, not below 0, and `order`, which is set here.
template <typename Event>
class TimeLanes {
 public:
  // Sources are numbered from 0.
  explicit TimeLanes(size_t sources) : lanes_(sources) {
    assert(sources < kMostLanes);
    while (leaves_ < sources + 1) leaves_ *= 2;  // the heap plays behind the last source
    matches_.assign(2 * leaves_, kNothing);
  }

  bool empty() const { return matches_[1] == kNothing; }
  Nanos next_ns() const { return static_cast<Nanos>(matches_[1] >> 64); }
  // Requires one.
  const Event& front() const {
    assert(!empty());
    const size_t lane = first_lane();
    return lane < lanes_.size() ? lanes_[lane].first : strays_.front();
  }
  // What comes first is soon asked for.
  void expect_pop() const {
    if (const size_t lane = first_lane(); lane < lanes_.size()) prefetch(&lanes_[lane]);
  }

  void push(size_t source, Event event) {
    event.order = order_++;
    Lane& lane = lanes_[source];
    if (!lane.has_any) {
      lane.has_any = true;
      lane.first = event;
      lane.last_ns = event.at_ns;
      enter(source, event);
    } else if (event.at_ns >= lane.last_ns) {
      lane.last_ns = event.at_ns;
      lane.others.push_back(event);
    } else {
      strays_.put(event);
      enter(lanes_.size(), strays_.front());
    }
  }

  Event pop() {
    assert(!empty());
    const size_t first = first_lane();
    if (first == lanes_.size()) return pop_stray();
    Lane& lane = lanes_[first];
    const Event event = lane.first;
    if (lane.others.empty()) {
      lane.has_any = false;
      leave(first);
    } else {
      lane.first = lane.others.front();
      lane.others.pop_front();
      enter(first, lane.first);
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

  // Time, order and lane in one number: the earlier is the less, and the winner is known by it.
  using Key = unsigned __int128;
  static constexpr unsigned kLaneBits = 20;  // leaves 44 bits of order: months of events
  static constexpr size_t kMostLanes = size_t{1} << kLaneBits;
  static constexpr Key kNothing = Key{static_cast<uint64_t>(kNever)} << 64 | UINT64_MAX;

  size_t first_lane() const { return static_cast<uint64_t>(matches_[1]) & (kMostLanes - 1); }
  Event pop_stray() {
    const Event stray = strays_.pop();
    if (strays_.empty()) {
      leave(lanes_.size());
    } else {
      enter(lanes_.size(), strays_.front());
    }
    return stray;
  }
  void enter(size_t lane, const Event& event) {
    play(lane, Key{static_cast<uint64_t>(event.at_ns)} << 64 | event.order << kLaneBits | lane);
  }
  void leave(size_t lane) { play(lane, kNothing); }

  void play(size_t lane, Key key) {
    size_t at = leaves_ + lane;
    matches_[at] = key;
    while (at > 1) {
      const Key other = matches_[at ^ 1];
      if (other < key) key = other;
      at /= 2;
      if (matches_[at] == key) return;
      matches_[at] = key;
    }
  }

  std::vector<Lane> lanes_;
  TimeHeap<Event> strays_;
  size_t leaves_ = 1;
  std::vector<Key> matches_;  // a parent has the earlier of its two children's
  uint64_t order_ = 0;
};

}  // namespace etloop
