// contract.assignment.Assignment -> EnginePlan.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace etloop {

// `cc_libraries`: the compiled congestion control plugin of each of the assignment's transports, "" for one that has none;
// fewer than there are: the others have none.
// Throws ValueError saying what does not fit. The result passed `validate`.
std::shared_ptr<const EnginePlan> plan_from(nanobind::handle assignment, const std::vector<std::string>& cc_libraries);

// The same for whoever sends no packets: without congestion control, whatever the assignment names.
std::shared_ptr<const EnginePlan> plan_without_control(nanobind::handle assignment);

// "10.0.0.1" or "fd00::1" as a value. Throws ValueError.
IpAddress parse_address(const std::string& text);

}  // namespace etloop
