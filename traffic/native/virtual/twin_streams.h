// UDP streams next to a job in virtual time: the schedule of their datagrams, by the rule of traffic/udp_streams.py. Pure: time
// in, numbers of datagrams out. The twin carries the datagrams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ip_address.h"
#include "switch/switch_model.h"

namespace etloop {

struct TwinStream {
  uint32_t from = 0;  // attachments
  uint32_t to = 0;
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t src_udp_port = 0;
  uint16_t udp_port = 0;  // destination port
  uint8_t traffic_class = 0;
  int64_t rate_bps = 0;  // payload rate
  int64_t datagram_bytes = 0;
  Nanos start_ns = 0;  // after the start of the ranks
  Nanos stop_ns = 0;   // 0: at the end of the run
};

// Return the bytes of the Ethernet frame around a datagram of the stream, with FCS.
int32_t frame_bytes_of(const TwinStream& stream);

struct TwinStreamCounters {
  int64_t sent = 0;      // datagrams handed to the card
  int64_t left_out = 0;  // not sent in time
  int64_t lost = 0;      // sent, but lost
};

class TwinStreams {
 public:
  // Agents serve their streams at this interval, and catch up this much.
  static constexpr Nanos kTickNs = 1'000'000;
  static constexpr Nanos kMostBehindNs = 100'000'000;

  explicit TwinStreams(const std::vector<TwinStream>& streams);

  void begin(Nanos job_start_ns);
  // Stop all streams.
  void end();
  // Time of the next tick of a stream; kNever if there is none.
  Nanos due_ns() const { return states_.empty() ? kNever : first_due_ns(); }
  // Serve a stream whose tick has come at `now`: return the number of datagrams to send. The next tick is one interval later.
  int64_t look(size_t stream, Nanos now);
  bool is_due(size_t stream, Nanos now) const { return states_[stream].next_ns <= now; }
  // Note that `datagrams` of them were sent.
  void sent(size_t stream, int64_t datagrams);
  void lost(size_t stream) { ++counters_[stream].lost; }

  size_t size() const { return states_.size(); }
  const TwinStream& stream(size_t stream) const { return streams_[stream]; }
  const std::vector<TwinStreamCounters>& counters() const { return counters_; }

 private:
  Nanos first_due_ns() const;

  struct State {
    Nanos next_ns = kNever;
    Nanos end_ns = kNever;
    int64_t credit = 0;    // credit below a datagram, in bits times nanoseconds per second
    int64_t waiting = 0;   // datagrams due but not sent
  };

  const std::vector<TwinStream>& streams_;
  std::vector<State> states_;
  std::vector<TwinStreamCounters> counters_;
};

}  // namespace etloop
