// Adapts a C++ state class with member functions to the function table of etloop_cc.h; all built-in algorithms use it.
#pragma once

#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <type_traits>

#include "cc/etloop_cc.h"

namespace etloop::cc {

using Path = etloop_cc_path;
using Ack = etloop_cc_ack;
using Signal = etloop_cc_signal;
using Sent = etloop_cc_sent;
using Decision = etloop_cc_decision;
using Parameter = etloop_cc_parameter;
using Setting = etloop_cc_setting;

inline constexpr int64_t kNoTimer = std::numeric_limits<int64_t>::max();
inline constexpr double kUnbounded = 1e18;

// Build a table over State. `init(path, now, decision)` is required; other functions are used if State has them.
template <typename State, size_t kParameters, size_t kProfiles>
constexpr etloop_cc_algorithm table_of(const char* name, const char* meaning, uint32_t needs,
                                       const Parameter (&parameters)[kParameters],
                                       const etloop_cc_profile (&profiles)[kProfiles],
                                       const char* (*check)(const double*) = nullptr) {
  static_assert(std::is_trivially_destructible_v<State> && alignof(State) <= 16);
  etloop_cc_algorithm table{};
  table.abi_version = ETLOOP_CC_ABI_VERSION;
  table.table_bytes = sizeof(etloop_cc_algorithm);
  table.name = name;
  table.meaning = meaning;
  table.needs = needs;
  table.state_bytes = sizeof(State);
  table.parameters = parameters;
  table.parameter_count = kParameters;
  table.profiles = profiles;
  table.profile_count = kProfiles;
  table.check = check;
  table.init = [](void* state, const Path* path, int64_t now, Decision* decision) {
    (new (state) State())->init(*path, now, *decision);
  };
  if constexpr (requires(State s, const Path& p, const Ack& e, Decision& d) { s.on_ack(p, e, d); }) {
    table.on_ack = [](void* s, const Path* p, const Ack* e, Decision* d) { static_cast<State*>(s)->on_ack(*p, *e, *d); };
  }
  if constexpr (requires(State s, const Path& p, const Signal& e, Decision& d) { s.on_cnp(p, e, d); }) {
    table.on_cnp = [](void* s, const Path* p, const Signal* e, Decision* d) { static_cast<State*>(s)->on_cnp(*p, *e, *d); };
  }
  if constexpr (requires(State s, const Path& p, const Signal& e, Decision& d) { s.on_nak(p, e, d); }) {
    table.on_nak = [](void* s, const Path* p, const Signal* e, Decision* d) { static_cast<State*>(s)->on_nak(*p, *e, *d); };
  }
  if constexpr (requires(State s, const Path& p, const Signal& e, Decision& d) { s.on_timeout(p, e, d); }) {
    table.on_timeout = [](void* s, const Path* p, const Signal* e, Decision* d) {
      static_cast<State*>(s)->on_timeout(*p, *e, *d);
    };
  }
  if constexpr (requires(State s, const Path& p, const Sent& e, Decision& d) { s.on_sent(p, e, d); }) {
    table.on_sent = [](void* s, const Path* p, const Sent* e, Decision* d) { static_cast<State*>(s)->on_sent(*p, *e, *d); };
  }
  if constexpr (requires(State s, const Path& p, int64_t now, Decision& d) { s.on_timer(p, now, d); }) {
    table.on_timer = [](void* s, const Path* p, int64_t now, Decision* d) { static_cast<State*>(s)->on_timer(*p, now, *d); };
    table.next_timer_ns = [](const void* s) { return static_cast<const State*>(s)->next_timer_ns(); };
  }
  return table;
}

template <size_t kSettings>
constexpr etloop_cc_profile profile_of(const char* name, const char* meaning, const Setting (&settings)[kSettings]) {
  return {name, meaning, settings, kSettings, 0};
}
constexpr etloop_cc_profile initial_profile(const char* name, const char* meaning) { return {name, meaning, nullptr, 0, 0}; }

inline uint64_t whole(double value) { return value <= 0 ? 0 : static_cast<uint64_t>(value + 0.5); }

}  // namespace etloop::cc
