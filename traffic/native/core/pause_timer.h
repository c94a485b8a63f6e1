// Schedules the PAUSE frames of a port's rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"

namespace etloop {

// Rules have independent schedules: a late frame does not delay later ones, and missed frames are not caught up.
class PauseTimer {
 public:
  void start(const std::vector<PauseRule>& rules, Nanos start_ns) {
    for (const PauseRule& rule : rules) rules_.push_back({rule, start_ns + rule.first_ns, 0});
    next_ns_ = rules_.empty() ? kNever : start_ns;
  }
  void stop() { next_ns_ = kNever; }

  Nanos next_ns() const { return next_ns_; }

  // Pass every due rule to `send`, which returns whether its frame has left.
  template <typename Send>
  void send_due(Nanos now, Send send) {
    next_ns_ = kNever;
    for (Running& each : rules_) {
      const PauseRule& rule = each.rule;
      if (rule.count != 0 && each.sent >= rule.count) continue;
      if (each.due_ns <= now) {
        if (send(rule)) ++each.sent;
        each.due_ns += ((now - each.due_ns) / rule.every_ns + 1) * rule.every_ns;
      }
      if (rule.count == 0 || each.sent < rule.count) next_ns_ = std::min(next_ns_, each.due_ns);
    }
  }

 private:
  struct Running {
    PauseRule rule;
    Nanos due_ns;
    uint64_t sent;
  };
  std::vector<Running> rules_;
  Nanos next_ns_ = kNever;
};

}  // namespace etloop
