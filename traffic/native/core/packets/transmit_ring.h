// Ring of queue pairs that may have something to send, in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "base/time.h"
#include "wire/packet_run.h"

namespace etloop {

// The front queue pair, if the port held its run and a retry before `until_ns` would give the same result.
struct HeldFront {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t qp = kNone;
  FlowId flow = 0;
  Nanos until_ns = 0;
};

// Each queue pair is in the ring at most once.
class alignas(kLineBytes) TransmitRing {
 public:
  HeldFront held;
  uint32_t front_packets = 0;  // sent by the front queue pair in this turn, if turns are bursts
  void resize(size_t queue_pairs) { slots_.assign(queue_pairs + 1, 0); }
  size_t size() const { return count_; }
  uint32_t front() const { return slots_[head_]; }
  // The queue pair `turns` after the front; requires that many.
  uint32_t behind_front(size_t turns) const { return slots_[place(turns)]; }
  void push(uint32_t qp) { slots_[place(count_++)] = qp; }
  void pop() {
    head_ = place(1);
    --count_;
    front_packets = 0;
  }
  void clear() {
    held.qp = HeldFront::kNone;
    count_ = 0;
  }

 private:
  size_t place(size_t behind_front) const {
    const size_t at = head_ + behind_front;
    return at < slots_.size() ? at : at - slots_.size();
  }

  std::vector<uint32_t> slots_;
  size_t head_ = 0;
  size_t count_ = 0;
};
static_assert(sizeof(TransmitRing) == kLineBytes);

}  // namespace etloop
