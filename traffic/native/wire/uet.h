// Headers of Ultra Ethernet Transport (UET 1.0) over UDP <-> values. Pure: bytes in, bytes out.
// Written without access to the specification: layouts are those on which independent implementations agree (docs/uet.md). Field
// names are the ones by which Wireshark's UET dissector filters. Enumerators are shown to users with blanks for underscores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace etloop::wire::uet {

inline constexpr uint16_t kUdpPort = 4793;

// ---- Packet delivery sublayer (PDS)

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
// What the receiver of a NACK does about its packet.
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

// ---- Semantic sublayer (SES)

enum class Operation : uint8_t {
  noop = 0x00,
  write = 0x01,
  read = 0x02,
  atomic = 0x03,
  fetch_atomic = 0x04,
  send = 0x05,
  rendezvous_send = 0x06,
  datagram = 0x07,
  deferrable_send = 0x08,
  tagged_send = 0x09,
  rendezvous_tagged_send = 0x0A,
  deferrable_tagged_send = 0x0B,
  ready_to_restart = 0x0C,
  tagged_send_atomic = 0x0D,
  tagged_send_fetch_atomic = 0x0E,
  message_error = 0x0F,
};

// Whether the header has restart tokens instead of an offset or a key, and header data in each packet.
constexpr bool is_deferrable(Operation opcode) {
  return opcode == Operation::deferrable_send || opcode == Operation::deferrable_tagged_send ||
         opcode == Operation::ready_to_restart;
}

// First 12 bytes of each SES request.
struct RequestStart {
  Operation opcode{};
  uint8_t version = 0;
  bool dc = false;
  bool ie = false;
  bool rel = false;
  bool hd = false;
  bool eom = false;
  bool som = false;
  uint16_t message_id = 0;      // standard requests
  uint16_t request_length = 0;  // small and medium requests
  uint8_t ri_generation = 0;
  uint32_t job_id = 0;
  uint16_t pid_on_fep = 0;
  uint16_t resource_index = 0;
  bool operator==(const RequestStart&) const = default;
};

constexpr void lay_out_start(auto& bits, auto& start, bool is_standard) {
  bits.reserved(2);
  bits.field(6, start.opcode, "opcode", "Operation");
  bits.field(2, start.version, "version", "Version");
  bits.field(1, start.dc, "dc", "Delivery complete");
  bits.field(1, start.ie, "ie", "Initiator error");
  bits.field(1, start.rel, "rel", "Relative address: by job, process and resource; otherwise by key alone");
  bits.field(1, start.hd, "hd", "Header data present");
  bits.field(1, start.eom, "eom", "End of message");
  bits.field(1, start.som, "som", "Start of message");
  if (is_standard) {
    bits.field(16, start.message_id, "message_id", "Message identifier");
  } else {
    bits.reserved(2);
    bits.field(14, start.request_length, "request_length", "Request length, in bytes");
  }
  bits.field(8, start.ri_generation, "ri_generation", "Generation of the resource index");
  bits.field(24, start.job_id, "job_id", "Job identifier");
  bits.reserved(4);
  bits.field(12, start.pid_on_fep, "pid_on_fep", "Process on the fabric endpoint");
  bits.reserved(4);
  bits.field(12, start.resource_index, "resource_index", "Resource index");
}

// Relative addresses name a queue pair: the upper 12 bits of its number are the process, the lower 12 the resource index.
constexpr void address_queue_pair(RequestStart& start, uint32_t number) {
  start.rel = true;
  start.pid_on_fep = static_cast<uint16_t>(number >> 12 & 0xFFF);
  start.resource_index = static_cast<uint16_t>(number & 0xFFF);
}
constexpr uint32_t queue_pair_at(const RequestStart& start) { return uint32_t{start.pid_on_fep} << 12 | start.resource_index; }

struct StandardRequest {
  static constexpr const char* kName = "standard_request";
  static constexpr size_t kBytes = 44;
  RequestStart start;
  uint64_t buffer_offset = 0;
  uint32_t initiator = 0;
  uint64_t memory_key = 0;
  uint64_t header_data = 0;     // with `som`, and with deferrable operations
  uint16_t payload_length = 0;  // otherwise
  uint32_t message_offset = 0;  // otherwise
  uint32_t message_length = 0;
  bool operator==(const StandardRequest&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_start(bits, header.start, true);
    bits.field(64, header.buffer_offset, "buffer_offset", "Buffer offset");
    bits.field(32, header.initiator, "initiator", "Initiator");
    bits.field(64, header.memory_key, "memory_key", "Memory key or match bits");
    if (header.start.som || is_deferrable(header.start.opcode)) {
      bits.field(64, header.header_data, "header_data", "Header data");
    } else {
      bits.reserved(18);
      bits.field(14, header.payload_length, "payload_length", "Payload length, in bytes");
      bits.field(32, header.message_offset, "message_offset", "Offset in the message, in bytes");
    }
    bits.field(32, header.message_length, "message_length", "Message length, in bytes");
  }
};

struct MediumRequest {
  static constexpr const char* kName = "medium_request";
  static constexpr size_t kBytes = 32;
  RequestStart start;
  uint64_t header_data = 0;  // or buffer offset
  uint32_t initiator = 0;
  uint64_t memory_key = 0;
  bool operator==(const MediumRequest&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_start(bits, header.start, false);
    bits.field(64, header.header_data, "header_data");
    bits.field(32, header.initiator, "initiator");
    bits.field(64, header.memory_key, "memory_key");
  }
};

struct SmallRequest {
  static constexpr const char* kName = "small_request";
  static constexpr size_t kBytes = 20;
  RequestStart start;
  uint64_t buffer_offset = 0;
  bool operator==(const SmallRequest&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_start(bits, header.start, false);
    bits.field(64, header.buffer_offset, "buffer_offset");
  }
};

enum class List : uint8_t { expected = 0, overflow = 1 };
enum class ResponseKind : uint8_t { normal = 0, response = 1, with_data = 2, none = 3 };
enum class ReturnCode : uint8_t {
  null = 0x00, ok = 0x01, bad_generation = 0x02, disabled = 0x03, no_match = 0x05, unsupported_operation = 0x06,
  unsupported_size = 0x07, bad_translation = 0x09, out_of_range = 0x0C, permission_violation = 0x17, bad_index = 0x19,
  bad_process = 0x1A, bad_job = 0x1B, bad_key = 0x1C, bad_address = 0x1D, cancelled = 0x1E, too_long = 0x22,
  initiator_error = 0x23, dropped = 0x24,
};

constexpr void lay_out_result(auto& bits, auto& header) {
  bits.field(2, header.list, "list", "List");
  bits.field(6, header.response, "response", "Response");
  bits.field(2, header.version, "version");
  bits.field(6, header.return_code, "return_code", "Return code");
}

struct Response {
  static constexpr const char* kName = "response";
  static constexpr size_t kBytes = 12;
  List list{};
  ResponseKind response{};
  uint8_t version = 0;
  ReturnCode return_code{};
  uint16_t message_id = 0;
  uint8_t ri_generation = 0;
  uint32_t job_id = 0;
  uint32_t modified_length = 0;
  bool operator==(const Response&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_result(bits, header);
    bits.field(16, header.message_id, "message_id");
    bits.field(8, header.ri_generation, "ri_generation");
    bits.field(24, header.job_id, "job_id");
    bits.field(32, header.modified_length, "modified_length", "Modified length, in bytes");
  }
};

struct DataResponse {
  static constexpr const char* kName = "response_with_data";
  static constexpr size_t kBytes = 20;
  List list{};
  ResponseKind response{};
  uint8_t version = 0;
  ReturnCode return_code{};
  uint16_t message_id = 0;
  uint32_t job_id = 0;
  uint16_t read_message_id = 0;
  uint16_t response_length = 0;
  uint32_t modified_length = 0;
  uint32_t message_offset = 0;
  bool operator==(const DataResponse&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_result(bits, header);
    bits.field(16, header.message_id, "message_id");
    bits.reserved(8);
    bits.field(24, header.job_id, "job_id");
    bits.field(16, header.read_message_id, "read_message_id", "Message identifier of the read request");
    bits.reserved(2);
    bits.field(14, header.response_length, "response_length", "Payload length, in bytes");
    bits.field(32, header.modified_length, "modified_length");
    bits.field(32, header.message_offset, "message_offset");
  }
};

struct SmallDataResponse {
  static constexpr const char* kName = "response_with_small_data";
  static constexpr size_t kBytes = 12;
  List list{};
  ResponseKind response{};
  uint8_t version = 0;
  ReturnCode return_code{};
  uint16_t response_length = 0;
  uint32_t job_id = 0;
  uint32_t original_psn = 0;
  bool operator==(const SmallDataResponse&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    lay_out_result(bits, header);
    bits.reserved(2);
    bits.field(14, header.response_length, "response_length");
    bits.reserved(8);
    bits.field(24, header.job_id, "job_id");
    bits.field(32, header.original_psn, "original_psn", "PSN of the request");
  }
};

using Ses = std::variant<std::monostate, StandardRequest, MediumRequest, SmallRequest, Response, DataResponse, SmallDataResponse>;

// ---- Packets

struct Packet {
  Pds pds;
  Ses ses;
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // in the decoded bytes; null if these hold the headers alone
  bool operator==(const Packet&) const = default;
};
inline constexpr size_t kMaxHeaderBytes = Ack::kBytes + AckState::kBytes + StandardRequest::kBytes;

enum class Malformed : uint8_t {
  none, too_short, unknown_type, encrypted, reserved_bits, next_header, version, message_ends, bad_length,
};

// Decode a UDP payload of `datagram_bytes` bytes, of which `bytes` holds the first ones, the headers at least. Extension headers
// of atomics count as payload.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);
// Whether the lengths that a write or a send states agree with each other and with its payload. Each packet of a message but the
// last is full, so a packet that a switch trimmed never passes for a complete one.
bool lengths_agree(const StandardRequest& request, uint32_t payload_bytes, uint32_t path_mtu);

// Write the headers up to the payload; return their length. The types and next headers must fit the values, and `out` must hold
// kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);

// Decode the PDS header of a trimmed packet, if enough of it is left.
Malformed decode_cut(std::span<const uint8_t> bytes, Pds& out);

}  // namespace etloop::wire::uet
