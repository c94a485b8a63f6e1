// The congestion control of a run as the engine is given it: which algorithm with which values, and what is written down.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/transport_settings.h"

struct etloop_cc_algorithm;  // cc/etloop_cc.h

namespace etloop {

// What all queue pairs of a run have in common. Outlives every FlowControl.
struct CongestionParams {
  const etloop_cc_algorithm* algorithm = nullptr;  // nullptr: no control at all
  std::vector<double> parameters;
  PacingSettings pacing;
  std::shared_ptr<const void> library;  // the plugin that the table is in
};

}  // namespace etloop
