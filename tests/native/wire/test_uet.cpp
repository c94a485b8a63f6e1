// UET headers: encoding of vectors of other implementations, and hostile bytes. Fields of the vectors:
// tests/traffic/native/test_uet_wire.py.
#include "wire/uet.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "support/check.h"
#include "support/vectors.h"

namespace {

using namespace etloop::wire::uet;

// Bytes that a decoder may be given: any, or with a known type, a next header and no reserved bits, so that it gets beyond them.
std::vector<uint8_t> drawn_bytes(std::mt19937_64& random) {
  std::vector<uint8_t> bytes(random() % 120);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (bytes.size() < 2 || random() % 8 == 0) return bytes;
  const auto type = static_cast<uint8_t>(2 + random() % 13);
  const auto next = static_cast<uint8_t>(random() % 7);
  bytes[0] = static_cast<uint8_t>(type << 3 | next >> 1);
  bytes[1] = static_cast<uint8_t>((next & 1) << 7 | (random() % 8) << 2);
  for (const size_t at : {4U, 8U, 12U, 16U, 32U}) {
    if (at + 1 >= bytes.size()) continue;
    bytes[at] &= 0x3F;
    bytes[at + 1] &= 0x3F;
  }
  return bytes;
}

// Whatever arrives is refused, or it is values that are encoded to a packet of the same values.
void arbitrary_bytes_are_refused_or_decoded_within_bounds() {
  std::mt19937_64 random{20261124};
  std::array<int, 16> decoded{};
  for (int round = 0; round < 300'000; ++round) {
    const std::vector<uint8_t> bytes = drawn_bytes(random);
    const size_t datagram_bytes = random() % 4 == 0 ? bytes.size() + random() % 5000 : bytes.size();
    Packet packet;
    if (decode(bytes, datagram_bytes, packet) != Malformed::none) continue;
    ++decoded[bytes[0] >> 3];
    std::array<uint8_t, kMaxHeaderBytes> headers;
    const size_t used = encode_headers(packet, headers);
    CHECK(used <= bytes.size());
    CHECK_EQ(used + packet.payload_bytes, datagram_bytes);
    CHECK(packet.payload == nullptr || (packet.payload >= bytes.data() &&
                                        packet.payload + packet.payload_bytes <= bytes.data() + bytes.size()));
    packet.payload = nullptr;
    Packet again;
    CHECK(decode(std::span(headers).first(used), datagram_bytes, again) == Malformed::none);
    CHECK(again == packet);
    Pds cut;
    CHECK(decode_cut(bytes, cut) == Malformed::none);
    CHECK(cut == packet.pds);
  }
  for (int type = 2; type <= 14; ++type) CHECK(decoded[static_cast<size_t>(type)] > 100);
}

// Vectors have zeros in reserved bits.
void vectors_encode_to_their_bytes() {
  constexpr size_t kUdpPayloadAt = 14 + 20 + 8;
  size_t encoded = 0;
  for (const char* name : {"uet_packets.json", "uet_ai_dialogue.json"}) {
    for (const std::vector<uint8_t>& frame : etloop::test::frames_of(name)) {
      const auto datagram = std::span(frame).subspan(kUdpPayloadAt);
      Packet packet;
      CHECK(decode(datagram, datagram.size(), packet) == Malformed::none);
      std::array<uint8_t, kMaxHeaderBytes> headers;
      const size_t used = encode_headers(packet, headers);
      CHECK_EQ(used + packet.payload_bytes, datagram.size());
      CHECK(std::ranges::equal(std::span(headers).first(used), datagram.first(used)));
      ++encoded;
    }
  }
  CHECK_EQ(encoded, 54U);
}

void a_packet_whose_lengths_disagree_is_known() {
  StandardRequest only{.start = {.eom = true, .som = true}, .message_length = 8};
  CHECK(lengths_agree(only, 8, 1024));
  CHECK(!lengths_agree(only, 7, 1024));
  StandardRequest middle{.start = {}, .payload_length = 1024, .message_offset = 1024, .message_length = 3072};
  CHECK(lengths_agree(middle, 1024, 1024));
  CHECK(!lengths_agree(middle, 1023, 1024));
  // A first packet states no payload length, but must be full.
  StandardRequest first{.start = {.som = true}, .message_length = 3072};
  CHECK(lengths_agree(first, 1024, 1024));
  CHECK(!lengths_agree(first, 30, 1024));
}

void a_state_is_the_same_after_packing() {
  const NsccState state{0x1234, true, 0x7F, 0xABCDEF, 0x8001};
  CHECK(nscc_state(packed(state)) == state);
  CHECK_EQ(packed(state), 0x1234FFABCDEF8001ULL);
}

void every_code_has_an_action() {
  CHECK(action_of(NackCode::trimmed) == NackAction::retransmit);
  CHECK(action_of(NackCode::no_pdc) == NackAction::retransmit);
  CHECK(action_of(NackCode::received_in_process) == NackAction::ignore);
  CHECK(action_of(NackCode::invalid_dpdcid) == NackAction::close);
  CHECK(action_of(static_cast<NackCode>(0x77)) == NackAction::close);
}

}  // namespace

int main() {
  vectors_encode_to_their_bytes();
  a_packet_whose_lengths_disagree_is_known();
  arbitrary_bytes_are_refused_or_decoded_within_bounds();
  a_state_is_the_same_after_packing();
  every_code_has_an_action();
  return etloop::test::failures();
}
