// Headers of the packet delivery sublayer (PDS) of UET 1.0, with their layouts (wire/bits.h).
// Written without access to the specification: layouts are those on which independent implementations agree (docs/uet.md). Field
// names are the ones by which Wireshark's UET dissector filters. Enumerators are shown to users with blanks for underscores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

namespace etloop::wire::uet {

enum class PdsType : uint8_t {
  tss = 1,
  rud_request = 2,
  rod_request = 3,
  rudi_request = 4,
  rudi_response = 5,
  uud_request = 6,
  ack = 7,
  ack_cc = 8,
  ack_ccx = 9,
  nack = 10,
  control = 11,
  nack_ccx = 12,
  rud_cc_request = 13,
  rod_cc_request = 14,
};

// Whether the request uses reliable ordered delivery (ROD).
constexpr bool is_ordered(PdsType type) { return type == PdsType::rod_request || type == PdsType::rod_cc_request; }

// The SES header that follows the PDS header.
enum class NextHeader : uint8_t {
  none = 0, small = 1, medium = 2, standard = 3, response = 4, response_with_data = 5, response_with_small_data = 6,
};

constexpr void lay_out_prologue(auto& bits, auto& header) {
  bits.field(5, header.type, "type", "PDS type");
  bits.field(4, header.next_header, "next_header", "Next header");
}

constexpr void lay_out_pdcs(auto& bits, auto& header) {
  bits.field(16, header.spdcid, "spdcid", "Source PDC identifier");
  bits.field(16, header.dpdcid, "dpdcid", "Destination PDC identifier");
}

// The PDCs of a packet that may open one: with SYN the destination has no identifier yet.
constexpr void lay_out_opening_pdcs(auto& bits, auto& header) {
  if (!header.syn) return lay_out_pdcs(bits, header);
  bits.field(16, header.spdcid, "spdcid");
  bits.field(1, header.use_rsv_pdc, "use_rsv_pdc", "Use a reserved PDC");
  bits.reserved(3);
  bits.field(12, header.psn_offset, "psn_offset", "Offset of the PSN from the first PSN of the PDC");
}

// Congestion control part of a request whose type has `cc` in its name.
struct CreditTarget {
  static constexpr const char* kName = "credit_target";
  static constexpr size_t kBytes = 4;
  uint8_t ccc_id = 0;
  uint32_t credit_target = 0;
  bool operator==(const CreditTarget&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(8, header.ccc_id, "ccc_id", "Congestion control context");
    bits.field(24, header.credit_target, "credit_target", "Credit requested, in 256 bytes");
  }
};

// RUD or ROD request.
struct Request {
  static constexpr const char* kName = "request";
  static constexpr size_t kBytes = 12;
  PdsType type = PdsType::rud_request;
  NextHeader next_header = NextHeader::standard;
  bool retransmitted = false;
  bool ack_request = false;
  bool syn = false;
  bool use_rsv_pdc = false;  // with `syn`
  int16_t clear_psn_offset = 0;
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;      // without `syn`
  uint16_t psn_offset = 0;  // with `syn`
  std::optional<CreditTarget> credit = {};
  bool operator==(const Request&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_prologue(bits, header);
    bits.reserved(2);
    bits.field(1, header.retransmitted, "retransmitted", "Retransmission");
    bits.field(1, header.ack_request, "ack_request", "Acknowledgement requested");
    bits.field(1, header.syn, "syn", "SYN");
    bits.reserved(2);
    bits.field(16, header.clear_psn_offset, "clear_psn_offset", "Highest PSN whose response may be cleared, relative to the PSN");
    bits.field(32, header.psn, "psn", "Packet sequence number or packet identifier");
    lay_out_opening_pdcs(bits, header);
  }
};

// RUDI request or response.
struct Idempotent {
  static constexpr const char* kName = "idempotent";
  static constexpr size_t kBytes = 8;
  PdsType type = PdsType::rudi_request;
  NextHeader next_header = NextHeader::standard;
  bool marked = false;
  bool retransmitted = false;
  uint32_t pkt_id = 0;
  bool operator==(const Idempotent&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_prologue(bits, header);
    bits.reserved(1);
    bits.field(1, header.marked, "marked");
    bits.field(1, header.retransmitted, "retransmitted");
    bits.reserved(4 + 16);
    bits.field(32, header.pkt_id, "pkt_id", "Packet identifier");
  }
};

// UUD request.
struct Unreliable {
  static constexpr const char* kName = "unreliable";
  static constexpr size_t kBytes = 4;
  PdsType type = PdsType::uud_request;
  NextHeader next_header = NextHeader::standard;
  bool operator==(const Unreliable&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_prologue(bits, header);
    bits.reserved(7 + 16);
  }
};

enum class CcType : uint8_t { nscc = 0, credit = 1 };

// SACK and congestion control part of ACK_CC and ACK_CCX.
struct AckState {
  static constexpr const char* kName = "ack_state";
  static constexpr size_t kBytes = 20;
  CcType cc_type = CcType::nscc;  // the layout of `cc_state`: NsccState or CreditState
  uint8_t cc_flags = 0;
  uint8_t mpr = 0;  // 0: not stated
  int16_t sack_psn_offset = 0;
  uint64_t sack_bitmap = 0;  // a clear bit makes no statement about its PSN
  uint64_t cc_state = 0;
  bool operator==(const AckState&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(4, header.cc_type, "cc_type", "Congestion control type");
    bits.field(4, header.cc_flags, "cc_flags", "Congestion control flags");
    bits.field(8, header.mpr, "mpr", "Maximum PSN range, in 128 PSNs");
    bits.field(16, header.sack_psn_offset, "sack_psn_offset", "PSN of the bitmap's lowest bit, relative to the cumulative PSN");
    bits.field(64, header.sack_bitmap, "sack_bitmap", "PSNs received, lowest bit first");
    bits.field(64, header.cc_state, "cc_state", "Congestion control state");
  }
};

struct NsccState {
  static constexpr const char* kName = "nscc_state";
  static constexpr size_t kBytes = 8;
  uint16_t service_time = 0;  // 0: not given
  bool restore_cwnd = false;
  uint8_t rcv_cwnd_pend = 0;
  uint32_t rcvd_bytes = 0;
  uint16_t ooo_count = 0;
  bool operator==(const NsccState&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(16, header.service_time, "service_time", "Service time, in 128 ns");
    bits.field(1, header.restore_cwnd, "restore_cwnd", "Restore the congestion window");
    bits.field(7, header.rcv_cwnd_pend, "rcv_cwnd_pend", "Receiver's congestion window penalty");
    bits.field(24, header.rcvd_bytes, "rcvd_bytes", "Bytes received, in 256 bytes");
    bits.field(16, header.ooo_count, "ooo_count", "Packets received out of order");
  }
};

struct CreditState {
  static constexpr const char* kName = "credit_state";
  static constexpr size_t kBytes = 8;
  uint32_t credit = 0;
  uint16_t ooo_count = 0;
  bool operator==(const CreditState&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(24, header.credit, "credit", "Credit granted in all, in 256 bytes");
    bits.reserved(24);
    bits.field(16, header.ooo_count, "ooo_count");
  }
};

// Congestion control part of NACK_CCX; also the raw form of the two states above.
struct CcxState {
  static constexpr const char* kName = "ccx_state";
  static constexpr size_t kBytes = 8;
  uint64_t cc_state = 0;
  bool operator==(const CcxState&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) { bits.field(64, header.cc_state, "cc_state"); }
};

// Pack the states into `AckState::cc_state`, and unpack them.
uint64_t packed(const NsccState& state);
NsccState nscc_state(uint64_t packed);
uint64_t packed(const CreditState& state);
CreditState credit_state(uint64_t packed);

enum class AckRequest : uint8_t { none = 0, clear = 1, close = 2 };

struct Ack {
  static constexpr const char* kName = "ack";
  static constexpr size_t kBytes = 12;
  PdsType type = PdsType::ack;
  NextHeader next_header = NextHeader::none;
  bool marked = false;
  bool retransmitted = false;
  bool answers_probe = false;
  AckRequest request = AckRequest::none;
  int16_t ack_psn_offset = 0;  // without `answers_probe`
  uint16_t probe_opaque = 0;   // with `answers_probe`
  uint32_t cack_psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  std::optional<AckState> state = {};  // with ack_cc and ack_ccx
  bool operator==(const Ack&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_prologue(bits, header);
    bits.reserved(1);
    bits.field(1, header.marked, "marked", "Packet received was ECN-marked");
    bits.field(1, header.retransmitted, "retransmitted");
    bits.field(1, header.answers_probe, "answers_probe", "Answers a probe");
    bits.field(2, header.request, "request", "Target requests");
    bits.reserved(1);
    if (header.answers_probe) {
      bits.field(16, header.probe_opaque, "probe_opaque", "Probe identifier");
    } else {
      bits.field(16, header.ack_psn_offset, "ack_psn_offset", "PSN acknowledged, relative to the cumulative PSN");
    }
    bits.field(32, header.cack_psn, "cack_psn", "Cumulative PSN: all up to here were received");
    lay_out_pdcs(bits, header);
  }
};

enum class NackCode : uint8_t {
  trimmed = 0x01,
  trimmed_last_hop = 0x02,
  trimmed_ack = 0x03,
  no_pdc = 0x04,
  no_congestion_context = 0x05,
  no_bitmap = 0x06,
  no_packet_buffer = 0x07,
  no_guaranteed_delivery = 0x08,
  no_message = 0x09,
  no_resource = 0x0A,
  psn_out_of_window = 0x0B,
  rod_out_of_order = 0x0D,
  invalid_dpdcid = 0x0E,
  header_mismatch = 0x0F,
  closing = 0x10,
  closing_in_error = 0x11,
  packet_not_received = 0x12,
  response_unavailable = 0x13,
  ack_with_data = 0x14,
  invalid_syn = 0x15,
  mode_mismatch = 0x16,
  new_start_psn = 0x17,
  received_in_process = 0x18,
  unexpected_event = 0x19,
  loss_inferred = 0x1A,
};
// The reaction of a NACK's receiver for the packet.
enum class NackAction : uint8_t { retransmit, close, ignore };
// Unknown codes close the PDC.
NackAction action_of(NackCode code);

struct Nack {
  static constexpr const char* kName = "nack";
  static constexpr size_t kBytes = 16;
  PdsType type = PdsType::nack;
  NextHeader next_header = NextHeader::none;
  bool marked = false;
  bool retransmitted = false;
  bool of_rudi = false;
  NackCode nack_code{};
  uint8_t vendor_code = 0;
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  uint32_t payload = 0;  // new_start_psn: the start PSN; other codes: one past the highest PSN received, or 0
  std::optional<CcxState> ccx_state = {};  // with nack_ccx
  bool operator==(const Nack&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_prologue(bits, header);
    bits.reserved(1);
    bits.field(1, header.marked, "marked");
    bits.field(1, header.retransmitted, "retransmitted");
    bits.field(1, header.of_rudi, "of_rudi", "Packet refused used RUDI");
    bits.reserved(3);
    bits.field(8, header.nack_code, "nack_code", "NACK code");
    bits.field(8, header.vendor_code, "vendor_code", "Vendor code");
    bits.field(32, header.psn, "psn");
    lay_out_pdcs(bits, header);
    bits.field(32, header.payload, "payload", "Payload");
  }
};

enum class ControlType : uint8_t {
  noop = 0, ack_request = 1, clear_command = 2, clear_request = 3, close_command = 4, close_request = 5, probe = 6,
  credit = 7, credit_request = 8, negotiation = 9,
};

struct Control {
  static constexpr const char* kName = "control";
  static constexpr size_t kBytes = 16;
  PdsType type = PdsType::control;
  ControlType control_type{};
  bool rod = false;
  bool retransmitted = false;
  bool ack_request = false;
  bool syn = false;
  bool use_rsv_pdc = false;  // with `syn`
  uint16_t probe_opaque = 0;
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;      // without `syn`
  uint16_t psn_offset = 0;  // with `syn`
  uint32_t payload = 0;
  bool operator==(const Control&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(5, header.type, "type");
    bits.field(4, header.control_type, "control_type", "Control type");
    bits.reserved(1);
    bits.field(1, header.rod, "rod", "PDC uses ROD");
    bits.field(1, header.retransmitted, "retransmitted");
    bits.field(1, header.ack_request, "ack_request");
    bits.field(1, header.syn, "syn");
    bits.reserved(2);
    bits.field(16, header.probe_opaque, "probe_opaque");
    bits.field(32, header.psn, "psn");
    lay_out_opening_pdcs(bits, header);
    bits.field(32, header.payload, "payload");
  }
};

using Pds = std::variant<Request, Idempotent, Unreliable, Ack, Nack, Control>;

}  // namespace etloop::wire::uet
