// The congestion control of a run as the engine gets it: the algorithm, its parameters and its pacing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/transport_settings.h"

struct etloop_cc_algorithm;  // cc/etloop_cc.h

namespace etloop {

// Congestion control that all queue pairs of a run share. Outlives every FlowControl.
struct CongestionParams {
  const etloop_cc_algorithm* algorithm = nullptr;  // nullptr: no control at all
  std::vector<double> parameters;
  PacingSettings pacing;
  std::shared_ptr<const void> library;  // the plugin that the table is in
};

}  // namespace etloop
