// Attribution of crashes to plugins: a line on standard error names the plugin before the process ends as it would have.
#pragma once

#include <cstdint>
#include <string_view>

namespace etloop::cc {

// Attribute crashes in the library that contains the address `inside`, and in functions that it calls, to the congestion control
// `name`. At most 16 libraries are watched. A library watched twice needs two calls of `unwatch_crashes`.
void watch_crashes(const void* inside, std::string_view name);
void unwatch_crashes(const void* inside);

}  // namespace etloop::cc
