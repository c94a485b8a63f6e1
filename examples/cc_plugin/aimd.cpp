// A congestion control of one's own: additive increase, multiplicative decrease of a window, on ECN marks and losses.
//
// A scenario uses it by   transport: {cc: {plugin: aimd.cpp, cut: 1/4}}   and every agent that is started with
// --allow-plugins compiles it for itself. Only etloop_cc.h is needed; it says what each field means.
#include <algorithm>
#include <cstdint>

#include "etloop_cc.h"

namespace {

// Parameters that a scenario may set, by name and with units; `etloop plan` refuses other names and values out of the limits.
enum { kIncrease, kCut, kInitialWindow, kParameters };
const etloop_cc_parameter parameters[] = {
    {"increase", ETLOOP_CC_RATIO, 0, 1, 0.01, 100, "packets by which the window grows a round trip"},
    {"cut", ETLOOP_CC_RATIO, 0, 0.5, 0.01, 0.99, "share of the window that a mark or a loss takes"},
    {"initial_window", ETLOOP_CC_COUNT, 0, 16, 1, 65536, "packets under way at first"},
};

// One of these for every queue pair that sends data, zeroed before init. No allocation, no globals that are written:
// other queue pairs may be on other threads.
struct State {
  double window_bytes;
  uint64_t cut_until_bytes;  // one cut for each window of data: what was sent before it says nothing new
};

void decide(State& state, const etloop_cc_path& path, etloop_cc_decision& decision) {
  const double least = path.mtu_bytes;
  state.window_bytes = std::clamp(state.window_bytes, least, std::max(least, double(path.most_window_bytes)));
  decision.window_bytes = uint64_t(state.window_bytes);
  decision.rate_bps = 0;  // a window alone; the packets leave as fast as the port takes them
}

void init(void* blob, const etloop_cc_path* path, int64_t, etloop_cc_decision* decision) {
  State& state = *static_cast<State*>(blob);
  state.window_bytes = path->parameters[kInitialWindow] * path->mtu_bytes;
  decide(state, *path, *decision);
}

void cut(State& state, const etloop_cc_path& path, uint64_t acked_bytes, uint64_t sent_bytes) {
  if (acked_bytes < state.cut_until_bytes) return;
  state.window_bytes *= 1 - path.parameters[kCut];
  state.cut_until_bytes = sent_bytes;
}

void on_ack(void* blob, const etloop_cc_path* path, const etloop_cc_ack* ack, etloop_cc_decision* decision) {
  State& state = *static_cast<State*>(blob);
  if (ack->ecn_marked) {
    cut(state, *path, ack->acked_total_bytes, ack->sent_total_bytes);
  } else {
    state.window_bytes += path->parameters[kIncrease] * path->mtu_bytes * double(ack->acked_bytes) / state.window_bytes;
  }
  decide(state, *path, *decision);
}

void on_loss(void* blob, const etloop_cc_path* path, const etloop_cc_signal* loss, etloop_cc_decision* decision) {
  State& state = *static_cast<State*>(blob);
  cut(state, *path, loss->acked_total_bytes, loss->sent_total_bytes);
  decide(state, *path, *decision);
}

etloop_cc_algorithm table() {
  etloop_cc_algorithm made{};
  made.abi_version = ETLOOP_CC_ABI_VERSION;
  made.table_bytes = sizeof made;
  made.name = "aimd";
  made.meaning = "window; halves on ECN marks and losses";
  made.needs = ETLOOP_CC_NEEDS_ECN;
  made.state_bytes = sizeof(State);
  made.parameters = parameters;
  made.parameter_count = kParameters;
  made.init = init;
  made.on_ack = on_ack;
  made.on_nak = on_loss;
  made.on_timeout = on_loss;
  return made;
}

}  // namespace

extern "C" const etloop_cc_algorithm* etloop_cc_plugin(void) {
  static const etloop_cc_algorithm algorithm = table();
  return &algorithm;
}
