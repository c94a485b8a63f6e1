// An outgoing MRC packet: its header values and entropy value.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "plan/fault_rules.h"
#include "wire/mrc.h"
#include "wire/wire.h"

namespace etloop::mrc {

struct Outgoing {
  wire::mrc::Packet packet;
  uint16_t entropy = 0;

  uint32_t psn() const { return packet.bth.psn; }
  bool asks() const { return packet.bth.sack_req; }
  void set_asks(bool asks) { packet.bth.sack_req = asks; }
  bool again() const { return packet.bth.rtx; }
  uint32_t payload_bytes() const { return write() == nullptr ? 0 : write()->payload_bytes; }
  const uint8_t* payload() const { return write() == nullptr ? nullptr : write()->payload; }
  // Return its kind for fault rules.
  FaultPackets kind() const { return kind_of(packet); }
  static FaultPackets kind_of(const wire::mrc::Packet& packet) {
    if (const auto* write = std::get_if<wire::mrc::Write>(&packet.body)) {
      const bool grants = packet.bth.opcode == wire::mrc::Opcode::write_only && !write->imm;  // data ends with an immediate
      return grants ? FaultPackets::clear_to_send : FaultPackets::data;
    }
    if (std::holds_alternative<wire::mrc::Sack>(packet.body)) return FaultPackets::ack;
    if (std::holds_alternative<wire::mrc::Neth>(packet.body)) return FaultPackets::nak;
    const auto* aeth = std::get_if<wire::mrc::Aeth>(&packet.body);
    if (aeth == nullptr) return FaultPackets::any;
    return aeth->syndrome == wire::kSyndromeAck ? FaultPackets::ack : FaultPackets::nak;
  }
  size_t encode(std::span<uint8_t> out) const { return wire::mrc::encode_headers(packet, out); }

 private:
  const wire::mrc::Write* write() const { return std::get_if<wire::mrc::Write>(&packet.body); }
};

}  // namespace etloop::mrc
