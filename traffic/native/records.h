// What the engine measures, laid out as contract/records.py reads it.
#pragma once

#include <cstdint>

namespace etloop {

struct OpRecord {
  int64_t intended_ns;
  int64_t issued_ns;
  int64_t first_tx_ns;
  int64_t completed_ns;
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
static_assert(sizeof(OpRecord) == 88);

struct FlowRecord {
  uint32_t local_qpn;
  uint32_t remote_qpn;
  int32_t connection;
  int32_t sends_data;
  int64_t tx_messages;
  int64_t tx_payload_bytes;
  int64_t tx_packets;
  int64_t retransmitted_packets;
  int64_t rx_messages;
  int64_t rx_payload_bytes;
  int64_t rx_packets;
  int64_t acks_tx;
  int64_t acks_rx;
  int64_t naks_tx;
  int64_t naks_rx;
  int64_t timeouts;
  int64_t duplicates_rx;
  int64_t out_of_order_rx;
  int64_t ecn_marked_rx;
  int64_t cnps_rx;
};
static_assert(sizeof(FlowRecord) == 144);

struct PortRecord {
  int64_t tx_datagrams;
  int64_t tx_bytes;
  int64_t rx_datagrams;
  int64_t rx_bytes;
  int64_t tx_calls;
  int64_t rx_calls;
  int64_t would_block;
  int64_t injected_drops;
  int64_t foreign_datagrams;
  int64_t receive_overflows;
  int64_t receive_buffer_bytes;
  int64_t loop_turns;
  int64_t idle_turns;
  int64_t blocked_ns;
};
static_assert(sizeof(PortRecord) == 112);

enum class WaitKind : int32_t {
  dependency = 0,
  delay = 1,
  clear_to_send = 2,
  data = 3,
  acknowledgement = 4,
  lane = 5,
};

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
