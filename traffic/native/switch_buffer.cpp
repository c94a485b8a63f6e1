#include "switch_buffer.h"

namespace etloop {

SwitchBuffer::SwitchBuffer(const SwitchConfig& config, SwitchCounters& counters)
    : config_(config), counters_(counters), shared_bytes_(config.buffer_bytes) {
  const auto ports = static_cast<int64_t>(config.ports.size());
  for (const PriorityGroupConfig& group : config.groups) {
    shared_bytes_ -= ports * (group.reserved_bytes + (group.lossless ? group.headroom_bytes : 0));
  }
  counters_.ports.resize(config.ports.size());
}

}  // namespace etloop
