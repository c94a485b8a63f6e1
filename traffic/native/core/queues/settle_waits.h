// What unfinished ops wait for, where the queue pairs of their ranks are on several queues.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/records.h"

namespace etloop {

// Of a row by which a queue says how far a queue pair is whose rank is elsewhere.
inline constexpr int32_t kNoRank = -1;

// Gives those rows' packet numbers to the waits for acknowledgements on the same connections, and takes them out.
void settle_waits(std::vector<WaitRecord>& waits);

}  // namespace etloop
