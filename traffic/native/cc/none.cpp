// No congestion control: line rate, limited only by the transport's window.
#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

constexpr etloop_cc_algorithm none() {
  etloop_cc_algorithm table{};
  table.abi_version = ETLOOP_CC_ABI_VERSION;
  table.table_bytes = sizeof(etloop_cc_algorithm);
  table.name = "none";
  table.meaning = "neither paced nor reacting";
  table.init = [](void*, const Path*, int64_t, Decision* decision) { *decision = {0, 0}; };
  return table;
}

}  // namespace

const etloop_cc_algorithm kNone = none();

}  // namespace etloop::cc
