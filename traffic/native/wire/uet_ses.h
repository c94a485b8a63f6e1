// Headers of the semantic sublayer (SES) of UET 1.0, with their layouts (wire/bits.h). Names: see wire/uet_pds.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

namespace etloop::wire::uet {

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

}  // namespace etloop::wire::uet
