#include "core/queues/settle_waits.h"

#include <map>

namespace etloop {

void settle_waits(std::vector<WaitRecord>& waits) {
  std::map<int32_t, uint32_t> oldest;  // by connection
  for (const WaitRecord& wait : waits) {
    if (wait.rank == kNoRank) oldest[wait.connection] = wait.psn;
  }
  if (oldest.empty()) return;
  std::erase_if(waits, [](const WaitRecord& wait) { return wait.rank == kNoRank; });
  for (WaitRecord& wait : waits) {
    const auto row = oldest.find(wait.connection);
    if (wait.kind == WaitKind::acknowledgement && row != oldest.end()) wait.psn = row->second;
  }
}

}  // namespace etloop
