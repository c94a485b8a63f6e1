// Memory in huge pages if the system has them: the working set of a large network needs more small pages than the TLB holds.
// Affects only speed.
#pragma once

#include <memory_resource>

namespace etloop {

// For tables and pools of a MiB and more; smaller blocks come from the heap.
std::pmr::memory_resource& large_pages();

}  // namespace etloop
