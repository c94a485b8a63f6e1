// Which sender a receiving port grants credit to next, and when (UET's RCCC): senders that ask take turns, so much at a time that
// all of it together comes at the rate of the link. Who has what it asked for is given as much again as it once asked for, when
// nobody else asks: so it can begin its next message at once. Pure.
// Rules: uet-htsim, htsim/sim/uec.cpp, as read by docs/uet.md.
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
    uint32_t total = 0;  // granted in all
  };

  // For senders 0 to `senders` - 1. `quantum_bytes`: of one grant.
  CreditPacer(uint32_t senders, uint64_t rate_bps, uint32_t quantum_bytes);

  // For what is granted from now on.
  void set_rate(uint64_t rate_bps) { rate_bps_ = std::max<uint64_t>(rate_bps, 1); }

  // A sender needs so much in all.
  void asked(uint32_t sender, uint32_t target, Nanos now);
  // A packet of it came without its payload: it spent credit on that, and will again.
  void lost(uint32_t sender, uint32_t packet_bytes, Nanos now);

  // kNever: nobody is to be given anything.
  Nanos due_ns() const { return active_.empty() && idle_.empty() ? kNever : next_ns_; }
  // The next grant; false: none is due.
  bool next(Nanos now, Grant& grant);
  uint32_t total(uint32_t sender) const { return senders_[sender].total; }

 private:
  enum class Queue : uint8_t { none, active, idle };
  struct Sender {
    uint32_t total = 0;
    uint32_t target = 0;
    int32_t most_asked = 0;  // at a time
    int32_t given = 0;       // beyond what it asked for
    Queue queue = Queue::none;
  };

  void want(uint32_t sender, int32_t units, Nanos now);
  // Takes the sender whose turn it is, and says how much it gets; -1: there is none.
  int32_t take(uint32_t& sender);
  // Time in which no one was granted anything earns nothing: the next grant is due at `at_ns` at the earliest.
  void not_before(Nanos at_ns);

  uint64_t rate_bps_;
  int32_t quantum_;
  Nanos next_ns_ = 0;
  uint64_t remainder_ = 0;  // of the division, in bits times 10^9
  std::vector<Sender> senders_;
  std::deque<uint32_t> active_;  // each sender in one of both at most
  std::deque<uint32_t> idle_;
};

}  // namespace etloop
