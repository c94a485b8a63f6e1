#include "switch/switch_buffer.h"

#include <limits>

namespace etloop {

SwitchBuffer::SwitchBuffer(const SwitchConfig& config)
    : config_(config),
      lanes_(config.ports.size() * kPriorities),
      shared_bytes_(config.buffer_bytes - set_aside_bytes(config)),
      headroom_left_bytes_(config.headroom_pool_bytes >= 0 ? config.headroom_pool_bytes
                                                           : std::numeric_limits<int64_t>::max()) {}

}  // namespace etloop
