// Opcodes of the reliable connection: role, extension headers and payload rule of each. Tables only.
// Source: InfiniBand Architecture Specification vol. 1, tables 38 and 39; CNP: annex A17.9.3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace etloop::wire {

enum class Opcode : uint8_t {
  send_first = 0x00,
  send_middle = 0x01,
  send_last = 0x02,
  send_last_imm = 0x03,
  send_only = 0x04,
  send_only_imm = 0x05,
  write_first = 0x06,
  write_middle = 0x07,
  write_last = 0x08,
  write_last_imm = 0x09,
  write_only = 0x0A,
  write_only_imm = 0x0B,
  read_request = 0x0C,
  read_response_first = 0x0D,
  read_response_middle = 0x0E,
  read_response_last = 0x0F,
  read_response_only = 0x10,
  acknowledge = 0x11,
  atomic_acknowledge = 0x12,
  compare_swap = 0x13,
  fetch_add = 0x14,
  send_last_invalidate = 0x16,
  send_only_invalidate = 0x17,
  ud_send_only = 0x64,
  cnp = 0x81,
  // Manufacturer-specific range (11xxxxxx), above MRC's 110xxxxx: a sequence error NAK followed by a bitmap of the PSNs received
  // beyond it. Only between ends with selective repeat (docs/transport.md).
  selective_nak = 0xF1,
  // Manufacturer-specific: the packet with this PSN arrived without its payload. Makes no statement about other packets.
  trimmed_nak = 0xF2,
};

// Extension headers that follow the BTH, in this order.
struct Extensions {
  bool reth = false;
  bool atomic = false;
  bool imm = false;
  bool aeth = false;
  bool atomic_ack = false;
  bool ieth = false;
  bool deth = false;
  bool cnp_reserved = false;
};

// Role of a packet in a transfer.
enum class Role : uint8_t { unknown, write, send, read, atomic, response, acknowledgement, notification, datagram };

// Payload lengths that an opcode allows for any path MTU. The queue pair also checks that FIRST and MIDDLE have one path MTU.
enum class PayloadRule : uint8_t { none, any, some, whole_words, bitmap };

struct Shape {
  Role role = Role::unknown;
  bool begins = false;  // first packet of a message: FIRST or ONLY
  bool ends = false;    // last packet of a message: LAST or ONLY
  PayloadRule payload = PayloadRule::none;
  Extensions has;
};

inline constexpr size_t kSelectiveBitmapBytes = 32;

namespace detail {

constexpr std::array<Shape, 256> make_shapes() {
  std::array<Shape, 256> shapes{};
  const auto put = [&shapes](Opcode opcode, const Shape& shape) { shapes[static_cast<uint8_t>(opcode)] = shape; };
  put(Opcode::send_first, {Role::send, true, false, PayloadRule::whole_words, {}});
  put(Opcode::send_middle, {Role::send, false, false, PayloadRule::whole_words, {}});
  put(Opcode::send_last, {Role::send, false, true, PayloadRule::some, {}});
  put(Opcode::send_last_imm, {Role::send, false, true, PayloadRule::some, {.imm = true}});
  put(Opcode::send_only, {Role::send, true, true, PayloadRule::any, {}});
  put(Opcode::send_only_imm, {Role::send, true, true, PayloadRule::any, {.imm = true}});
  put(Opcode::send_last_invalidate, {Role::send, false, true, PayloadRule::some, {.ieth = true}});
  put(Opcode::send_only_invalidate, {Role::send, true, true, PayloadRule::any, {.ieth = true}});
  put(Opcode::write_first, {Role::write, true, false, PayloadRule::whole_words, {.reth = true}});
  put(Opcode::write_middle, {Role::write, false, false, PayloadRule::whole_words, {}});
  put(Opcode::write_last, {Role::write, false, true, PayloadRule::some, {}});
  put(Opcode::write_last_imm, {Role::write, false, true, PayloadRule::some, {.imm = true}});
  put(Opcode::write_only, {Role::write, true, true, PayloadRule::any, {.reth = true}});
  put(Opcode::write_only_imm, {Role::write, true, true, PayloadRule::any, {.reth = true, .imm = true}});
  put(Opcode::read_request, {Role::read, true, true, PayloadRule::none, {.reth = true}});
  put(Opcode::read_response_first, {Role::response, true, false, PayloadRule::whole_words, {.aeth = true}});
  put(Opcode::read_response_middle, {Role::response, false, false, PayloadRule::whole_words, {}});
  put(Opcode::read_response_last, {Role::response, false, true, PayloadRule::some, {.aeth = true}});
  put(Opcode::read_response_only, {Role::response, true, true, PayloadRule::any, {.aeth = true}});
  put(Opcode::acknowledge, {Role::acknowledgement, true, true, PayloadRule::none, {.aeth = true}});
  put(Opcode::selective_nak, {Role::acknowledgement, true, true, PayloadRule::bitmap, {.aeth = true}});
  put(Opcode::trimmed_nak, {Role::acknowledgement, true, true, PayloadRule::none, {.aeth = true}});
  put(Opcode::atomic_acknowledge, {Role::response, true, true, PayloadRule::none, {.aeth = true, .atomic_ack = true}});
  put(Opcode::compare_swap, {Role::atomic, true, true, PayloadRule::none, {.atomic = true}});
  put(Opcode::fetch_add, {Role::atomic, true, true, PayloadRule::none, {.atomic = true}});
  put(Opcode::ud_send_only, {Role::datagram, true, true, PayloadRule::any, {.deth = true}});
  put(Opcode::cnp, {Role::notification, true, true, PayloadRule::none, {.cnp_reserved = true}});
  return shapes;
}

inline constexpr std::array<Shape, 256> kShapes = make_shapes();

}  // namespace detail

constexpr const Shape& shape(Opcode opcode) { return detail::kShapes[static_cast<uint8_t>(opcode)]; }
constexpr bool is_known(uint8_t opcode) { return detail::kShapes[opcode].role != Role::unknown; }
// Whether the opcode is MRC's, which shares the BTH and differs in the first three bits.
constexpr bool is_mrc(uint8_t opcode) { return opcode >> 5 == 0b110; }

// Whether the responder handles the packet.
constexpr bool is_request(Opcode opcode) {
  const Role role = shape(opcode).role;
  return role == Role::write || role == Role::send || role == Role::read || role == Role::atomic;
}

}  // namespace etloop::wire
