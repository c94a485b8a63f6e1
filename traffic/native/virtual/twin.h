// A run in virtual time through a network of switches: every port of a plan with the real core and a NIC, and the switches, links
// and buffers of a topology. Same seed, same records.
//
// Not modelled: processing time of hosts and NICs (zero), and ICRC checks (a packet is good unless a switch corrupted or trimmed
// it, or the sender spoiled it by a fault rule).
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/stop_sign.h"
#include "core/core_set.h"
#include "plan/plan.h"
#include "switch/soft_fabric.h"
#include "virtual/transfer_source.h"
#include "virtual/twin_series.h"
#include "virtual/twin_streams.h"

namespace etloop {

// A link change at a time of the job.
struct LinkChange {
  FabricEnd end;
  bool up = false;
  Nanos at_ns = 0;  // after the start of the ranks
};

// A link event with its time.
struct LinkStep {
  FabricEnd end;
  LinkNews news = LinkNews::down;
  Nanos at_ns = 0;  // on the same clock as `start_ns`
};

struct TwinParams {
  std::vector<uint32_t> attachment_of_port;  // by port of the plan
  int64_t receive_buffer_bytes = 64 << 20;
  bool probe_first = true;
  Nanos limit_ns = 3'600'000'000'000;
  Nanos sample_interval_ns = 0;  // 0: no series
  size_t most_samples = 1 << 20;
  int64_t most_packets = 0;  // 0: unlimited; more end the run
  std::vector<LinkChange> link_changes;
  std::vector<TwinStream> streams;
  TransferSource* source = nullptr;
  StopAsked stop;
  // Memory of queue pairs, flows and frames: large pages decide how fast a large network is simulated.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
};

struct TwinOutcome : VirtualRun {
  Nanos start_ns = 0;  // start of the ranks, after the probe
  int64_t packets = 0;        // sent by cards
  int64_t hops = 0;           // link traversals of packets, from cards and switches
  std::vector<int64_t> damaged_packets;  // by port of the plan, since the start: corrupted, trimmed or spoiled
  std::vector<int64_t> trimmed_packets;  // likewise: arrived trimmed, and recognized as such
  bool too_many_packets = false;
  std::vector<SwitchCounters> switches;
  std::vector<CardCounters> cards;  // by attachment
  Nanos sample_interval_ns = 0;
  std::vector<LaneSample> samples;
  std::vector<TwinStreamCounters> streams;
  std::vector<LinkStep> link_steps;  // in order
};

// Return why the parameters do not fit plan and network, empty if they do.
std::string validate(const TwinParams& params, const EnginePlan& plan, const FabricConfig& network);

// The plan has every rank of the job and every port; plan and network have passed `validate`.
TwinOutcome run_twin(const EnginePlan& plan, const FabricConfig& network, const TwinParams& params);

}  // namespace etloop
