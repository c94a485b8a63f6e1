// The timer queue of a port's core. Events of the same time keep their insertion order, so that runs are reproducible.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/instant_guard.h"
#include "base/time.h"
#include "base/time_heap.h"

namespace etloop {

enum class EventKind : uint8_t {
  delay_over,     // a: rank index, b: op
  local_grant,    // a: connection, b: tag, c: message index
  local_arrival,  // a: connection, b: tag, c: message index; bytes
  local_sent,     // a: lane, b: message index
  message_left,   // a: lane, b: message index
  qp_timer,       // a: queue pair
  flow_timer,     // a: queue pair that congestion control lets send again
  credit_due,     // receivers of the port may grant more credit
  planes_due,     // peers have not acknowledged the report of the card's planes
  series_due,     // sample the rates
};

struct Event {
  Nanos at_ns;
  uint64_t order;
  int64_t bytes;
  EventKind kind;
  uint32_t a;
  uint32_t b;
  uint32_t c;
};

class EventHeap {
 public:
  // `ports`: number of ports of the plan; sets how many events at one instant are too many.
  explicit EventHeap(size_t ports = 0) : instant_(most_turns_at_an_instant(ports)) {}
  void push(Nanos due_ns, EventKind kind, uint32_t a, uint32_t b = 0, uint32_t c = 0, int64_t bytes = 0) {
    heap_.push(Event{due_ns, 0, bytes, kind, a, b, c});
    next_due_ns_ = heap_.next_ns();
  }
  Nanos next_due() const { return next_due_ns_; }
  InstantGuard& instant() { return instant_; }
  // Requires a non-empty heap.
  const Event& front() const { return heap_.front(); }
  bool pop_due(Nanos now, Event& out) {
    if (heap_.empty() || next_due_ns_ > now) return false;
    out = heap_.pop();
    next_due_ns_ = heap_.next_ns();
    return true;
  }

 private:
  Nanos next_due_ns_ = kNever;  // cached: read far more often than it changes
  TimeHeap<Event> heap_;
  InstantGuard instant_;
};

}  // namespace etloop
