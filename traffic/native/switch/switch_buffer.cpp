#include "switch/switch_buffer.h"

#include <limits>

namespace etloop {

SwitchBuffer::SwitchBuffer(const SwitchConfig& config)
    : usual_(config),
      lanes_(config.ports.size() * kPriorities),
      shared_bytes_(config.buffer_bytes - set_aside_bytes(config)),
      headroom_left_bytes_(config.headroom_pool_bytes >= 0 ? config.headroom_pool_bytes
                                                           : std::numeric_limits<int64_t>::max()) {
  if (config.port_rules.empty()) return;
  rules_.reserve(config.ports.size());
  for (const SwitchPortConfig& port : config.ports) rules_.push_back(&config.rules_of(port));
}

void SwitchBuffer::begin_counting() {
  for (size_t port = 0; port * kPriorities < lanes_.size(); ++port) {
    for (size_t number = 0; number < kPriorities; ++number) {
      LaneUse& use = lane(port, number);
      use.sent_packets = use.sent_bytes = 0;
      use.queue_watermark_bytes = use.queue_bytes;
      use.shared_watermark_bytes = group_shared(port, number);
      use.headroom_watermark_bytes = use.headroom_bytes;
    }
  }
  watermark_bytes_ = used_bytes_;
}

}  // namespace etloop
