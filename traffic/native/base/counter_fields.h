// Fields of counter records in their order: ETLOOP_..._COUNTERS(FIELD) is FIELD(name) for each.
// Written by tools/write_counters.py from contract/model/counters.py, which says what each counts.
#pragma once

#define ETLOOP_QUEUE_PAIR_COUNTERS(FIELD) \
  FIELD(tx_messages) \
  FIELD(rx_messages) \
  FIELD(tx_payload_bytes) \
  FIELD(rx_payload_bytes) \
  FIELD(tx_packets) \
  FIELD(retransmitted_packets) \
  FIELD(rx_packets) \
  FIELD(acks_tx) \
  FIELD(acks_rx) \
  FIELD(naks_tx) \
  FIELD(naks_rx) \
  FIELD(out_of_sequence) \
  FIELD(duplicate_request) \
  FIELD(packet_seq_err) \
  FIELD(implied_nak_seq_err) \
  FIELD(rnr_nak_retry_err) \
  FIELD(out_of_buffer) \
  FIELD(local_ack_timeout_err) \
  FIELD(roce_adp_retrans) \
  FIELD(roce_adp_retrans_to) \
  FIELD(np_ecn_marked_roce_packets) \
  FIELD(np_cnp_sent) \
  FIELD(rp_cnp_handled) \
  FIELD(rp_cnp_ignored) \
  FIELD(rx_write_requests) \
  FIELD(rx_read_requests) \
  FIELD(rx_atomic_requests) \
  FIELD(read_response_bytes) \
  FIELD(tail_probes) \
  FIELD(trimmed_received) \
  FIELD(trimmed_answered) \
  FIELD(trimmed_resent) \
  FIELD(out_of_window) \
  FIELD(stale_answers) \
  FIELD(refused_requests) \
  FIELD(came_after_failure) \
  FIELD(injected_faults)

#define ETLOOP_PORT_COUNTERS(FIELD) \
  FIELD(tx_datagrams) \
  FIELD(rx_datagrams) \
  FIELD(tx_bytes) \
  FIELD(rx_bytes) \
  FIELD(tx_padding_bytes) \
  FIELD(rx_padding_bytes) \
  FIELD(tx_calls) \
  FIELD(rx_calls) \
  FIELD(would_block) \
  FIELD(injected_drops) \
  FIELD(foreign_datagrams) \
  FIELD(foreign_bad_frame) \
  FIELD(foreign_wrong_address) \
  FIELD(foreign_too_short) \
  FIELD(foreign_bad_length) \
  FIELD(foreign_bad_version) \
  FIELD(foreign_unknown_opcode) \
  FIELD(foreign_reserved_bits) \
  FIELD(foreign_wrong_p_key) \
  FIELD(foreign_unknown_qp) \
  FIELD(foreign_wrong_peer) \
  FIELD(foreign_unasked) \
  FIELD(foreign_cut_off) \
  FIELD(unclaimed_requests) \
  FIELD(unclaimed_acks) \
  FIELD(unclaimed_naks) \
  FIELD(unclaimed_controls) \
  FIELD(unclaimed_trimmed) \
  FIELD(rx_icrc_encapsulated) \
  FIELD(trimmed_datagrams) \
  FIELD(misdirected_datagrams) \
  FIELD(receive_overflows) \
  FIELD(receive_buffer_bytes) \
  FIELD(loop_turns) \
  FIELD(idle_turns) \
  FIELD(blocked_ns) \
  FIELD(rx_pause_frames) \
  FIELD(tx_pause_frames) \
  FIELD(paused_ns) \
  FIELD(injected_losses) \
  FIELD(injected_duplicates) \
  FIELD(injected_reorders) \
  FIELD(injected_delays) \
  FIELD(injected_bad_icrcs) \
  FIELD(injected_marks) \
  FIELD(injected_naks) \
  FIELD(injected_rnr_naks) \
  FIELD(injected_cnps) \
  FIELD(injected_trims) \
  FIELD(scheduled_datagrams) \
  FIELD(stamped_messages) \
  FIELD(card_stamped_messages)

#define ETLOOP_SWITCH_PORT_COUNTERS(FIELD) \
  FIELD(rx_packets) \
  FIELD(rx_bytes) \
  FIELD(tx_packets) \
  FIELD(tx_bytes) \
  FIELD(link_dropped_packets) \
  FIELD(fault_dropped_packets) \
  FIELD(fault_corrupted_packets) \
  FIELD(no_route_packets)

#define ETLOOP_PRIORITY_COUNTERS(FIELD) \
  FIELD(pfc_rx) \
  FIELD(pfc_tx)

#define ETLOOP_QUEUE_COUNTERS(FIELD) \
  FIELD(packets) \
  FIELD(bytes) \
  FIELD(dropped_packets) \
  FIELD(dropped_bytes) \
  FIELD(ecn_marked_packets) \
  FIELD(ecn_marked_bytes) \
  FIELD(trimmed_packets) \
  FIELD(trim_sent_packets) \
  FIELD(trim_dropped_packets) \
  FIELD(current_bytes) \
  FIELD(watermark_bytes) \
  FIELD(paused_ns) \
  FIELD(watchdog_storms) \
  FIELD(watchdog_dropped_packets)

#define ETLOOP_GROUP_COUNTERS(FIELD) \
  FIELD(dropped_packets) \
  FIELD(dropped_bytes) \
  FIELD(current_bytes) \
  FIELD(shared_watermark_bytes) \
  FIELD(headroom_bytes) \
  FIELD(headroom_watermark_bytes)
