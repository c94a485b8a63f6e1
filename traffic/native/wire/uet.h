// The headers of Ultra Ethernet's transport (UET 1.0) over UDP <-> values. Pure: bytes in, bytes out.
// The specification was not read; layouts are those on which independent implementations agree (docs/uet.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace etloop::wire::uet {

inline constexpr uint16_t kUdpPort = 4793;

// ---- packet delivery (PDS)

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

// Requests of reliable ordered delivery.
constexpr bool is_ordered(PdsType type) { return type == PdsType::rod_request || type == PdsType::rod_cc_request; }

// What stands behind the header of packet delivery.
enum class NextHeader : uint8_t {
  none = 0, small = 1, medium = 2, standard = 3, response = 4, response_with_data = 5, response_with_small_data = 6,
};

// Of a packet that has none yet at its destination: sent with `syn`, in place of `dpdcid`.
constexpr uint16_t syn_place(uint16_t psn_offset) { return psn_offset & 0xFFF; }
constexpr uint16_t psn_offset_of(uint16_t syn_place) { return syn_place & 0xFFF; }
inline constexpr uint16_t kReservedPdc = 0x8000;  // beside the offset: a PDC of those kept for the purpose

// The credit that a request asks for; of the types with `cc` in their name.
struct CreditTarget {
  static constexpr size_t kBytes = 4;
  uint8_t context = 0;  // ccc_id
  uint32_t target_256bytes = 0;
  bool operator==(const CreditTarget&) const = default;
};

// Of a request that a reliable PDC carries.
struct Request {
  static constexpr size_t kBytes = 12;
  PdsType type = PdsType::rud_request;
  NextHeader next = NextHeader::standard;
  bool retransmitted = false;
  bool asks = false;  // for an acknowledgement
  bool syn = false;
  int16_t clear_psn_offset = 0;  // from `psn`: responses up to there may be forgotten
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;  // with `syn`: syn_place
  std::optional<CreditTarget> credit;
  bool operator==(const Request&) const = default;
};

// Of a request without a PDC, and of its response.
struct Idempotent {
  static constexpr size_t kBytes = 8;
  PdsType type = PdsType::rudi_request;
  NextHeader next = NextHeader::standard;
  bool marked = false;
  bool retransmitted = false;
  uint32_t packet_id = 0;
  bool operator==(const Idempotent&) const = default;
};

struct Unreliable {
  static constexpr size_t kBytes = 4;
  PdsType type = PdsType::uud_request;
  NextHeader next = NextHeader::standard;
  bool operator==(const Unreliable&) const = default;
};

enum class AckRequest : uint8_t { none = 0, clear = 1, close = 2 };

// Of ACK_CC and ACK_CCX: which packets have arrived beyond the cumulative one, and what congestion control is told.
struct AckState {
  static constexpr size_t kBytes = 20;
  uint8_t cc_type = 0;  // 0: NsccState, 1: CreditState
  uint8_t cc_flags = 0;
  uint8_t window_128psns = 0;  // 0: none is stated
  int16_t sack_psn_offset = 0;  // of the bitmap's first bit, from `cack_psn`
  uint64_t sack_bitmap = 0;     // lowest bit first; 1: has arrived, 0: not reported
  uint64_t state = 0;
  bool operator==(const AckState&) const = default;
};

struct NsccState {
  static constexpr size_t kBytes = 8;
  uint16_t service_128ns = 0;  // 0: not given
  bool restore_window = false;
  uint8_t window_penalty = 0;
  uint32_t received_256bytes = 0;
  uint16_t out_of_order = 0;
  bool operator==(const NsccState&) const = default;
};

struct CreditState {
  static constexpr size_t kBytes = 8;
  uint32_t credit_256bytes = 0;
  uint16_t out_of_order = 0;
  bool operator==(const CreditState&) const = default;
};

// As the state of an ACK that says so by its type.
uint64_t packed(const NsccState& state);
NsccState nscc_state(uint64_t packed);
uint64_t packed(const CreditState& state);
CreditState credit_state(uint64_t packed);

struct Ack {
  static constexpr size_t kBytes = 12;
  PdsType type = PdsType::ack;
  NextHeader next = NextHeader::none;
  bool marked = false;         // the packet that caused it had Congestion Experienced
  bool retransmitted = false;  // and was sent again
  bool answers_probe = false;
  AckRequest request = AckRequest::none;
  int16_t ack_psn_offset = 0;  // of the packet that caused it, from `cack_psn`; the probe's number when `answers_probe`
  uint32_t cack_psn = 0;       // everything up to here has arrived
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  std::optional<AckState> state;  // of ack_cc and ack_ccx
  bool operator==(const Ack&) const = default;
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
// What whoever asked is to do.
enum class NackAction : uint8_t { repeat, close, ignore };
// Codes that are not in the table close the PDC.
NackAction action_of(NackCode code);

struct Nack {
  static constexpr size_t kBytes = 16;
  PdsType type = PdsType::nack;
  NextHeader next = NextHeader::none;
  bool marked = false;
  bool retransmitted = false;
  bool of_idempotent = false;
  NackCode code{};
  uint8_t vendor = 0;
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  uint32_t payload = 0;  // the start PSN of new_start_psn; elsewhere the highest received and one more, or nothing
  std::optional<uint64_t> ccx_state;  // of nack_ccx: its type in the first four bits
  bool operator==(const Nack&) const = default;
};

enum class ControlType : uint8_t {
  noop = 0, ack_request = 1, clear_command = 2, clear_request = 3, close_command = 4, close_request = 5, probe = 6,
  credit = 7, credit_request = 8, negotiation = 9,
};

struct Control {
  static constexpr size_t kBytes = 16;
  PdsType type = PdsType::control;
  ControlType control{};
  bool of_rod = false;
  bool retransmitted = false;
  bool asks = false;
  bool syn = false;
  uint16_t probe_id = 0;
  uint32_t psn = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;  // with `syn`: syn_place
  uint32_t payload = 0;
  bool operator==(const Control&) const = default;
};

using Pds = std::variant<Request, Idempotent, Unreliable, Ack, Nack, Control>;

// ---- semantics (SES)

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

// Its header has tokens where others have an offset or a key, and header data in whatever packet.
constexpr bool is_deferred(Operation operation) {
  return operation == Operation::deferrable_send || operation == Operation::deferrable_tagged_send ||
         operation == Operation::ready_to_restart;
}

// What every request begins with. Its third and fourth byte are the message's number in a standard header, its length in others.
struct RequestStart {
  static constexpr size_t kBytes = 12;
  Operation operation{};
  uint8_t version = 0;
  bool delivery_complete = false;
  bool initiator_error = false;
  bool relative = false;        // addressed by job, process and resource; else by key alone
  bool has_header_data = false;
  bool end_of_message = false;
  bool start_of_message = false;
  uint16_t message_id_or_bytes = 0;
  uint8_t generation = 0;
  uint32_t job_id = 0;
  uint16_t process = 0;   // pid_on_fep
  uint16_t resource = 0;  // resource_index
  bool operator==(const RequestStart&) const = default;
};

// A queue pair as what relative addresses name: its number's upper half is a process, the lower one a resource of it.
constexpr void address_queue_pair(RequestStart& start, uint32_t number) {
  start.relative = true;
  start.process = static_cast<uint16_t>(number >> 12 & 0xFFF);
  start.resource = static_cast<uint16_t>(number & 0xFFF);
}
constexpr uint32_t queue_pair_at(const RequestStart& start) { return uint32_t{start.process} << 12 | start.resource; }

struct StandardRequest {
  static constexpr size_t kBytes = 44;
  RequestStart start;
  uint64_t buffer_offset = 0;  // of the message
  uint32_t initiator = 0;
  uint64_t memory_key = 0;     // or match bits
  uint64_t header_data = 0;    // with start_of_message
  uint16_t payload_bytes = 0;  // without
  uint32_t message_offset = 0;
  uint32_t message_bytes = 0;
  bool operator==(const StandardRequest&) const = default;
};

struct MediumRequest {
  static constexpr size_t kBytes = 32;
  RequestStart start;
  uint64_t header_data_or_offset = 0;
  uint32_t initiator = 0;
  uint64_t memory_key = 0;
  bool operator==(const MediumRequest&) const = default;
};

struct SmallRequest {
  static constexpr size_t kBytes = 20;
  RequestStart start;
  uint64_t buffer_offset = 0;
  bool operator==(const SmallRequest&) const = default;
};

struct AtomicExtension {
  static constexpr size_t kBytes = 4;
  uint8_t operation = 0;
  uint8_t datatype = 0;
  bool cacheable = false;
  bool coherent = false;
  uint8_t vendor = 0;  // six bits
  bool operator==(const AtomicExtension&) const = default;
};

struct CompareSwapExtension {
  static constexpr size_t kBytes = 36;
  AtomicExtension atomic;
  uint64_t compare_high = 0;
  uint64_t compare_low = 0;
  uint64_t swap_high = 0;
  uint64_t swap_low = 0;
  bool operator==(const CompareSwapExtension&) const = default;
};

enum class ResponseKind : uint8_t { normal = 0, response = 1, with_data = 2, none = 3 };
enum class ReturnCode : uint8_t {
  null = 0x00, ok = 0x01, bad_generation = 0x02, disabled = 0x03, no_match = 0x05, unsupported_operation = 0x06,
  unsupported_size = 0x07, bad_translation = 0x09, out_of_range = 0x0C, permission_violation = 0x17, bad_index = 0x19,
  bad_process = 0x1A, bad_job = 0x1B, bad_key = 0x1C, bad_address = 0x1D, cancelled = 0x1E, too_long = 0x22,
  initiator_error = 0x23, dropped = 0x24,
};

struct Response {
  static constexpr size_t kBytes = 12;
  uint8_t list = 0;  // 0 expected, 1 overflow
  ResponseKind kind{};
  uint8_t version = 0;
  ReturnCode code{};
  uint16_t message_id = 0;
  uint8_t generation = 0;
  uint32_t job_id = 0;
  uint32_t modified_bytes = 0;
  bool operator==(const Response&) const = default;
};

struct DataResponse {
  static constexpr size_t kBytes = 20;
  uint8_t list = 0;
  ResponseKind kind{};
  uint8_t version = 0;
  ReturnCode code{};
  uint16_t message_id = 0;
  uint32_t job_id = 0;
  uint16_t read_message_id = 0;
  uint16_t payload_bytes = 0;
  uint32_t modified_bytes = 0;
  uint32_t message_offset = 0;
  bool operator==(const DataResponse&) const = default;
};

struct SmallDataResponse {
  static constexpr size_t kBytes = 12;
  uint8_t list = 0;
  ResponseKind kind{};
  uint8_t version = 0;
  ReturnCode code{};
  uint16_t payload_bytes = 0;
  uint32_t job_id = 0;
  uint32_t request_psn = 0;
  bool operator==(const SmallDataResponse&) const = default;
};

using Ses = std::variant<std::monostate, StandardRequest, MediumRequest, SmallRequest, Response, DataResponse, SmallDataResponse>;

// The bytes of one header. `Header` is one of the values above, without what may follow it.
template <typename Header>
void encode_header(const Header& header, std::span<uint8_t, Header::kBytes> out);
template <typename Header>
Header decode_header(std::span<const uint8_t, Header::kBytes> bytes);

// ---- packets

struct Packet {
  Pds pds;
  Ses ses;
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // where it was received; null where only headers are here
  bool operator==(const Packet&) const = default;
};
inline constexpr size_t kMaxHeaderBytes = Ack::kBytes + AckState::kBytes + StandardRequest::kBytes;

enum class Malformed : uint8_t {
  none, too_short, unknown_type, encrypted, reserved_bits, next_header, version, message_ends, bad_length,
};

// Decodes a UDP payload of `datagram_bytes` bytes, of which at least the headers stand in `bytes`. Extensions of atomics count
// as payload.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);
// Whether the lengths that a write or a send states agree with each other and with its payload: every packet of a message but
// the last is full, so that what a switch left of one never passes for it.
bool lengths_agree(const StandardRequest& request, uint32_t payload_bytes, uint32_t path_mtu);

// Writes the headers up to the payload; returns their length. The types and next headers fit the values; `out` holds at least
// kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);

// What is left of a packet that a switch cut down: the header of packet delivery, if enough of it is there.
Malformed decode_cut(std::span<const uint8_t> bytes, Pds& out);

}  // namespace etloop::wire::uet
