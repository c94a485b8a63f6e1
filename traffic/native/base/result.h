// What a call gives that may fail: its value, or why there is none. A caller cannot pass over either unseen.
#pragma once

#include <cassert>
#include <concepts>
#include <optional>
#include <string>
#include <utility>

namespace etloop {

// Why something failed, for people: what was wanted, what came instead, and what to do about it.
struct [[nodiscard]] Error {
  std::string text;
};

// Made by `return value;` or `return Error{"..."};`. Whoever gets it asks `if (!result)`, takes the value by `*result` or
// `*std::move(result)`, and hands a failure on by `return result.error();`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  // Of what converts to T: a port of one kind where any port is wanted.
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
  Error error_;  // if there is no value
};

// Of what gives nothing but that it was done: `return {};`.
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
