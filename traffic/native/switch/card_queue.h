// Frames of one priority queued in a NIC. Flows take turns frame by frame, as a NIC's queue pairs do; the frames of a flow keep
// their order. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ring.h"
#include "switch/switch_model.h"

namespace etloop {

class CardQueue {
 public:
  bool empty() const { return frames_ == 0; }
  size_t size() const { return frames_; }

  void push(const SwitchFrame& frame) {
    if (flows_.empty()) flows_.resize(kFlows);
    const auto place = static_cast<uint16_t>(frame.flow_key % kFlows);
    const uint32_t added = take(frame);
    Flow& flow = flows_[place];
    if (flow.first == kNone) {
      turns_.push_back(place);
      flow.first = added;
    } else {
      waiting_[flow.last].next = added;
    }
    flow.last = added;
    ++frames_;
  }

  SwitchFrame pop() {
    const uint16_t place = turns_.front();
    turns_.pop_front();
    Flow& flow = flows_[place];
    const uint32_t index = flow.first;
    flow.first = waiting_[index].next;
    if (flow.first != kNone) turns_.push_back(place);
    waiting_[index].next = free_;
    free_ = index;
    --frames_;
    if (!turns_.empty()) prefetch(&flows_[turns_.front()]);  // flow of the next frame that leaves
    return waiting_[index].frame;
  }

 private:
  static constexpr uint64_t kFlows = 128;  // hash slots; flows of one slot share their turns
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Waiting {
    SwitchFrame frame;
    uint32_t next = kNone;  // next of its flow, or of the free list
  };
  struct Flow {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };

  uint32_t take(const SwitchFrame& frame) {
    if (free_ == kNone) {
      waiting_.push_back({frame, kNone});
      return static_cast<uint32_t>(waiting_.size() - 1);
    }
    const uint32_t index = free_;
    free_ = waiting_[index].next;
    waiting_[index].frame = frame;
    waiting_[index].next = kNone;
    return index;
  }

  // One vector for all flows, with the most recently freed entry reused first: a card with few frames stays within a few cache
  // lines.
  std::vector<Waiting> waiting_;
  std::vector<Flow> flows_;  // empty until the first frame
  Ring<uint16_t> turns_;
  uint32_t free_ = kNone;
  size_t frames_ = 0;
};

}  // namespace etloop
