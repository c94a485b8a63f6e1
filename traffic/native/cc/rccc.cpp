// Receiver-credit congestion control: the sender uses the credit granted by its receiver (cc/credit_account.h). This table only
// provides the name and the requirement.
#include "cc/algorithm.h"
#include "cc/registry.h"

namespace etloop::cc {
namespace {

constexpr etloop_cc_algorithm rccc() {
  etloop_cc_algorithm table{};
  table.abi_version = ETLOOP_CC_ABI_VERSION;
  table.table_bytes = sizeof(etloop_cc_algorithm);
  table.name = "rccc";
  table.meaning = "credits that the receiver grants at the rate of its link; of kind: uet";
  table.needs = ETLOOP_CC_NEEDS_CREDITS;
  table.init = [](void*, const Path*, int64_t, Decision* decision) { *decision = {0, 0}; };
  return table;
}

}  // namespace

const etloop_cc_algorithm kRccc = rccc();

}  // namespace etloop::cc
