// Records of the engine's measurements, laid out as contract/model/records.py reads them. Counters are those of
// contract/model/counters.py.
#pragma once

#include <cstdint>

#include "base/counter_fields.h"

namespace etloop {

struct OpRecord {
  int64_t intended_ns;
  int64_t issued_ns;
  int64_t first_tx_ns;
  int64_t completed_ns;
  int64_t acknowledged_ns;
  int64_t wire_tx_bytes;
  int64_t wire_rx_bytes;
  int64_t local_tx_bytes;
  int64_t local_rx_bytes;
  int32_t rank;
  int32_t op;
  int32_t iteration;
  int32_t tx_messages;
  int32_t rx_messages;
  int32_t reserved;
};
static_assert(sizeof(OpRecord) == 96);

struct FlowRecord {
  uint32_t local_qpn;
  uint32_t remote_qpn;
  int32_t connection;
  int32_t sends_data;
#define ETLOOP_FIELD(name) int64_t name;
  ETLOOP_QUEUE_PAIR_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
};

struct PortRecord {
#define ETLOOP_FIELD(name) int64_t name;
  ETLOOP_PORT_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
};

// The rate control of one queue pair at one moment.
struct CcRecord {
  int64_t time_ns;
  int64_t rate_bps;
  int64_t window_bytes;
  int64_t in_flight_bytes;
  int64_t acked_bytes;
  int64_t tx_packets;
  int64_t rtt_ns;
  int32_t connection;
  uint32_t local_qpn;
};
static_assert(sizeof(CcRecord) == 64);

enum class WaitKind : int32_t {
  dependency = 0,
  delay = 1,
  clear_to_send = 2,
  data = 3,
  acknowledgement = 4,
  lane = 5,
};

// Packet number of a wait for acknowledgements where every packet that was sent is acknowledged. A real number has 24 bits.
constexpr uint32_t kNoPsn = UINT32_MAX;

struct WaitRecord {
  int32_t rank;
  int32_t op;
  int32_t iteration;
  WaitKind kind;
  int32_t peer_rank;
  int32_t blocking_op;
  int32_t connection;
  int32_t messages_done;
  int32_t messages_total;
  uint32_t psn;
};
static_assert(sizeof(WaitRecord) == 40);

}  // namespace etloop
