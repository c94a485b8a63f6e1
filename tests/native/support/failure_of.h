// Results under test.
#pragma once

#include <string>

#include "base/result.h"

namespace etloop::test {

// What went wrong; "" where nothing did.
template <typename T>
std::string failure_of(const Result<T>& result) {
  return result ? std::string() : result.error().text;
}

}  // namespace etloop::test
