// MRC headers: encoding of vectors of other implementations, and hostile bytes. Fields of the vectors:
// tests/traffic/native/test_mrc_wire.py.
#include "wire/mrc.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "support/check.h"
#include "support/vectors.h"

namespace {

using namespace etloop::wire::mrc;

constexpr std::array kOpcodes = {Opcode::write_first,    Opcode::write_middle,     Opcode::write_last,
                                 Opcode::write_last_imm, Opcode::write_only,       Opcode::write_only_imm,
                                 Opcode::ack,    Opcode::endpoint_request, Opcode::endpoint_response,
                                 Opcode::sack,           Opcode::nack,             Opcode::probe};

void the_known_opcodes_are_these() {
  int known = 0;
  for (int value = 0; value < 256; ++value) known += is_known(static_cast<uint8_t>(value)) ? 1 : 0;
  CHECK_EQ(known, static_cast<int>(kOpcodes.size()));
  for (const Opcode opcode : kOpcodes) CHECK(is_known(static_cast<uint8_t>(opcode)));
}

// Bytes of the headers that lead a packet by SRv6, by the protocol that follows the first IPv6 header.
size_t outer_bytes(uint8_t next_header) {
  switch (next_header) {
    case 41: return 40;       // IPv6 in IPv6
    case 43: return 40 + 40;  // a segment routing header, then IPv6
    default: return 0;
  }
}

// Vectors have zeros in reserved bits.
void vectors_encode_to_their_bytes() {
  size_t encoded = 0;
  for (const std::vector<uint8_t>& frame : etloop::test::frames_of("mrc_packets.json")) {
    const auto datagram = std::span(frame).subspan(14 + 40 + 8 + outer_bytes(frame[20]));
    Packet packet;
    CHECK(decode(datagram, datagram.size(), packet) == Malformed::none);
    std::array<uint8_t, kMaxHeaderBytes> headers;
    const size_t used = encode_headers(packet, headers);
    CHECK(std::ranges::equal(std::span(headers).first(used), datagram.first(used)));
    if (const Write* write = std::get_if<Write>(&packet.body)) {
      CHECK_EQ(used + write->payload_bytes + packet.bth.pad + kIcrcBytes, datagram.size());
    } else {
      CHECK_EQ(used + kIcrcBytes, datagram.size());
    }
    ++encoded;
  }
  CHECK_EQ(encoded, 30U);
}

void a_cut_packet_has_its_timestamp_if_the_header_is_left() {
  std::array<uint8_t, Bth::kBytes + Meth::kBytes + Tseth::kBytes> bytes{static_cast<uint8_t>(Opcode::write_only)};
  bytes[8] = 0x10;  // ts
  bytes[17] = 7;
  CutPacket cut;
  CHECK(decode_cut(bytes, cut) == Malformed::none);
  CHECK(cut.tx_timestamp == uint16_t{7});
  CHECK(decode_cut(std::span(bytes).first(19), cut) == Malformed::none);
  CHECK(!cut.tx_timestamp);
}

// Bytes that a decoder may be given: any, or with a known opcode and version in front so that it gets beyond them.
std::vector<uint8_t> drawn_bytes(std::mt19937_64& random) {
  std::vector<uint8_t> bytes(random() % 96);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (bytes.size() >= 2 && random() % 8 != 0) {
    bytes[0] = static_cast<uint8_t>(kOpcodes[random() % kOpcodes.size()]);
    bytes[1] = static_cast<uint8_t>((random() % 4) << 4);
  }
  // Length of the message: mostly one that payloads of this size may be of.
  for (size_t at = 28; at < 35 && at < bytes.size() && random() % 4 != 0; ++at) bytes[at] = 0;
  return bytes;
}

// Whatever arrives is refused, or it is values that are encoded to a packet of the same values.
void arbitrary_bytes_are_refused_or_decoded_within_bounds() {
  std::mt19937_64 random{20261124};
  std::array<int, 256> decoded{};
  for (int round = 0; round < 300'000; ++round) {
    const std::vector<uint8_t> bytes = drawn_bytes(random);
    const size_t datagram_bytes = random() % 4 == 0 ? bytes.size() + random() % 5000 : bytes.size();
    Packet packet;
    if (decode(bytes, datagram_bytes, packet) != Malformed::none) continue;
    ++decoded[static_cast<uint8_t>(packet.bth.opcode)];
    CHECK(body_fits(packet.bth.opcode, packet.body));
    std::array<uint8_t, kMaxHeaderBytes> headers;
    const size_t used = encode_headers(packet, headers);
    CHECK(used <= bytes.size());
    size_t payload_bytes = 0;
    if (Write* write = std::get_if<Write>(&packet.body)) {
      payload_bytes = write->payload_bytes;
      CHECK(write->payload == nullptr ||
            (write->payload >= bytes.data() && write->payload + payload_bytes <= bytes.data() + bytes.size()));
      write->payload = nullptr;
    }
    Packet again;
    const size_t sent_bytes = used + payload_bytes + packet.bth.pad + kIcrcBytes;
    CHECK(decode(std::span(headers).first(used), sent_bytes, again) == Malformed::none);
    CHECK(again == packet);
  }
  for (const Opcode opcode : kOpcodes) CHECK(decoded[static_cast<uint8_t>(opcode)] > 0);
}

void arbitrary_remains_are_refused_or_named_within_bounds() {
  std::mt19937_64 random{20261125};
  int named = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::vector<uint8_t> bytes = drawn_bytes(random);
    bytes.resize(std::min<size_t>(bytes.size(), random() % 24));
    CutPacket cut;
    const Malformed found = decode_cut(bytes, cut);
    if (bytes.size() < Bth::kBytes) CHECK(found == Malformed::too_short);
    if (found != Malformed::none) continue;
    ++named;
    CHECK(cut.psn <= 0xFFFFFF && cut.dest_qpn <= 0xFFFFFF);
    if (cut.tx_timestamp) CHECK(is_write(cut.opcode) && bytes.size() >= 20);
  }
  CHECK(named > 1000);
}

}  // namespace

int main() {
  vectors_encode_to_their_bytes();
  a_cut_packet_has_its_timestamp_if_the_header_is_left();
  the_known_opcodes_are_these();
  arbitrary_bytes_are_refused_or_decoded_within_bounds();
  arbitrary_remains_are_refused_or_named_within_bounds();
  return etloop::test::failures();
}
