// contract.congestion.CongestionSettings -> CongestionParams.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "plan/congestion_plan.h"

namespace etloop {

// `library`: the compiled plugin, "" if the algorithm is built in. Throws ValueError with every mistake.
CongestionParams congestion_from(nanobind::handle settings, const std::string& library);

}  // namespace etloop
