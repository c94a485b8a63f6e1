// Which packets of an end rules select, whatever the transport: counted for every rule by itself, the first that selects one
// acts. Pure; chance is a function of seed, rule, queue pair and packet number.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/fault_rules.h"
#include "wire/packet_run.h"

namespace etloop {

// How often each action was taken.
using FaultCounts = std::array<int64_t, kFaultActions>;

// A queue pair end that rules may concern.
struct FaultEnd {
  int32_t src_rank = -1;
  int32_t dst_rank = -1;
  int32_t queue_pair = 0;
  uint32_t draws_as = 0;  // of `chance`: which queue pair end it is, in every run of a scenario
  FlowId flow = 0;
  uint8_t traffic_class = 0;
  int32_t communicator = -1;
  int32_t channel = 0;
};

bool concerns(const FaultRule& rule, const FaultEnd& end);
bool is_drawn(const FaultRule& rule, uint32_t rule_index, uint32_t end, uint64_t number);

// The rules of one side of an end.
class FaultChoice {
 public:
  void add(uint32_t rule) { watches_.push_back({rule, 0}); }
  bool empty() const { return watches_.empty(); }
  // Counts the packet for every rule that `looks` at it; the one that acts, or nullptr.
  template <typename Looks>
  const FaultRule* choose(const std::vector<FaultRule>& rules, uint32_t draws_as, Looks&& looks) {
    const FaultRule* chosen = nullptr;
    for (Watch& watch : watches_) {
      const FaultRule& rule = rules[watch.rule];
      if (!looks(rule)) continue;
      const uint64_t number = ++watch.seen;
      const bool in_range = number >= rule.first && (rule.last == 0 || number <= rule.last);
      if (chosen != nullptr || !in_range || (number - rule.first) % rule.every != 0) continue;
      if (is_drawn(rule, watch.rule, draws_as, number)) chosen = &rule;
    }
    return chosen;
  }
  // What was counted last was not taken, and comes again.
  template <typename Looks>
  void forget_last(const std::vector<FaultRule>& rules, Looks&& looks) {
    for (Watch& watch : watches_) {
      if (looks(rules[watch.rule])) --watch.seen;
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
