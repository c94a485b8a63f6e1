// One packet of UET on its way out: its headers as values, and the entropy value that it takes.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "wire/uet.h"

namespace etloop::uet {

struct Outgoing {
  wire::uet::Packet packet;
  uint16_t entropy = 0;
  uint32_t narrow_psn = 0;  // of a request, as the multipath layer counts

  uint32_t psn() const { return narrow_psn; }
  bool asks() const { return request() != nullptr && request()->asks; }
  void set_asks(bool asks) {
    if (auto* header = std::get_if<wire::uet::Request>(&packet.pds)) header->asks = asks;
  }
  bool again() const { return request() != nullptr && request()->retransmitted; }
  uint32_t payload_bytes() const { return packet.payload_bytes; }
  const uint8_t* payload() const { return packet.payload; }
  size_t encode(std::span<uint8_t> out) const { return wire::uet::encode_headers(packet, out); }

 private:
  const wire::uet::Request* request() const { return std::get_if<wire::uet::Request>(&packet.pds); }
};

}  // namespace etloop::uet
