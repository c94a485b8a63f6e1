// The result of a call that can fail: a value or an error. [[nodiscard]] prevents ignoring it.
#pragma once

#include <cassert>
#include <concepts>
#include <optional>
#include <string>
#include <utility>

namespace etloop {

// The reason of a failure as text: what was expected, what was found, and the remedy.
struct [[nodiscard]] Error {
  std::string text;
};

// Made by `return value;` or `return Error{"..."};`. Callers test `if (!result)`, get the value by `*result` or
// `*std::move(result)`, and forward a failure by `return result.error();`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  // Convert from a value convertible to T, such as a port of one kind.
  template <typename U>
    requires(std::convertible_to<U, T> && !std::same_as<U, T>)
  Result(Result<U>&& other) : Result(other ? Result(T(*std::move(other))) : Result(other.error())) {}

  explicit operator bool() const { return value_.has_value(); }

  T& operator*() & {
    assert(*this);
    return *value_;
  }
  const T& operator*() const& {
    assert(*this);
    return *value_;
  }
  T&& operator*() && { return std::move(**this); }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

  const Error& error() const {
    assert(!*this);
    return error_;
  }

 private:
  std::optional<T> value_;
  Error error_;  // valid if there is no value
};

// Result of a call without a value: `return {};`.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}

  explicit operator bool() const { return !failed_; }
  const Error& error() const {
    assert(failed_);
    return error_;
  }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace etloop
