#include "switch/switch_buffer.h"

namespace etloop {

SwitchBuffer::SwitchBuffer(const SwitchConfig& config)
    : config_(config), lanes_(config.ports.size() * kPriorities), shared_bytes_(config.buffer_bytes) {
  const auto ports = static_cast<int64_t>(config.ports.size());
  for (const PriorityGroupConfig& group : config.groups) {
    shared_bytes_ -= ports * (group.reserved_bytes + (group.lossless ? group.headroom_bytes : 0));
  }
}

}  // namespace etloop
