// Wait records of unfinished ops whose queue pairs are on several queues.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/records.h"

namespace etloop {

// Rank of a row with which a queue reports the progress of another queue's queue pair.
inline constexpr int32_t kNoRank = -1;

// Copy these rows' PSNs to the acknowledgement waits of the same connections, and remove the rows.
void settle_waits(std::vector<WaitRecord>& waits);

}  // namespace etloop
