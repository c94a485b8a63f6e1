// The flow controls of a port's queue pairs, with contiguous algorithm states. Queue pairs that send no data, and runs without an
// algorithm, have none.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/prefetch.h"
#include "cc/flow_control.h"
#include "plan/congestion_plan.h"

namespace etloop {

// Bytes of a packet on its link in addition to the UDP payload: preamble, Ethernet with FCS, IP, UDP, and the interpacket gap. A
// VLAN tag is extra (PlannedPort::tag_bytes).
inline constexpr uint32_t kLinkBytesIpv4 = 8 + 14 + 20 + 8 + 4 + 12;
inline constexpr uint32_t kLinkBytesIpv6 = kLinkBytesIpv4 + 20;

class FlowControls {
 public:
  explicit FlowControls(std::pmr::memory_resource& memory) : controls_(&memory), states_(&memory) {}

  // `paths[q]` is of queue pair q; `mtu_bytes` 0: no control.
  void load(const CongestionParams& params, const std::vector<FlowPath>& paths);
  // Return the queue pair's control; nullptr: not controlled.
  FlowControl* of(uint32_t qp) { return qp < index_.size() && index_[qp] != kNone ? &controls_[index_[qp]] : nullptr; }
  // Prefetch the control and its state.
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
  size_t blocks_ = 1;  // blocks per algorithm state
  std::pmr::vector<FlowControl> controls_;
  std::pmr::vector<Block> states_;
};

}  // namespace etloop
