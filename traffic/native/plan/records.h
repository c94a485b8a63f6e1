// What the engine measures, laid out as contract/model/records.py reads it.
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
  // From here on as mlx5 names and counts them (Linux: sysfs hw_counters), but for one queue pair.
  int64_t out_of_sequence;
  int64_t duplicate_request;
  int64_t packet_seq_err;
  int64_t implied_nak_seq_err;
  int64_t rnr_nak_retry_err;
  int64_t out_of_buffer;
  int64_t local_ack_timeout_err;
  int64_t roce_adp_retrans;
  int64_t roce_adp_retrans_to;
  int64_t np_ecn_marked_roce_packets;
  int64_t np_cnp_sent;
  int64_t rp_cnp_handled;
  int64_t rp_cnp_ignored;
  int64_t rx_write_requests;
  int64_t rx_read_requests;
  int64_t rx_atomic_requests;
  int64_t read_response_bytes;
  int64_t injected_faults;
};
static_assert(sizeof(FlowRecord) == 248);

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
  int64_t rx_icrc_encapsulated;
  int64_t receive_overflows;
  int64_t receive_buffer_bytes;
  int64_t loop_turns;
  int64_t idle_turns;
  int64_t blocked_ns;
  int64_t rx_pause_frames;
  int64_t tx_pause_frames;
  int64_t paused_ns;
  // Faults of the scenario, by action (fault_rules.h).
  int64_t injected_losses;
  int64_t injected_duplicates;
  int64_t injected_reorders;
  int64_t injected_delays;
  int64_t injected_bad_icrcs;
  int64_t injected_marks;
  int64_t injected_naks;
  int64_t injected_rnr_naks;
  int64_t injected_cnps;
  int64_t scheduled_datagrams;  // sent with a departure time, which the kernel kept
  int64_t stamped_messages;     // received with a stamp of the kernel or the card; several datagrams may share one
  int64_t card_stamped_messages;
};
static_assert(sizeof(PortRecord) == 240);

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
