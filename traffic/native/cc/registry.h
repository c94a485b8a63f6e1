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

// One line for each algorithm of this room.
extern const etloop_cc_algorithm kNone;
extern const etloop_cc_algorithm kDcqcn;
extern const etloop_cc_algorithm kDctcp;
extern const etloop_cc_algorithm kTimely;
extern const etloop_cc_algorithm kSwift;
extern const etloop_cc_algorithm kHpcc;
extern const etloop_cc_algorithm kNscc;
extern const etloop_cc_algorithm kRccc;

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
