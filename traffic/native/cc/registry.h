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

// Every algorithm of this room, one line each, in the order in which they are listed.
#define ETLOOP_BUILT_IN_ALGORITHMS(ALGORITHM) \
  ALGORITHM(kNone) \
  ALGORITHM(kDcqcn) \
  ALGORITHM(kDctcp) \
  ALGORITHM(kTimely) \
  ALGORITHM(kSwift) \
  ALGORITHM(kHpcc) \
  ALGORITHM(kNscc) \
  ALGORITHM(kRccc)

#define ETLOOP_DECLARE_ALGORITHM(name) extern const etloop_cc_algorithm name;
ETLOOP_BUILT_IN_ALGORITHMS(ETLOOP_DECLARE_ALGORITHM)
#undef ETLOOP_DECLARE_ALGORITHM

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
