// Settings of queue pairs, as contract/model/transport.py and congestion.py declare them.
// Written by tools/write_settings.py.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "plan/setting.h"

namespace etloop {

// Transport of messages between queue pairs.
enum class TransportKind : uint8_t { roce = 0, mrc = 1, uet = 2 };

// Which queue pair of a port sends next while several have data. Cards differ, so both are settings
// (docs/transport.md).
struct ArbitrationSettings {
  // Packets that a queue pair sends in its turn; 1 is packet by packet. 0: 4 in virtual time, else one send call of the
  // port, and on `udp` ports 64 with short messages first.
  uint32_t burst_packets = 0;
  // Serve a higher class strictly first. The class of a queue pair is DSCP / 8, as `mlnx_qos` maps by default; jobs
  // have a DSCP each.
  bool by_class = false;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("burst_packets", settings.burst_packets, SettingBounds{0, 1'024, 0});
    visitor("by_class", settings.by_class);
  }
};

// How a receiver answers a trimmed packet.
enum class TrimAnswer : uint8_t { none = 0, nak = 1, selective = 2 };

// Packets that a switch trimmed instead of dropping them.
struct TrimSettings {
  // DSCPs that switches give to trimmed packets. Left out, a trimmed packet counts as damaged.
  NumberSet dscps;
  // How a receiver answers one. Left out, nak, or selective with selective_repeat; `off` only counts them.
  TrimAnswer answer = TrimAnswer::none;
  // DSCPs that the last switch gives, at ports with a host; MRC and UET report it to the sender, which keeps the path.
  NumberSet last_hop_dscps;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("dscps", settings.dscps);
    visitor("answer", settings.answer, SettingBounds{0, 2, 0});
    visitor("last_hop_dscps", settings.last_hop_dscps);
  }
};

// Retransmission and resources of queue pairs.
struct RecoverySettings {
  // Which packets are sent again after a loss. selective_repeat needs an ETLoop endpoint at both ends.
  bool selective_repeat = false;
  // How a receiver handles packets ahead of their turn. Switches that spray need accept.
  bool accept_out_of_order = false;
  // Adapt the timeout to measured round trips and double it on each retry; else every wait is `timeout`.
  bool adaptive_timeout = true;
  // The shortest adaptive timeout. A plan may lengthen the default.
  Nanos timeout_floor_ns = 20'000'000;
  // With selective_repeat and MRC, the shortest silence after which the oldest and newest packets under way are sent
  // again, or MRC asks for a SACK; 0 never. Left out, a quarter of `timeout_floor`.
  Nanos tail_probe_ns = -1;
  // With `out_of_order: accept`, how far ahead a packet may be before the missing one counts as lost.
  uint32_t reorder_packets = 64;
  // Retries after receiver-not-ready NAKs in a row; 7 retries for ever.
  uint32_t rnr_retry_limit = 7;
  // How long a receiver that is not ready asks its sender to wait.
  uint32_t min_rnr_timer_code = 12;
  // READs and atomics of a queue pair that may be outstanding.
  uint32_t outstanding_reads = 16;
  // First packet sequence number; drawn for every run if left out.
  uint32_t initial_psn = 0;
  TrimSettings trimming;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("selective_repeat", settings.selective_repeat);
    visitor("accept_out_of_order", settings.accept_out_of_order);
    visitor("adaptive_timeout", settings.adaptive_timeout);
    visitor("timeout_floor_ns", settings.timeout_floor_ns, SettingBounds{0, 60'000'000'000, 20'000'000});
    visitor("tail_probe_ns", settings.tail_probe_ns, SettingBounds{0, 60'000'000'000, -1});
    visitor("reorder_packets", settings.reorder_packets, SettingBounds{1, 256, 64});
    visitor("rnr_retry_limit", settings.rnr_retry_limit, SettingBounds{0, 7, 7});
    visitor("min_rnr_timer_code", settings.min_rnr_timer_code, SettingBounds{0, 31, 12});
    visitor("outstanding_reads", settings.outstanding_reads, SettingBounds{1, 128, 16});
    visitor("initial_psn", settings.initial_psn, SettingBounds{0, 16'777'215, 0});
    visitor("trimming", settings.trimming);
  }
};

// Scope of the least time between two congestion notifications.
enum class CnpScope : uint8_t { queue_pair = 0, port = 1 };

// Congestion notification packets (CNPs) that answer marked packets. Defaults of time and DSCP: ConnectX.
struct CnpSettings {
  // Whether receivers answer marks at all.
  bool send = true;
  // Least time between two notifications.
  Nanos interval_ns = 4'000;
  // Whether the interval counts per queue pair or per port.
  CnpScope scope = CnpScope::queue_pair;
  // DSCP of notifications.
  uint32_t dscp = 48;
  // ECN field of notifications.
  uint32_t ecn = 0;
  // VLAN priority of notifications; needs `vlan`. 6 if left out.
  int32_t vlan_priority = -1;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("send", settings.send);
    visitor("interval_ns", settings.interval_ns, SettingBounds{0, 1'000'000'000, 4'000});
    visitor("scope", settings.scope, SettingBounds{0, 1, 0});
    visitor("dscp", settings.dscp, SettingBounds{0, 63, 48});
    visitor("ecn", settings.ecn, SettingBounds{0, 3, 0});
    visitor("vlan_priority", settings.vlan_priority, SettingBounds{0, 7, -1});
  }
};

// DSCP, ECN and VLAN priority of one kind of packet.
struct MarkSettings {
  // DSCP of these packets; as data if left out.
  int32_t dscp = -1;
  // ECN field of these packets; as data if left out.
  int32_t ecn = -1;
  // VLAN priority of these packets; needs `vlan`; as data if left out.
  int32_t vlan_priority = -1;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("dscp", settings.dscp, SettingBounds{0, 63, -1});
    visitor("ecn", settings.ecn, SettingBounds{0, 3, -1});
    visitor("vlan_priority", settings.vlan_priority, SettingBounds{0, 7, -1});
  }
};

// How a sender draws the entropy value of its next packet.
enum class EntropyChoice : uint8_t { rotation = 0, oblivious = 1, recycled = 2, penalties = 3 };

// In which order a receiver of UET takes packets.
enum class DeliveryOrder : uint8_t { any = 0, sent = 1 };

// Credits that receivers of UET grant to their senders (RCCC); defaults as in Ultra Ethernet's simulator.
struct CreditSettings {
  // Whether receivers grant credit next to the sender's control (RCCC); implied by `cc` with algorithm rccc.
  bool granted = false;
  // Initial and largest credit of a sender, in bandwidth-delay products.
  uint32_t window_percent = 150;
  // Packets of one grant.
  uint32_t quantum_packets = 4;
  // Share of the receiver's link rate that is granted.
  uint32_t share_per_million = 1'000'000;
  bool alone = false;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("granted", settings.granted);
    visitor("window_percent", settings.window_percent, SettingBounds{10, 10'000, 150});
    visitor("quantum_packets", settings.quantum_packets, SettingBounds{1, 64, 4});
    visitor("share_per_million", settings.share_per_million, SettingBounds{10'000, 1'000'000, 1'000'000});
    visitor("alone", settings.alone);
  }
};

// Keys of `uet:` that MRC does not have.
struct UetSettings {
  // Idle time after which a packet delivery context is closed; 0 keeps it for ever.
  Nanos close_after_ns = 10'000'000;
  // rud takes packets as they arrive, each by its own path; rod takes them in order, by one path, and repeats
  // everything from the missing packet on.
  DeliveryOrder order = DeliveryOrder::any;
  // Operations that carry data: writes to the address in a grant, or sends to the receive that it names.
  bool sends = false;
  CreditSettings credit;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("close_after_ns", settings.close_after_ns, SettingBounds{0, 60'000'000'000, 10'000'000});
    visitor("order", settings.order, SettingBounds{0, 1, 0});
    visitor("sends", settings.sends);
    visitor("credit", settings.credit);
  }
};

// Path choice and acknowledgements of queue pairs whose packets take many paths: keys of `mrc:` and `uet:`.
struct MultipathSettings {
  // How the entropy value of the next packet is drawn.
  EntropyChoice choice = EntropyChoice::rotation;
  // Entropy values between two addresses, each a UDP source port.
  uint32_t entropy_values = 128;
  // Values that stay in use even if unanswered. Left out, 8, or all where there are fewer.
  uint32_t least_active = 8;
  // Bytes that arrive between two SACKs of MRC or ACKs of UET (ACK_Gen_Trigger) that nothing else causes.
  uint32_t sack_bytes = 16'384;
  UetSettings uet;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("choice", settings.choice, SettingBounds{0, 3, 0});
    visitor("entropy_values", settings.entropy_values, SettingBounds{1, 1'024, 128});
    visitor("least_active", settings.least_active, SettingBounds{1, 1'024, 8});
    visitor("sack_bytes", settings.sack_bytes, SettingBounds{1, 16'777'216, 16'384});
    visitor("uet", settings.uet);
  }
};

// How queue pairs of a run carry their messages.
struct TransportSettings {
  // Transport of messages: RoCEv2's reliable connection, or MRC (docs/mrc.md) or Ultra Ethernet's transport
  // (docs/uet.md), which send every packet on a path of its own.
  TransportKind kind = TransportKind::roce;
  // Payload of a packet in bytes; 4096 needs frames of 4,158 bytes.
  uint32_t path_mtu_bytes = 4'096;
  // DSCP of every packet whose kind has none of its own.
  uint32_t dscp = 26;
  // ECN field of data; `none` keeps devices from marking, and data with `ce` is answered as if a device had marked all.
  uint32_t ecn = 2;
  // Packets in flight on a queue pair; 0 sets no limit but the receiver's buffer.
  uint32_t window_packets = 0;
  // At most so many packets between two ACK requests. Left out, 1 or 256 by the algorithm.
  uint32_t ack_every_packets = 0;
  // The longest wait for an ACK before packets are sent again (InfiniBand: local ACK timeout). A plan may lengthen the
  // default.
  Nanos timeout_ns = 640'000'000;
  // Timeouts in a row after which a queue pair gives up.
  uint32_t retry_limit = 7;
  // Cut every message over all queue pairs (NCCL_IB_SPLIT_DATA_ON_QPS), in place of whole messages in turn.
  bool split_data_on_qps = false;
  // Which queue pair of a port sends next.
  ArbitrationSettings arbitration;
  RecoverySettings recovery;
  // Congestion notification packets.
  CnpSettings cnp;
  // Marks of ACKs and NAKs; as data if left out.
  MarkSettings ack;
  // Marks of clear-to-send messages; as data if left out.
  MarkSettings clear_to_send;
  MultipathSettings multipath;
  bool segmentation_offload = true;
  bool own_packets_apart = false;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("kind", settings.kind, SettingBounds{0, 2, 0});
    visitor("path_mtu_bytes", settings.path_mtu_bytes, SettingBounds{256, 4'096, 4'096});
    visitor("dscp", settings.dscp, SettingBounds{0, 63, 26});
    visitor("ecn", settings.ecn, SettingBounds{0, 3, 2});
    visitor("window_packets", settings.window_packets, SettingBounds{0, 65'536, 0});
    visitor("ack_every_packets", settings.ack_every_packets, SettingBounds{1, 65'536, 0});
    visitor("timeout_ns", settings.timeout_ns, SettingBounds{100'000, 60'000'000'000, 640'000'000});
    visitor("retry_limit", settings.retry_limit, SettingBounds{0, 63, 7});
    visitor("split_data_on_qps", settings.split_data_on_qps);
    visitor("arbitration", settings.arbitration);
    visitor("recovery", settings.recovery);
    visitor("cnp", settings.cnp);
    visitor("ack", settings.ack);
    visitor("clear_to_send", settings.clear_to_send);
    visitor("multipath", settings.multipath);
    visitor("segmentation_offload", settings.segmentation_offload);
    visitor("own_packets_apart", settings.own_packets_apart);
  }
};

// Departures of packets at queue pairs below the line rate.
struct PacingSettings {
  // Largest burst that a queue pair below the line rate sends back to back; at least one packet.
  uint32_t burst_bytes = 65'536;
  // Longest host delay that a queue pair below the line rate makes up for, by sending at the rate of the port.
  Nanos catch_up_ns = 1'000'000;
  // Highest rate of a queue pair, whatever the algorithm allows, in link bytes; none if left out.
  uint64_t limit_bps = 0;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("burst_bytes", settings.burst_bytes, SettingBounds{1, 1'073'741'824, 65'536});
    visitor("catch_up_ns", settings.catch_up_ns, SettingBounds{0, 1'000'000'000, 1'000'000});
    visitor("limit_bps", settings.limit_bps, SettingBounds{1'000'000, 3'200'000'000'000, 0});
  }
};

// Rates and windows that are recorded over time.
struct SeriesSettings {
  // Interval at which rates and windows are recorded; never if left out.
  Nanos interval_ns = 0;
  // Queue pairs of a port that are recorded; 0 records all.
  uint32_t queue_pairs = 0;

  template <typename Settings, typename Visitor>
  static void visit(Settings& settings, Visitor&& visitor) {
    visitor("interval_ns", settings.interval_ns, SettingBounds{1'000, 3'600'000'000'000, 0});
    visitor("queue_pairs", settings.queue_pairs, SettingBounds{0, 16'777'216, 0});
  }
};

}  // namespace etloop
