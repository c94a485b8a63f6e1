// Schedules a receiving port's credit grants (UET's RCCC): senders that request credit take turns by quanta, at the total rate of
// the link. When no sender requests any, each gets in advance as much as its largest request, so that it can begin its next
// message at once. Pure. Rules: uet-htsim, htsim/sim/uec.cpp, as interpreted in docs/uet.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"
#include "cc/credit_account.h"

namespace etloop {

class CreditPacer {
 public:
  struct Grant {
    uint32_t sender = 0;
    uint32_t total = 0;  // total granted
  };

  // For senders 0 to `senders` - 1. `quantum_bytes`: bytes per grant.
  CreditPacer(uint32_t senders, uint64_t rate_bps, uint32_t quantum_bytes);

  // Set the rate of grants from now on.
  void set_rate(uint64_t rate_bps) { rate_bps_ = std::max<uint64_t>(rate_bps, 1); }

  // A sender requests credit up to a total of `target`.
  void asked(uint32_t sender, uint32_t target, Nanos now);
  // A packet of the sender arrived trimmed: it used credit, and will need it again.
  void lost(uint32_t sender, uint32_t packet_bytes, Nanos now);

  // Time of the next grant; kNever: no sender is to get any.
  Nanos due_ns() const { return active_.empty() && idle_.empty() ? kNever : next_ns_; }
  // Get the next grant; false: its time has not come.
  bool next(Nanos now, Grant& grant);
  uint32_t total(uint32_t sender) const { return senders_[sender].total; }

 private:
  enum class Queue : uint8_t { none, active, idle };
  struct Sender {
    uint32_t total = 0;
    uint32_t target = 0;
    int32_t most_asked = 0;  // largest request at a time
    int32_t extra_granted = 0;       // granted in advance
    Queue queue = Queue::none;
  };

  void want(uint32_t sender, int32_t units, Nanos now);
  // Take the next sender in turn; returns its grant in units; -1: none.
  int32_t take(uint32_t& sender);
  // Idle time earns no credit: the next grant leaves at `at_ns` at the earliest.
  void not_before(Nanos at_ns);

  uint64_t rate_bps_;
  int32_t quantum_;
  Nanos next_ns_ = 0;
  uint64_t remainder_ = 0;  // remainder of the division, in bits times 10^9
  std::vector<Sender> senders_;
  std::deque<uint32_t> active_;  // each sender is in at most one of both queues
  std::deque<uint32_t> idle_;
};

}  // namespace etloop
