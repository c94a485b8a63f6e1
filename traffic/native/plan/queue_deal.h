// Which queue of a port has a queue pair, where all queues of the port share all of its addresses. A rule instead of a table, so
// that whoever sorts packets (a classic BPF program of ten instructions) and every thread come to the same answer.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace etloop {

// `number`: of the queue pair among those of its port. Sending and receiving ends often have numbers in turn, so that remainders
// by an even count would put all senders on every other queue: there every round begins one queue further. Of 2 n numbers from
// a multiple of that on, each of n queues has one even and one odd number.
constexpr bool shifts_rounds(uint32_t queues) { return queues % 2 == 0; }
constexpr uint32_t dealt_queue(uint32_t number, uint32_t queues) {
  return (shifts_rounds(queues) ? number + number / queues : number) % queues;
}

// Whether the port of the plan is one of several queues that share addresses.
inline bool is_dealt(const PlannedPort& port) { return port.queue >= 0; }

// The port of the plan that has a queue pair of a rank on `home`: itself, or another queue.
inline int32_t carrier_of(const EnginePlan& plan, int32_t home, uint32_t qpn) {
  const PlannedPort& port = plan.ports[static_cast<size_t>(home)];
  if (!is_dealt(port)) return home;
  return home - port.queue + static_cast<int32_t>(dealt_queue(qpn - port.qpn_base, port.queues));
}

}  // namespace etloop
