// An outgoing UET packet: its header values and entropy value.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "plan/fault_rules.h"
#include "wire/uet.h"

namespace etloop::uet {

struct Outgoing {
  wire::uet::Packet packet;
  uint16_t entropy = 0;
  uint32_t narrow_psn = 0;  // for a request: its PSN in the multipath layer

  uint32_t psn() const { return narrow_psn; }
  bool asks() const { return request() != nullptr && request()->ack_request; }
  void set_asks(bool asks) {
    if (auto* header = std::get_if<wire::uet::Request>(&packet.pds)) header->ack_request = asks;
  }
  bool again() const { return request() != nullptr && request()->retransmitted; }
  uint32_t payload_bytes() const { return packet.payload_bytes; }
  const uint8_t* payload() const { return packet.payload; }
  // Return its kind for fault rules.
  FaultPackets kind() const { return kind_of(packet); }
  static FaultPackets kind_of(const wire::uet::Packet& packet) {
    if (const auto* write = std::get_if<wire::uet::StandardRequest>(&packet.ses)) {
      const auto& start = write->start;
      const bool grants = start.opcode == wire::uet::Operation::write && start.som && start.eom && !start.hd;
      return grants ? FaultPackets::clear_to_send : FaultPackets::data;
    }
    if (std::holds_alternative<wire::uet::Ack>(packet.pds)) return FaultPackets::ack;
    return std::holds_alternative<wire::uet::Nack>(packet.pds) ? FaultPackets::nak : FaultPackets::any;
  }
  size_t encode(std::span<uint8_t> out) const { return wire::uet::encode_headers(packet, out); }

 private:
  const wire::uet::Request* request() const { return std::get_if<wire::uet::Request>(&packet.pds); }
};

}  // namespace etloop::uet
