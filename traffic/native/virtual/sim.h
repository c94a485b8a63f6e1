// A whole run in virtual time: every port of a plan with the real core, joined by a network that delays, loses,
// duplicates, reorders and corrupts packets as a seed says. Same seed, same records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/core_set.h"
#include "plan/plan.h"

namespace etloop {

struct SimParams {
  uint64_t seed = 1;
  uint32_t loss_per_million = 0;
  uint32_t duplicate_per_million = 0;
  uint32_t reorder_per_million = 0;
  uint32_t corrupt_per_million = 0;
  Nanos latency_ns = 2'000;
  Nanos reorder_delay_ns = 20'000;
  int64_t receive_buffer_bytes = 8 << 20;
  // Whether packets to one port take turns on its link, as behind a cut-through switch without a bottleneck inside. Off:
  // any number arrives at the same time.
  bool receiver_links = false;
  // With that: whether queue pairs take turns on a receiver's link and answers wait for nobody (`FairLink`). Off: first come,
  // first served.
  bool fair_links = false;
  // How much a port takes ahead of its link, so that queue pairs take turns on it as on a network card; 0: anything, and
  // an acknowledgement then waits behind all that was sent before.
  Nanos transmit_queue_ns = 0;
  bool probe_first = false;
  // Of ports whose queues share their addresses: packets that come to another queue than their queue pair's, and the longest
  // that what a queue hands another is on its way.
  uint32_t misdirect_per_million = 0;
  Nanos queue_delay_ns = 0;
  int32_t dying_port = -1;  // from dies_at_ns on it neither sends nor receives
  Nanos dies_at_ns = 0;
  Nanos limit_ns = 3'600'000'000'000;

  // A switch in the middle with one egress queue to every port, at that port's rate; 0: none, every pair has its own wire.
  // Half the latency lies before it. What follows is of every queue.
  int64_t queue_capacity_bytes = 0;
  int64_t mark_from_bytes = 0;     // EgressParams
  int64_t mark_all_bytes = 0;
  uint32_t mark_per_million = 0;
  bool telemetry = false;          // acknowledgements bring back what the data's egress queue was like
  int32_t sampled_port = -1;       // whose queue is written down, every `sample_interval_ns`
  Nanos sample_interval_ns = 0;
};

struct QueueSample {
  int64_t time_ns;
  int64_t queued_bytes;
  int64_t sent_bytes;
  int64_t marked;
  int64_t dropped;
};
static_assert(sizeof(QueueSample) == 40);

struct SimOutcome : VirtualRun {
  int64_t packets = 0;
  int64_t lost = 0;
  int64_t duplicated = 0;
  int64_t reordered = 0;
  int64_t corrupted = 0;
  int64_t bad_icrc = 0;
  int64_t marked = 0;         // by the switch
  int64_t queue_dropped = 0;  // by the switch: no room
  std::vector<QueueSample> queue;
};

// The plan holds every rank of the job and every port.
SimOutcome simulate(const EnginePlan& plan, const SimParams& params);

}  // namespace etloop
