// The built-in congestion control algorithms, and the evaluation of a choice: table, parameter values, and every error in them.
// Plugins are checked by the same `refusal`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/etloop_cc.h"

namespace etloop::cc {

// One line per algorithm of this folder.
extern const etloop_cc_algorithm kNone;
extern const etloop_cc_algorithm kDcqcn;
extern const etloop_cc_algorithm kDctcp;
extern const etloop_cc_algorithm kTimely;
extern const etloop_cc_algorithm kSwift;
extern const etloop_cc_algorithm kHpcc;
extern const etloop_cc_algorithm kNscc;
extern const etloop_cc_algorithm kRccc;

std::span<const etloop_cc_algorithm* const> built_in();
// Return the table of that name, nullptr if there is none.
const etloop_cc_algorithm* find_built_in(std::string_view name);

// Return why a table cannot be used (wrong version, missing or contradictory parts), empty if it can.
std::string refusal(const etloop_cc_algorithm* table);

using GivenParameter = std::pair<std::string, double>;

// Return the values of all parameters: from the table, then the profile ("": the first), then `given`. Unknown names, values out
// of limits and contradictions are added to `mistakes`.
std::vector<double> parameter_values(const etloop_cc_algorithm& table, std::string_view profile,
                                     std::span<const GivenParameter> given, std::vector<std::string>& mistakes);

}  // namespace etloop::cc
