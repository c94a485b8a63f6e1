#include "wire/mrc.h"

#include "wire/bits.h"

namespace etloop::wire::mrc {
namespace {

constexpr void lay_out(auto& bits, Of<Bth> auto& bth) {
  bits.field(8, bth.opcode);
  bits.reserved(2);
  bits.field(2, bth.pad_bytes);
  bits.field(4, bth.transport_version);
  bits.field(16, bth.p_key);
  bits.reserved(8);
  bits.field(24, bth.dest_qpn);
  bits.field(1, bth.sack_req);
  bits.reserved(1);
  bits.field(1, bth.retransmitted);
  bits.field(1, bth.has_tseth);
  bits.reserved(4);
  bits.field(24, bth.psn);
}

constexpr void lay_out(auto& bits, Of<Meth> auto& meth) {
  bits.field(16, meth.rqmsn);
  bits.field(16, meth.msn);
}

// How five headers end.
constexpr void lay_out_time(auto& bits, auto& header) {
  bits.field(16, header.tx_timestamp);
  bits.field(1, header.own_unit);
  bits.reserved(11);
  bits.field(4, header.format);
}

constexpr void lay_out(auto& bits, Of<Tseth> auto& tseth) { lay_out_time(bits, tseth); }

constexpr void lay_out(auto& bits, Of<Reth> auto& reth) {
  bits.field(64, reth.va);
  bits.field(32, reth.rkey);
  bits.field(32, reth.dma_bytes);
}

constexpr void lay_out(auto& bits, Of<Immediate> auto& imm) { bits.field(32, imm.value); }

constexpr void lay_out(auto& bits, Of<Aeth> auto& aeth) {
  bits.field(8, aeth.syndrome);
  bits.field(24, aeth.msn);
}

constexpr void lay_out(auto& bits, Of<Seth> auto& seth) {
  bits.reserved(4 + 5);  // type, next header
  bits.field(2, seth.mark);
  bits.reserved(3);
  bits.field(1, seth.answers_probe);
  bits.reserved(1);
  bits.field(16, seth.ack_psn_offset);
  bits.field(32, seth.entropy);
  bits.field(16, seth.sender_id);
  bits.field(16, seth.receiver_id);
  bits.reserved(8);
  bits.field(24, seth.cack_psn);
  bits.field(4, seth.cc_type);
  bits.field(4, seth.cc_flags);
  bits.field(8, seth.window_128psns);
  bits.field(16, seth.sack_offset);
  bits.field(64, seth.sack_bitmap);
}

constexpr void lay_out(auto& bits, Of<CcState> auto& state) {
  bits.field(16, state.tx_timestamp);
  bits.reserved(1);
  bits.field(15, state.out_of_order);
  bits.field(1, state.restore_window);
  bits.field(7, state.window_penalty);
  bits.field(24, state.received_256bytes);
}

constexpr void lay_out(auto& bits, Of<Neth> auto& neth) {
  bits.reserved(16);
  bits.field(8, neth.reason);
  bits.field(8, neth.vendor);
  bits.field(32, neth.entropy);
  bits.field(16, neth.sender_id);
  bits.field(16, neth.receiver_id);
  bits.reserved(8);
  bits.field(24, neth.nack_psn);
  bits.field(4, neth.cc_type);
  bits.field(4, neth.cc_flags);
  bits.reserved(8);
  bits.field(16, neth.tx_timestamp);
}

constexpr void lay_out(auto& bits, Of<Peth> auto& peth) {
  bits.reserved(24);
  bits.field(8, peth.vendor);
  bits.field(16, peth.probe_id);
  bits.reserved(16);
  bits.field(16, peth.sender_id);
  bits.field(16, peth.receiver_id);
  lay_out_time(bits, peth);
}

constexpr void lay_out(auto& bits, Of<Erth> auto& erth) {
  bits.reserved(8 + 6);
  bits.field(2, erth.op);
  bits.reserved(8);
  bits.field(8, erth.vendor);
  bits.field(32, erth.port_status_mask);
  bits.reserved(32);
  lay_out_time(bits, erth);
}

constexpr void lay_out(auto& bits, Of<Eeth> auto& eeth) {
  bits.reserved(8 + 2);
  bits.field(2, eeth.high_op);
  bits.field(2, eeth.op);
  bits.reserved(2 + 26 * 8);
  bits.field(16, eeth.tx_timestamp);
  bits.reserved(48);
}

constexpr auto kLayOut = [](auto& bits, auto& header) { lay_out(bits, header); };
using Front = HeaderReader<kLayOut>;
using Back = HeaderWriter<kLayOut>;

static_assert(fill_their_bytes<Bth, Meth, Tseth, Reth, Immediate, Aeth, Seth, CcState, Neth, Peth, Erth, Eeth>(kLayOut));
static_assert(kMaxHeaderBytes >= Bth::kBytes + Seth::kBytes + CcState::kBytes);
static_assert(kMaxHeaderBytes >= Bth::kBytes + Meth::kBytes + Tseth::kBytes + Reth::kBytes + Immediate::kBytes);

size_t header_bytes(const Bth& bth) {
  switch (bth.opcode) {
    case Opcode::acknowledge: return Bth::kBytes + Aeth::kBytes;
    case Opcode::endpoint_request: return Bth::kBytes + Erth::kBytes;
    case Opcode::endpoint_response: return Bth::kBytes + Eeth::kBytes;
    case Opcode::sack: return Bth::kBytes + Seth::kBytes + CcState::kBytes;
    case Opcode::nack: return Bth::kBytes + Neth::kBytes;
    case Opcode::probe: return Bth::kBytes + Peth::kBytes;
    default: break;
  }
  return Bth::kBytes + Meth::kBytes + (bth.has_tseth ? Tseth::kBytes : 0) + Reth::kBytes +
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
  out = decode_header<Bth>(bytes.first<Bth::kBytes>());
  return out.transport_version == 0 ? Malformed::none : Malformed::transport_version;
}

Write decode_write(Front& front, const Bth& bth, uint32_t payload_bytes) {
  Write write;
  write.meth = front.take<Meth>();
  if (bth.has_tseth) write.tseth = front.take<Tseth>();
  write.reth = front.take<Reth>();
  if (has_immediate(bth.opcode)) write.imm = front.take<Immediate>();
  write.payload_bytes = payload_bytes;
  if (payload_bytes > 0 && front.left() >= payload_bytes) write.payload = front.rest();
  return write;
}

Body decode_control(Front& front, Opcode opcode) {
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
  Back& back;
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

template <typename Header>
void encode_header(const Header& header, std::span<uint8_t, Header::kBytes> out) {
  BitWriter writer{out};
  lay_out(writer, header);
}

template <typename Header>
Header decode_header(std::span<const uint8_t, Header::kBytes> bytes) {
  Header header{};
  BitReader reader{bytes};
  lay_out(reader, header);
  return header;
}

#define ETLOOP_MRC_HEADER(Header)                                                    \
  template void encode_header<Header>(const Header&, std::span<uint8_t, Header::kBytes>); \
  template Header decode_header<Header>(std::span<const uint8_t, Header::kBytes>);
ETLOOP_MRC_HEADER(Bth)
ETLOOP_MRC_HEADER(Meth)
ETLOOP_MRC_HEADER(Tseth)
ETLOOP_MRC_HEADER(Reth)
ETLOOP_MRC_HEADER(Immediate)
ETLOOP_MRC_HEADER(Aeth)
ETLOOP_MRC_HEADER(Seth)
ETLOOP_MRC_HEADER(CcState)
ETLOOP_MRC_HEADER(Neth)
ETLOOP_MRC_HEADER(Peth)
ETLOOP_MRC_HEADER(Erth)
ETLOOP_MRC_HEADER(Eeth)
#undef ETLOOP_MRC_HEADER

bool is_write(Opcode opcode) { return opcode >= Opcode::write_first && opcode <= Opcode::write_only_imm; }

bool has_immediate(Opcode opcode) { return opcode == Opcode::write_last_imm || opcode == Opcode::write_only_imm; }

bool is_known(uint8_t opcode) {
  const Opcode known = static_cast<Opcode>(opcode);
  if (is_write(known)) return true;
  switch (known) {
    case Opcode::acknowledge:
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
  const Malformed found = decode_bth(bytes, bth);
  if (found != Malformed::none) return found;
  const size_t headers = header_bytes(bth);
  if (bytes.size() < headers || datagram_bytes < headers + kIcrcBytes) return Malformed::too_short;
  if (datagram_bytes % 4 != 0 || datagram_bytes > UINT16_MAX) return Malformed::bad_length;
  const size_t padded_bytes = datagram_bytes - headers - kIcrcBytes;
  if (bth.pad_bytes > padded_bytes) return Malformed::bad_pad;
  Front front{bytes.subspan(Bth::kBytes)};
  if (!is_write(bth.opcode)) {
    if (padded_bytes != 0) return Malformed::bad_length;
    out = {bth, decode_control(front, bth.opcode)};
    const Neth* nack = std::get_if<Neth>(&out.body);
    return nack == nullptr || is_reason(nack->reason) ? Malformed::none : Malformed::unknown_reason;
  }
  const uint32_t payload_bytes = static_cast<uint32_t>(padded_bytes - bth.pad_bytes);
  const Write write = decode_write(front, bth, payload_bytes);
  if (!payload_fits(bth.opcode, payload_bytes, write.reth.dma_bytes)) return Malformed::bad_length;
  out = {bth, write};
  return Malformed::none;
}

bool body_fits(Opcode opcode, const Body& body) {
  switch (opcode) {
    case Opcode::acknowledge: return std::holds_alternative<Aeth>(body);
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
    bth.pad_bytes = static_cast<uint8_t>((0 - write->payload_bytes) & 3);
    bth.has_tseth = write->tseth.has_value();
  }
  Back back{out};
  back.put(bth);
  std::visit(BodyWriter{back}, packet.body);
  return back.used();
}

Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out) {
  Bth bth;
  const Malformed found = decode_bth(bytes, bth);
  if (found != Malformed::none) return found;
  out = {bth.opcode, bth.dest_qpn, bth.psn, std::nullopt};
  constexpr size_t kTimeAt = Bth::kBytes + Meth::kBytes;
  if (is_write(bth.opcode) && bth.has_tseth && bytes.size() >= kTimeAt + Tseth::kBytes) {
    out.tx_timestamp = decode_header<Tseth>(bytes.subspan<kTimeAt, Tseth::kBytes>()).tx_timestamp;
  }
  return Malformed::none;
}

}  // namespace etloop::wire::mrc
