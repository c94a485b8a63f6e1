// One packet of MRC on its way out: its headers as values, and the entropy value that it takes.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "wire/mrc.h"

namespace etloop::mrc {

struct Outgoing {
  wire::mrc::Packet packet;
  uint16_t entropy = 0;

  uint32_t psn() const { return packet.bth.psn; }
  bool asks() const { return packet.bth.sack_req; }
  void set_asks(bool asks) { packet.bth.sack_req = asks; }
  bool again() const { return packet.bth.retransmitted; }
  uint32_t payload_bytes() const { return write() == nullptr ? 0 : write()->payload_bytes; }
  const uint8_t* payload() const { return write() == nullptr ? nullptr : write()->payload; }
  size_t encode(std::span<uint8_t> out) const { return wire::mrc::encode_headers(packet, out); }

 private:
  const wire::mrc::Write* write() const { return std::get_if<wire::mrc::Write>(&packet.body); }
};

}  // namespace etloop::mrc
