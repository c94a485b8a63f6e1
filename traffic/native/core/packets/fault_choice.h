// Selects the packets of an endpoint that fault rules apply to, for any transport. Every rule counts packets on its own; the
// first rule that selects a packet acts. Pure: chance is a function of seed, rule, queue pair and packet number.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/fault_rules.h"
#include "wire/packet_run.h"

namespace etloop {

// Number of faults by action.
using FaultCounts = std::array<int64_t, kFaultActions>;

// An endpoint of a queue pair that rules may apply to.
struct FaultEnd {
  int32_t src_rank = -1;
  int32_t dst_rank = -1;
  int32_t queue_pair = 0;
  uint32_t draws_as = 0;  // random-draw key of the endpoint: the same in every run of a scenario
  FlowId flow = 0;
  uint8_t traffic_class = 0;
  int32_t communicator = -1;
  int32_t channel = 0;
};

bool concerns(const FaultRule& rule, const FaultEnd& end);
bool is_drawn(const FaultRule& rule, uint32_t rule_index, uint32_t end, uint64_t number);

// The rules for one direction of an endpoint.
class FaultChoice {
 public:
  void add(uint32_t rule) { watches_.push_back({rule, 0}); }
  bool empty() const { return watches_.empty(); }
  // Count the packet for every rule that `matches` it; return the rule that acts, or nullptr.
  template <typename Matches>
  const FaultRule* choose(const std::vector<FaultRule>& rules, uint32_t draws_as, Matches&& matches) {
    const FaultRule* chosen = nullptr;
    for (Watch& watch : watches_) {
      const FaultRule& rule = rules[watch.rule];
      if (!matches(rule)) continue;
      const uint64_t number = ++watch.seen;
      const bool in_range = number >= rule.first && (rule.last == 0 || number <= rule.last);
      if (chosen != nullptr || !in_range || (number - rule.first) % rule.every != 0) continue;
      if (is_drawn(rule, watch.rule, draws_as, number)) chosen = &rule;
    }
    return chosen;
  }
  // Undo the last count: the packet was not accepted, and comes again.
  template <typename Matches>
  void forget_last(const std::vector<FaultRule>& rules, Matches&& matches) {
    for (Watch& watch : watches_) {
      if (matches(rules[watch.rule])) --watch.seen;
    }
  }

 private:
  struct Watch {
    uint32_t rule;
    uint64_t seen = 0;
  };
  std::vector<Watch> watches_;
};

}  // namespace etloop
