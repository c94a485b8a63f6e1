// The smallest test harness that says what failed: CHECK and CHECK_EQ count failures, main returns their number.
//
// Nothing is left out in silence: `skipped` says what and why, `make test` lists it at its end, and where continuous
// integration runs as root, no program of system-packages.txt may be missing.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace etloop::test {

inline int& failures() {
  static int count = 0;
  return count;
}

inline void report(const char* file, int line, const char* text) {
  ++failures();
  std::cerr << file << ':' << line << ": " << text << " is false\n";
}

template <typename A, typename B>
void report_equal(const char* file, int line, const char* text, const A& a, const B& b) {
  ++failures();
  std::cerr << file << ':' << line << ": " << text;
  if constexpr (requires { std::cerr << +a << +b; }) std::cerr << ": " << +a << " != " << +b;
  std::cerr << '\n';
}

// What a test needs and did not find.
enum class Missing { kernel_or_right, program };

inline void skipped(Missing missing, std::string_view what, std::string_view why) {
  std::cerr << "skipped: " << what << ": " << why << '\n';
  const bool promised = std::getenv("CI") != nullptr && geteuid() == 0;
  if (missing == Missing::program && promised) ++failures();
}

}  // namespace etloop::test

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) ::etloop::test::report(__FILE__, __LINE__, #condition);   \
  } while (false)

// Copies: what is compared may be part of something that ends with the expression.
#define CHECK_EQ(a, b)                                                                          \
  do {                                                                                          \
    const auto check_a = (a);                                                                   \
    const auto check_b = (b);                                                                   \
    if (!(check_a == check_b))                                                                  \
      ::etloop::test::report_equal(__FILE__, __LINE__, #a " == " #b, check_a, check_b);         \
  } while (false)
