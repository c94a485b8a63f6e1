// A whole run in virtual time through a network of switches: every port of a plan with the real core, a network card, and
// the switches, links and buffers that a topology describes. Same seed, same records.
//
// What is left out: the time that hosts and their cards take to think (none), and the check of ICRCs (a packet is good unless
// a switch corrupted or cut it, or the sender spoiled it on purpose).
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/stop_sign.h"
#include "core/core_set.h"
#include "plan/plan.h"
#include "switch/soft_fabric.h"
#include "virtual/twin_series.h"
#include "virtual/twin_streams.h"

namespace etloop {

// A link that changes at a time of the job.
struct LinkChange {
  FabricEnd end;
  bool up = false;
  Nanos at_ns = 0;  // after the ranks began
};

// What became of a link, and when.
struct LinkStep {
  FabricEnd end;
  LinkNews news = LinkNews::down;
  Nanos at_ns = 0;  // of the clock that `start_ns` is of
};

struct TwinParams {
  std::vector<uint32_t> attachment_of_port;  // by port of the plan
  int64_t receive_buffer_bytes = 64 << 20;
  bool probe_first = true;
  Nanos limit_ns = 3'600'000'000'000;
  Nanos sample_interval_ns = 0;  // 0: no series
  size_t most_samples = 1 << 20;
  int64_t most_packets = 0;  // 0: any number; more end the run
  std::vector<LinkChange> link_changes;
  std::vector<TwinStream> streams;
  StopAsked stop;
  // Of queue pairs, flows and frames: whether its pages are large decides how fast a large network is.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
};

struct TwinOutcome : VirtualRun {
  Nanos start_ns = 0;  // when the ranks began, after the probe
  int64_t packets = 0;        // that cards sent
  int64_t hops = 0;           // links that packets were put on, by cards and switches
  std::vector<int64_t> damaged_packets;  // by port of the plan, since the ranks began: arrived corrupted, cut or spoiled
  std::vector<int64_t> trimmed_packets;  // likewise: arrived cut, and known as such
  bool too_many_packets = false;
  std::vector<SwitchCounters> switches;
  std::vector<CardCounters> cards;  // by attachment
  Nanos sample_interval_ns = 0;
  std::vector<LaneSample> samples;
  std::vector<TwinStreamCounters> streams;
  std::vector<LinkStep> link_steps;  // as they came
};

// Empty if the ports of the plan are attached to the network as the parameters say; else what is not.
std::string validate(const TwinParams& params, const EnginePlan& plan, const FabricConfig& network);

// The plan holds every rank of the job and every port; plan and network have passed `validate`.
TwinOutcome run_twin(const EnginePlan& plan, const FabricConfig& network, const TwinParams& params);

}  // namespace etloop
