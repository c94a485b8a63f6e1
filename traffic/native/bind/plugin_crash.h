// Who is to blame where code that somebody else made brings this process down: a line on standard error that names it, before
// the process ends as it would have.
#pragma once

#include <cstdint>
#include <string_view>

namespace etloop::cc {

// From now on a crash in the library that `inside` lies in (any address of it), or in what that called, is said to be that of the
// congestion control `name`. At most 16 libraries are watched. Watched twice, it takes two calls of `unwatch_crashes`.
void watch_crashes(const void* inside, std::string_view name);
void unwatch_crashes(const void* inside);

}  // namespace etloop::cc
