// A whole run in virtual time without packets: the ranks, lanes and messages of the engine (one core for all of them) over
// a network of links that flows share max-min fairly. A queue pair with messages to send is a flow; its messages leave it
// in order. What is left out: packets, acknowledgements and grants take no room on links (both take time); nothing is lost,
// queued or controlled, rates are fair from the first moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop_sign.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "virtual/fair_shares.h"

namespace etloop {

// What the connections of a plan cross. A connection on the wire has a way for each queue pair, any other has one, in the
// order of the connections: way w is parts [way_offsets[w], way_offsets[w + 1]).
struct FlowNetwork {
  // Of a way: from the last bit sent to the last bit there, beside what stores take; and nanoseconds for each bit of a packet
  // that switches store before they send it on.
  struct Delay {
    Nanos latency_ns;
    double store_ns_per_bit;
  };
  std::vector<int64_t> link_bps;
  std::vector<int64_t> way_offsets;
  std::vector<LinkShare> parts;
  std::vector<Delay> delays;
};

struct FlowLevelParams {
  double tolerance = 0;  // of FairShares
  int64_t most_messages = 0;  // 0: any number; more end the run
  Nanos limit_ns = 3'600'000'000'000;
  StopAsked stop;
};

struct FlowLevelOutcome {
  std::vector<OpRecord> records;
  std::vector<WaitRecord> waits;  // of a run that did not finish
  std::string failure;            // "" when every rank finished
  bool too_many_messages = false;
  Nanos end_ns = 0;
  int64_t messages = 0;           // carried, or parts of such
  int64_t most_live_flows = 0;
  int64_t settlings = 0;
  int64_t looks = 0;
  int64_t loosened = 0;
  std::vector<int64_t> link_bytes;  // by link, what it carried with headers
};

// Empty if every way leads over links of the network, each at most once, and there are as many as the plan needs.
std::string validate(const FlowNetwork& network, const EnginePlan& plan);

// The plan holds every rank of the job; the network has passed `validate`.
FlowLevelOutcome flow_level(const EnginePlan& plan, const FlowNetwork& network, const FlowLevelParams& params);

}  // namespace etloop
