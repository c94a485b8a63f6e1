// Acknowledges all requests of one queue pair of a card from a packet socket: notes each with its time, and acknowledges a batch
// by its newest. For experiments with cards that are faster than Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace etloop {

inline constexpr size_t kNotedBytes = 80;  // bytes noted per frame: all headers of a request

struct EndlessAnswer {
  int fd = -1;
  std::vector<uint8_t> acknowledgement;  // frame without FCS to the card; its PSN and ICRC are rewritten
  uint32_t our_qpn = 0;
  size_t most = 0;           // ends after so many requests
  Nanos until_ns = -1;       // monotonic; negative: see `patience_ns`
  Nanos patience_ns = 0;     // if `until_ns` is negative: ends after so long without a request
};

struct AnsweredRequests {
  std::vector<Nanos> at_ns;  // real time, from kernel timestamps
  std::vector<uint32_t> frame_bytes;
  std::vector<uint8_t> heads;    // kNotedBytes of each
  uint64_t acknowledgements = 0;
  int error = 0;             // errno of a failed socket; 0: none
};

// `order`'s socket is a SOCK_RAW packet socket with SO_TIMESTAMPNS. A signal ends the call early. Other frames are dropped.
AnsweredRequests answer_requests(const EndlessAnswer& order);

}  // namespace etloop
