// Return the value of a Result, or throw its error as Python's RuntimeError.
#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace etloop {

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace etloop
