// The flow controls of a port's queue pairs, with the memory of their algorithms in one piece. Queue pairs that send no data
// have none, and no queue pair has one while no algorithm is chosen.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/prefetch.h"
#include "cc/flow_control.h"
#include "plan/congestion_plan.h"

namespace etloop {

// What a packet occupies on its link beside the UDP payload: preamble, Ethernet with FCS, IP, UDP, and the gap after it.
// A VLAN tag comes on top (PlannedPort::tag_bytes).
inline constexpr uint32_t kLinkBytesIpv4 = 8 + 14 + 20 + 8 + 4 + 12;
inline constexpr uint32_t kLinkBytesIpv6 = kLinkBytesIpv4 + 20;

class FlowControls {
 public:
  explicit FlowControls(std::pmr::memory_resource& memory) : controls_(&memory), states_(&memory) {}

  // `paths[q]` is of queue pair q; those with `mtu_bytes` 0 get no control.
  void load(const CongestionParams& params, const std::vector<FlowPath>& paths);
  // nullptr: the queue pair is not controlled.
  FlowControl* of(uint32_t qp) { return qp < index_.size() && index_[qp] != kNone ? &controls_[index_[qp]] : nullptr; }
  // It is soon asked.
  void expect(uint32_t qp) const {
    if (qp >= index_.size() || index_[qp] == kNone) return;
    prefetch(&controls_[index_[qp]], sizeof(FlowControl));
    prefetch(&states_[index_[qp] * blocks_], blocks_ * sizeof(Block));
  }
  bool any() const { return !controls_.empty(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct alignas(16) Block {
    uint8_t bytes[16];
  };
  std::vector<uint32_t> index_;
  size_t blocks_ = 1;  // of an algorithm's state
  std::pmr::vector<FlowControl> controls_;
  std::pmr::vector<Block> states_;
};

}  // namespace etloop
