// Flow level: a run in virtual time without packets. The ranks, lanes and messages of the engine (one core for all) over a
// network of links shared max-min fairly. A queue pair with messages is a flow; its messages leave in order. Not modelled: link
// capacity of acknowledgements and grants (their latency is); losses, queues, congestion control; rates are fair at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop_sign.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "virtual/flow_network.h"
#include "virtual/transfer_source.h"

namespace etloop {

struct FlowLevelParams {
  double tolerance = 0;  // of FairShares
  int64_t most_messages = 0;  // of the ranks that are run; 0: unlimited; more end the run
  bool folds = true;          // of 64 ranks or more, run one of those that are alike (virtual/alike_ranks.h); false: all
  Nanos limit_ns = 3'600'000'000'000;
  TransferSource* source = nullptr;  // gets the arrivals; the outcome then has records of other ranks alone
  StopAsked stop;
};

struct FlowLevelOutcome {
  std::vector<OpRecord> records;
  std::vector<WaitRecord> waits;  // if the run did not finish
  std::string failure;            // "": every rank finished
  bool too_many_messages = false;
  Nanos end_ns = 0;
  int64_t ranks_run = 0;          // fewer than the plan has: one of alike ranks is run for all
  int64_t messages = 0;           // messages or message parts of the ranks that were run
  int64_t most_live_flows = 0;    // of the ranks that were run
  int64_t settlings = 0;
  int64_t looks = 0;
  int64_t loosened = 0;
  std::vector<int64_t> link_bytes;  // by link, with headers
};

// Return why the network does not fit the plan, empty if it does: every way over existing links, each at most once, and one way
// per queue pair.
std::string validate(const FlowNetwork& network, const EnginePlan& plan);

// The plan has every rank of the job; the network has passed `validate`.
FlowLevelOutcome flow_level(const EnginePlan& plan, const FlowNetwork& network, const FlowLevelParams& params);

}  // namespace etloop
