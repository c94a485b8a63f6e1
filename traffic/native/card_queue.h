// Frames that wait in a network card in one priority. Flows take turns, a frame each, as the queue pairs of a card do; the
// frames of a flow keep their order. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "ring.h"
#include "switch_model.h"

namespace etloop {

class CardQueue {
 public:
  bool empty() const { return frames_ == 0; }
  size_t size() const { return frames_; }

  void push(const SwitchFrame& frame) {
    if (flows_.empty()) flows_.resize(kFlows);
    const auto place = static_cast<uint16_t>(frame.flow_key % kFlows);
    if (flows_[place].empty()) turns_.push_back(place);
    flows_[place].push_back(frame);
    ++frames_;
  }

  SwitchFrame pop() {
    const uint16_t place = turns_.front();
    turns_.pop_front();
    const SwitchFrame frame = flows_[place].front();
    flows_[place].pop_front();
    if (!flows_[place].empty()) turns_.push_back(place);
    --frames_;
    return frame;
  }

 private:
  static constexpr uint64_t kFlows = 128;  // flows that fall into one place take their turns together

  std::vector<Ring<SwitchFrame>> flows_;  // none until the first frame
  Ring<uint16_t> turns_;
  size_t frames_ = 0;
};

}  // namespace etloop
