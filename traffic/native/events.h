// Things due at a time: a bounded-growth binary heap, ties broken by insertion so that runs repeat exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "port.h"

namespace etloop {

enum class EventKind : uint8_t {
  delay_over,     // a: rank index, b: op
  local_grant,    // a: connection, b: tag, c: message index
  local_arrival,  // a: connection, b: tag, c: message index; bytes
  local_sent,     // a: lane, b: message index
  qp_timer,       // a: queue pair
  flow_timer,     // a: queue pair that congestion control lets send again
  series_due,     // rates are to be written down
};

struct Event {
  Nanos due_ns;
  uint64_t order;
  int64_t bytes;
  EventKind kind;
  uint32_t a;
  uint32_t b;
  uint32_t c;
};

class EventHeap {
 public:
  void push(Nanos due_ns, EventKind kind, uint32_t a, uint32_t b = 0, uint32_t c = 0, int64_t bytes = 0) {
    heap_.push_back(Event{due_ns, next_order_++, bytes, kind, a, b, c});
    std::push_heap(heap_.begin(), heap_.end(), later);
    next_due_ns_ = heap_.front().due_ns;
  }
  Nanos next_due() const { return next_due_ns_; }
  bool pop_due(Nanos now, Event& out) {
    if (heap_.empty() || next_due_ns_ > now) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    out = heap_.back();
    heap_.pop_back();
    next_due_ns_ = heap_.empty() ? kNever : heap_.front().due_ns;
    return true;
  }

 private:
  static bool later(const Event& a, const Event& b) {
    return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.order > b.order;
  }
  Nanos next_due_ns_ = kNever;  // asked for far more often than it changes
  std::vector<Event> heap_;
  uint64_t next_order_ = 0;
};

}  // namespace etloop
