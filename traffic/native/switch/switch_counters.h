// The counters of a switch, named as in SAI and SONiC's COUNTERS_DB; contract/model/counters.py describes each. Snapshots are
// copies of these.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/counter_fields.h"
#include "switch/switch_config.h"

namespace etloop {

struct QueueCounters {
#define ETLOOP_FIELD(name) int64_t name = 0;
  ETLOOP_QUEUE_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
};

struct GroupCounters {
#define ETLOOP_FIELD(name) int64_t name = 0;
  ETLOOP_GROUP_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
};

struct SwitchPortCounters {
#define ETLOOP_FIELD(name) int64_t name = 0;
  ETLOOP_SWITCH_PORT_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
#define ETLOOP_FIELD(name) std::array<int64_t, kPriorities> name{};
  ETLOOP_PRIORITY_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
  std::array<QueueCounters, kPriorities> queues{};
  std::array<GroupCounters, kPriorities> groups{};
};

struct SwitchCounters {
  std::vector<SwitchPortCounters> ports;
  int64_t pool_bytes = 0;            // whole buffer in use
  int64_t pool_watermark_bytes = 0;  // SAI_BUFFER_POOL_STAT_WATERMARK_BYTES
};

}  // namespace etloop
