// Memory in large pages, where the system has them to give: what a large network looks at in turn is spread over more small
// pages than a processor remembers. Changes nothing but speed.
#pragma once

#include <memory_resource>

namespace etloop {

// For tables and pools of a MiB and more; what is smaller comes from the heap.
std::pmr::memory_resource& large_pages();

}  // namespace etloop
