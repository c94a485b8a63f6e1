// A run in virtual time: every port of a plan with the real core, connected by a network that delays, loses, duplicates, reorders
// and corrupts packets at random. Same seed, same records.
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
  // Whether packets to one port serialize on its link, as behind a non-blocking cut-through switch. Off: any number arrives at
  // once.
  bool receiver_links = false;
  // With receiver_links: whether queue pairs take turns on a receiver's link and answers bypass them (`FairLink`). Off: first
  // come, first served.
  bool fair_links = false;
  // How far ahead of its link a port accepts packets, so that queue pairs take turns as on a NIC; 0: unlimited, and an
  // acknowledgement waits behind everything sent before.
  Nanos transmit_queue_ns = 0;
  bool probe_first = false;
  // How long ports hold acknowledgements that no sender waits for, as a port does whose answers cost system calls.
  Nanos answer_patience_ns = 0;
  // For ports whose queues share their addresses: rate of packets that arrive at another queue than their queue pair's, and the
  // longest delay of a message between queues.
  uint32_t misdirect_per_million = 0;
  Nanos queue_delay_ns = 0;
  int32_t dying_port = -1;  // from dies_at_ns it neither sends nor receives
  Nanos dies_at_ns = 0;
  Nanos limit_ns = 3'600'000'000'000;

  // A switch with one egress queue per port, at that port's rate; 0: none, direct wires. Half the latency is before it. The
  // following values apply to every queue.
  int64_t queue_capacity_bytes = 0;
  int64_t mark_from_bytes = 0;     // EgressParams
  int64_t mark_all_bytes = 0;
  uint32_t mark_per_million = 0;
  bool telemetry = false;          // acknowledgements echo the state of the data's egress queue
  int32_t sampled_port = -1;       // its queue is sampled every `sample_interval_ns`
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
  int64_t queue_dropped = 0;  // dropped by the switch for lack of room
  std::vector<QueueSample> queue;
};

// The plan has every rank of the job and every port.
SimOutcome simulate(const EnginePlan& plan, const SimParams& params);

}  // namespace etloop
