// Answers what a card sends without end, from a packet socket: every request of one queue pair is noted with its time and
// acknowledged, a batch by the acknowledgement of its newest. For experiments on cards that are faster than Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

inline constexpr size_t kNotedBytes = 80;  // of every frame: all headers of a request

struct EndlessAnswer {
  int fd = -1;
  std::vector<uint8_t> acknowledgement;  // a whole frame without FCS, to the card; its PSN and ICRC are written anew
  uint32_t our_qpn = 0;
  size_t most = 0;           // requests, after which it ends
  Nanos until_ns = -1;       // of the monotonic clock; negative: as long as something comes
  Nanos patience_ns = 0;     // without a request, after which it ends where `until_ns` is negative
};

struct AnsweredRequests {
  std::vector<Nanos> at_ns;  // real time, by the kernel's stamps
  std::vector<uint32_t> frame_bytes;
  std::vector<uint8_t> heads;    // kNotedBytes of each
  uint64_t acknowledgements = 0;
  int error = 0;             // errno of a socket that takes or gives nothing; 0: none
};

// The socket is one of frames (SOCK_RAW) with SO_TIMESTAMPNS. A signal ends it early. Frames of others are dropped.
AnsweredRequests answer_requests(const EndlessAnswer& order);

}  // namespace etloop
