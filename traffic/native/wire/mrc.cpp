#include "wire/mrc.h"

#include "wire/bits.h"

namespace etloop::wire::mrc {
namespace {

template <typename... Headers>
consteval bool all_fill_their_bytes() {
  return (fills_its_bytes<Headers>() && ...);
}

static_assert(all_fill_their_bytes<Bth, Meth, Tseth, Reth, Immediate, Aeth, Seth, CcState, Neth, Peth, Erth, Eeth>());
static_assert(fills_its_bytes(Seth{.answers_probe = true}));
static_assert(kMaxHeaderBytes >= Bth::kBytes + Seth::kBytes + CcState::kBytes);
static_assert(kMaxHeaderBytes >= Bth::kBytes + Meth::kBytes + Tseth::kBytes + Reth::kBytes + Immediate::kBytes);

size_t header_bytes(const Bth& bth) {
  switch (bth.opcode) {
    case Opcode::ack: return Bth::kBytes + Aeth::kBytes;
    case Opcode::endpoint_request: return Bth::kBytes + Erth::kBytes;
    case Opcode::endpoint_response: return Bth::kBytes + Eeth::kBytes;
    case Opcode::sack: return Bth::kBytes + Seth::kBytes + CcState::kBytes;
    case Opcode::nack: return Bth::kBytes + Neth::kBytes;
    case Opcode::probe: return Bth::kBytes + Peth::kBytes;
    default: break;
  }
  return Bth::kBytes + Meth::kBytes + (bth.ts ? Tseth::kBytes : 0) + Reth::kBytes +
         (has_immediate(bth.opcode) ? Immediate::kBytes : 0);
}

bool payload_fits(Opcode opcode, uint32_t payload_bytes, uint32_t message_bytes) {
  if (payload_bytes > message_bytes) return false;
  switch (opcode) {
    case Opcode::write_first:
    case Opcode::write_middle: return payload_bytes > 0 && payload_bytes % 4 == 0 && payload_bytes < message_bytes;
    case Opcode::write_last:
    case Opcode::write_last_imm: return payload_bytes > 0 && payload_bytes < message_bytes;
    default: return payload_bytes == message_bytes;
  }
}

bool is_reason(NackReason reason) {
  switch (reason) {
    case NackReason::trimmed:
    case NackReason::trimmed_last_hop:
    case NackReason::no_bitmap:
    case NackReason::no_packet_buffer:
    case NackReason::no_resource:
    case NackReason::psn_out_of_window:
    case NackReason::unexpected_event: return true;
  }
  return false;
}

Malformed decode_bth(std::span<const uint8_t> bytes, Bth& out) {
  if (bytes.size() < Bth::kBytes) return Malformed::too_short;
  if (bytes[0] >> 5 != 0b110) return Malformed::not_mrc;
  if (!is_known(bytes[0])) return Malformed::unknown_opcode;
  out = HeaderReader{bytes}.take<Bth>();
  return out.tver == 0 ? Malformed::none : Malformed::transport_version;
}

Write decode_write(HeaderReader& front, const Bth& bth, uint32_t payload_bytes) {
  Write write;
  write.meth = front.take<Meth>();
  if (bth.ts) write.tseth = front.take<Tseth>();
  write.reth = front.take<Reth>();
  if (has_immediate(bth.opcode)) write.imm = front.take<Immediate>();
  write.payload_bytes = payload_bytes;
  if (payload_bytes > 0 && front.left() >= payload_bytes) write.payload = front.rest();
  return write;
}

Body decode_control(HeaderReader& front, Opcode opcode) {
  switch (opcode) {
    case Opcode::endpoint_request: return front.take<Erth>();
    case Opcode::endpoint_response: return front.take<Eeth>();
    case Opcode::nack: return front.take<Neth>();
    case Opcode::probe: return front.take<Peth>();
    case Opcode::sack: {
      const Seth seth = front.take<Seth>();
      return Sack{seth, front.take<CcState>()};
    }
    default: return front.take<Aeth>();
  }
}

struct BodyWriter {
  HeaderWriter& back;
  void operator()(const Write& write) const {
    back.put(write.meth);
    if (write.tseth) back.put(*write.tseth);
    back.put(write.reth);
    if (write.imm) back.put(*write.imm);
  }
  void operator()(const Sack& sack) const {
    back.put(sack.seth);
    back.put(sack.cc_state);
  }
  void operator()(const auto& header) const { back.put(header); }
};

}  // namespace

bool is_write(Opcode opcode) { return opcode >= Opcode::write_first && opcode <= Opcode::write_only_imm; }

bool has_immediate(Opcode opcode) { return opcode == Opcode::write_last_imm || opcode == Opcode::write_only_imm; }

bool is_known(uint8_t opcode) {
  const Opcode known = static_cast<Opcode>(opcode);
  if (is_write(known)) return true;
  switch (known) {
    case Opcode::ack:
    case Opcode::endpoint_request:
    case Opcode::endpoint_response:
    case Opcode::sack:
    case Opcode::nack:
    case Opcode::probe: return true;
    default: return false;
  }
}

Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out) {
  Bth bth;
  const Malformed malformed = decode_bth(bytes, bth);
  if (malformed != Malformed::none) return malformed;
  const size_t headers = header_bytes(bth);
  if (bytes.size() < headers || datagram_bytes < headers + kIcrcBytes) return Malformed::too_short;
  if (datagram_bytes % 4 != 0 || datagram_bytes > UINT16_MAX) return Malformed::bad_length;
  const size_t padded_bytes = datagram_bytes - headers - kIcrcBytes;
  if (bth.pad > padded_bytes) return Malformed::bad_pad;
  HeaderReader front{bytes.subspan(Bth::kBytes)};
  if (!is_write(bth.opcode)) {
    if (padded_bytes != 0) return Malformed::bad_length;
    out = {bth, decode_control(front, bth.opcode)};
    const Neth* nack = std::get_if<Neth>(&out.body);
    return nack == nullptr || is_reason(nack->reason) ? Malformed::none : Malformed::unknown_reason;
  }
  const uint32_t payload_bytes = static_cast<uint32_t>(padded_bytes - bth.pad);
  const Write write = decode_write(front, bth, payload_bytes);
  if (!payload_fits(bth.opcode, payload_bytes, write.reth.dma_bytes)) return Malformed::bad_length;
  out = {bth, write};
  return Malformed::none;
}

bool body_fits(Opcode opcode, const Body& body) {
  switch (opcode) {
    case Opcode::ack: return std::holds_alternative<Aeth>(body);
    case Opcode::endpoint_request: return std::holds_alternative<Erth>(body);
    case Opcode::endpoint_response: return std::holds_alternative<Eeth>(body);
    case Opcode::sack: return std::holds_alternative<Sack>(body);
    case Opcode::nack: return std::holds_alternative<Neth>(body);
    case Opcode::probe: return std::holds_alternative<Peth>(body);
    default: break;
  }
  const Write* write = std::get_if<Write>(&body);
  return write != nullptr && write->imm.has_value() == has_immediate(opcode) &&
         payload_fits(opcode, write->payload_bytes, write->reth.dma_bytes);
}

size_t encode_headers(const Packet& packet, std::span<uint8_t> out) {
  Bth bth = packet.bth;
  if (const Write* write = std::get_if<Write>(&packet.body)) {
    bth.pad = static_cast<uint8_t>((0 - write->payload_bytes) & 3);
    bth.ts = write->tseth.has_value();
  }
  HeaderWriter back{out};
  back.put(bth);
  std::visit(BodyWriter{back}, packet.body);
  return back.used();
}

Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out) {
  Bth bth;
  const Malformed malformed = decode_bth(bytes, bth);
  if (malformed != Malformed::none) return malformed;
  out = {bth.opcode, bth.dest_qpn, bth.psn, std::nullopt};
  constexpr size_t kTimeAt = Bth::kBytes + Meth::kBytes;
  if (is_write(bth.opcode) && bth.ts && bytes.size() >= kTimeAt + Tseth::kBytes) {
    out.tx_timestamp = HeaderReader{bytes.subspan(kTimeAt)}.take<Tseth>().tx_timestamp;
  }
  return Malformed::none;
}

}  // namespace etloop::wire::mrc
