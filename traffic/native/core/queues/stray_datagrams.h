// Datagrams that arrived at another queue than their queue pair's, because a NIC's hash, or a kernel that merged packets of
// several queue pairs, does not know the dealing rule. They are passed on and counted.
#pragma once

#include <cstdint>

#include "core/queues/queue_links.h"
#include "plan/queue_deal.h"

namespace etloop {

class StrayDatagrams {
 public:
  // For one queue of a multi-queue port. `links` outlives this.
  StrayDatagrams(const EnginePlan& plan, int32_t port, QueueLinks& links) : plan_(plan), port_(port), links_(links) {}

  // False: its queue pair is on no other queue.
  bool pass_on(const Datagram& datagram, uint32_t dest_qpn, Nanos arrived_ns) {
    const PlannedPort& port = plan_.ports[static_cast<size_t>(port_)];
    if (dest_qpn - port.qpn_base >= port.qpn_count) return false;
    const int32_t carrier = carrier_of(plan_, port_, dest_qpn);
    if (carrier == port_) return false;
    ++passed_;
    links_.pass(carrier, datagram, arrived_ns);
    return true;
  }
  int64_t passed() const { return passed_; }

 private:
  const EnginePlan& plan_;
  int32_t port_;
  QueueLinks& links_;
  int64_t passed_ = 0;
};

}  // namespace etloop
