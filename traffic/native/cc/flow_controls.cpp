#include "cc/flow_controls.h"

#include <algorithm>

namespace etloop {

void FlowControls::load(const CongestionParams& params, const std::vector<FlowPath>& paths) {
  index_.clear();
  controls_.clear();
  if (params.algorithm == nullptr) return;
  const auto controlled = static_cast<size_t>(
      std::count_if(paths.begin(), paths.end(), [](const FlowPath& path) { return path.mtu_bytes != 0; }));
  blocks_ = std::max<size_t>(1, (params.algorithm->state_bytes + sizeof(Block) - 1) / sizeof(Block));
  states_.assign(controlled * blocks_, Block{});
  index_.assign(paths.size(), kNone);
  controls_.reserve(controlled);
  for (size_t q = 0; q < paths.size(); ++q) {
    if (paths[q].mtu_bytes == 0) continue;
    index_[q] = static_cast<uint32_t>(controls_.size());
    controls_.emplace_back(params, paths[q], &states_[controls_.size() * blocks_]);
  }
}

}  // namespace etloop
