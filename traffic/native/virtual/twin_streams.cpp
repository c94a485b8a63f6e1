#include "virtual/twin_streams.h"

#include <algorithm>

#include "cc/flow_controls.h"

namespace etloop {

namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

constexpr int64_t kLeastFrameBytes = 64;

int64_t credit_of_datagram(const TwinStream& stream) { return stream.datagram_bytes * 8 * kNsPerSecond; }

}  // namespace

int32_t frame_bytes_of(const TwinStream& stream) {
  const int64_t around = (stream.dst_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6) - kLineOverheadBytes;
  return static_cast<int32_t>(std::max(stream.datagram_bytes + around, kLeastFrameBytes));
}

TwinStreams::TwinStreams(const std::vector<TwinStream>& streams)
    : streams_(streams), states_(streams.size()), counters_(streams.size()) {}

void TwinStreams::begin(Nanos job_start_ns) {
  for (size_t i = 0; i < states_.size(); ++i) {
    // The first datagram is sent one tick after the start.
    states_[i].next_ns = job_start_ns + streams_[i].start_ns + kTickNs;
    if (streams_[i].stop_ns > 0) states_[i].end_ns = job_start_ns + streams_[i].stop_ns;
    if (states_[i].next_ns >= states_[i].end_ns) states_[i].next_ns = kNever;
  }
}

void TwinStreams::end() {
  for (State& state : states_) state.next_ns = kNever;
}

Nanos TwinStreams::first_due_ns() const {
  Nanos first_ns = kNever;
  for (const State& state : states_) first_ns = std::min(first_ns, state.next_ns);
  return first_ns;
}

int64_t TwinStreams::look(size_t stream, Nanos now) {
  const TwinStream& own = streams_[stream];
  State& state = states_[stream];
  // At most 10 Gb/s for a millisecond plus less than a datagram: far below 2^63.
  state.credit += own.rate_bps * kTickNs;
  const int64_t whole = credit_of_datagram(own);
  state.waiting += state.credit / whole;
  state.credit %= whole;
  const int64_t most = own.rate_bps * (kMostBehindNs / kTickNs) / (own.datagram_bytes * 8 * (kNsPerSecond / kTickNs));
  if (state.waiting > std::max<int64_t>(most, 1)) {
    counters_[stream].left_out += state.waiting - std::max<int64_t>(most, 1);
    state.waiting = std::max<int64_t>(most, 1);
  }
  state.next_ns = now + kTickNs < state.end_ns ? now + kTickNs : kNever;
  return state.waiting;
}

void TwinStreams::sent(size_t stream, int64_t datagrams) {
  states_[stream].waiting -= datagrams;
  counters_[stream].sent += datagrams;
}

}  // namespace etloop
