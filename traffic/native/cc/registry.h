// The congestion control algorithms that are built in, and what a choice of one means: a table, its parameter values, and
// every mistake in them. Plugins enter by the same door (`refusal`).
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
// nullptr: there is none of that name.
const etloop_cc_algorithm* find_built_in(std::string_view name);

// Why a table cannot be used: wrong version, missing or contradictory parts. Empty if it can.
std::string refusal(const etloop_cc_algorithm* table);

using GivenParameter = std::pair<std::string, double>;

// The values of all parameters: of the table, then of the profile ("": the first), then as given.
// Unknown names, values out of limits and contradictions are added to `mistakes`.
std::vector<double> parameter_values(const etloop_cc_algorithm& table, std::string_view profile,
                                     std::span<const GivenParameter> given, std::vector<std::string>& mistakes);

}  // namespace etloop::cc
