// contract.congestion.CongestionSettings -> CongestionParams.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "plan/congestion_plan.h"

namespace etloop {

// `library`: path of a compiled plugin, or "" for a built-in algorithm. Throws ValueError with all mistakes.
CongestionParams congestion_from(nanobind::handle settings, const std::string& library);

}  // namespace etloop
