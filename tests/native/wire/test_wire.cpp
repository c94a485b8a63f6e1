// Headers, the ICRC in its three ways of being computed, and hostile bytes. Golden frames: see tests/traffic/native/test_wire.py.
#include "wire/wire.h"

#include <random>
#include <vector>

#include "base/crc32.h"
#include "support/check.h"
#include "wire/ethernet.h"

namespace {

using namespace etloop;
using wire::Malformed;
using wire::Opcode;
using wire::Packet;

const wire::IpFlow kFlow{*IpAddress::parse("10.0.0.1"), *IpAddress::parse("10.0.0.2"), 0xC123};

std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> all;
  for (int value = 0; value < 256; ++value) {
    if (wire::is_known(static_cast<uint8_t>(value))) all.push_back(static_cast<Opcode>(value));
  }
  return all;
}

uint32_t bytewise_crc(uint32_t state, const std::vector<uint8_t>& bytes) {
  for (const uint8_t byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xEDB88320 : 0);
  }
  return state;
}

void crc_is_the_ethernet_one() {
  const char* digits = "123456789";
  const std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(digits), 9};
  CHECK_EQ(~crc32::update(crc32::kInitial, bytes), 0xCBF43926U);
}

// Every way of this processor at every length up to several of its widest strides, from every alignment.
void every_length_and_alignment_agrees_with_hashing_bits() {
  constexpr size_t kLongest = 1200;
  std::vector<uint8_t> bytes(9000);
  uint32_t drawn = 1;
  for (uint8_t& byte : bytes) {
    drawn = drawn * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(drawn >> 24);
  }
  for (const crc32::Way way : crc32::kWays) {
    if (!crc32::is_here(way)) continue;
    for (size_t start = 0; start < 65; ++start) {
      const uint32_t before = 0x9E3779B9 * static_cast<uint32_t>(start + 1);
      uint32_t expected = before;
      for (size_t count = 0; count <= kLongest; ++count) {
        CHECK_EQ(crc32::update_by(way, before, {&bytes[start], count}), expected);
        expected = bytewise_crc(expected, {bytes[start + count]});
      }
    }
    // In two places: the first bytes stand elsewhere.
    for (size_t count = 0; count <= kLongest; count += 1 + count / 16) {
      const std::span whole(bytes.data(), crc32::kFirstBytes + count);
      const std::vector<uint8_t> apart(whole.begin(), whole.begin() + crc32::kFirstBytes);
      const uint32_t found =
          crc32::update_by(way, 0x1234567, std::span(apart).first<crc32::kFirstBytes>(), whole.subspan(crc32::kFirstBytes));
      CHECK_EQ(found, bytewise_crc(0x1234567, {whole.begin(), whole.end()}));
    }
    CHECK_EQ(crc32::update_by(way, crc32::kInitial, bytes), bytewise_crc(crc32::kInitial, bytes));
  }
  CHECK(crc32::is_here(crc32::Way::table));
  CHECK(crc32::is_here(crc32::fastest()));
  CHECK_EQ(crc32::update(crc32::kInitial, bytes), bytewise_crc(crc32::kInitial, bytes));
}

void linear_algebra_agrees_with_hashing_bytes() {
  const crc32::RepeatedByte pattern{0xA5};
  for (const size_t count : {0, 1, 2, 3, 4, 5, 64, 255, 256, 257, 512, 1024, 2048, 4095, 4096, 4097, 8192, 9000}) {
    const uint32_t state = 0x12345678;
    CHECK_EQ(crc32::shift(state, count), bytewise_crc(state, std::vector<uint8_t>(count, 0)));
    if (count > crc32::kMaxRun) continue;
    CHECK_EQ(pattern.run(count), bytewise_crc(0, std::vector<uint8_t>(count, 0xA5)));
  }
}

Packet sample(Opcode opcode, uint32_t payload_bytes) {
  Packet packet;
  packet.opcode = opcode;
  packet.ack_req = payload_bytes % 8 == 4;
  packet.becn = opcode == Opcode::cnp;
  packet.dest_qpn = 0xABCDEF;
  packet.psn = 0xFEDCBA;
  packet.payload_bytes = payload_bytes;
  const wire::Extensions has = wire::shape(opcode).has;
  if (has.reth || has.atomic) packet.va = 0x0123456789ABCDEF;
  if (has.reth || has.atomic || has.ieth) packet.rkey = 0x89ABCDEF;
  if (has.reth) packet.dma_bytes = 4100;
  if (has.atomic) {
    packet.swap_add = 0x1122334455667788;
    packet.compare = 0x99AABBCCDDEEFF00;
  }
  if (has.atomic_ack) packet.original = 0xFEDCBA9876543210;
  if (has.imm) packet.imm = 0xDEADBEEF;
  if (has.aeth) {
    packet.syndrome = wire::kSyndromeNakSequence;
    packet.msn = 0x123456;
  }
  if (has.deth) {
    packet.qkey = 0x80010000;
    packet.src_qpn = 0x654321;
  }
  return packet;
}

void pattern_costs_no_bytes_yet_hashes_as_they_do() {
  const std::vector<uint8_t> payload(9000, wire::kPatternByte);
  for (const uint32_t length : {4, 8, 256, 260, 1024, 4092, 4096, 4100, 8900}) {
    Packet packet = sample(Opcode::write_middle, length);
    const uint32_t by_algebra = wire::icrc(kFlow, 7, packet);
    packet.payload = payload.data();
    CHECK_EQ(by_algebra, wire::icrc(kFlow, 7, packet));
  }
  for (uint32_t length = 1; length < 70; ++length) {  // every pad
    Packet packet = sample(Opcode::write_last, length);
    const uint32_t by_algebra = wire::icrc({}, 0, packet);
    packet.payload = payload.data();
    CHECK_EQ(by_algebra, wire::icrc({}, 0, packet));
  }
}

void what_is_encoded_is_decoded() {
  for (const Opcode opcode : all_opcodes()) {
    const wire::PayloadRule rule = wire::shape(opcode).payload;
    for (const uint32_t length : {4U, 64U, 4096U}) {
      const uint32_t bitmap_bytes = rule == wire::PayloadRule::bitmap ? wire::kSelectiveBitmapBytes : 0;
      const bool sized = rule != wire::PayloadRule::none && rule != wire::PayloadRule::bitmap;
      const Packet packet = sample(opcode, sized ? length : bitmap_bytes);
      std::vector<uint8_t> bytes(wire::datagram_bytes(opcode, packet.payload_bytes));
      CHECK_EQ(wire::encode_headers(packet, bytes), wire::header_bytes(opcode));
      Packet back;
      CHECK(wire::decode(bytes, bytes.size(), back) == Malformed::none);
      CHECK_EQ(back.payload, packet.payload_bytes > 0 ? bytes.data() + wire::header_bytes(opcode) : nullptr);
      back.payload = nullptr;
      CHECK(back == packet);
    }
  }
}

void headers_alone_decode_to_the_pattern() {
  const Packet packet = sample(Opcode::write_middle, 4096);
  std::array<uint8_t, wire::kMaxHeaderBytes> headers{};
  const size_t length = wire::encode_headers(packet, headers);
  Packet back;
  CHECK(wire::decode(std::span(headers).first(length), wire::datagram_bytes(packet.opcode, 4096), back) ==
        Malformed::none);
  CHECK_EQ(back.payload_bytes, 4096U);
  CHECK(back.payload == nullptr);
}

void each_malformation_has_its_name() {
  std::vector<uint8_t> bytes(wire::datagram_bytes(Opcode::write_only, 64));
  wire::encode_headers(sample(Opcode::write_only, 64), bytes);
  struct Row {
    const char* why;
    size_t at;
    uint8_t value;
    size_t datagram_bytes;
    Malformed expected;
  };
  const Row rows[] = {
      {"as sent", 0, 0x0A, bytes.size(), Malformed::none},
      {"no room for an ICRC behind the BTH", 0, 0x0A, 15, Malformed::too_short},
      {"no room for the RETH", 0, 0x0A, 28, Malformed::too_short},
      {"transport version 1", 1, 0x41, bytes.size(), Malformed::transport_version},
      {"an opcode that the specification reserves", 0, 0x15, bytes.size(), Malformed::unknown_opcode},
      {"an acknowledgement of MRC", 0, 0xD1, bytes.size(), Malformed::other_transport},
      {"the first opcode of MRC's range", 0, 0xC0, bytes.size(), Malformed::other_transport},
      {"the last one", 0, 0xDF, bytes.size(), Malformed::other_transport},
      {"the one behind it", 0, 0xE0, bytes.size(), Malformed::unknown_opcode},
      {"pad of 3 before an empty payload", 1, 0x70, 32, Malformed::bad_pad},
      {"length not a multiple of four", 0, 0x0A, bytes.size() - 1, Malformed::bad_length},
      {"an acknowledgement with a payload", 0, 0x11, bytes.size(), Malformed::bad_length},
      {"an empty MIDDLE", 0, 0x07, 16, Malformed::bad_length},
      {"an empty LAST", 0, 0x08, 16, Malformed::bad_length},
      {"longer than UDP can carry", 0, 0x0A, 1 << 17, Malformed::bad_length},
  };
  for (const Row& row : rows) {
    std::vector<uint8_t> changed = bytes;
    changed[row.at] = row.value;
    Packet out;
    const Malformed got = wire::decode(changed, row.datagram_bytes, out);
    if (got != row.expected) test::report(__FILE__, __LINE__, row.why);
  }
}

void arbitrary_bytes_are_refused_or_decoded_within_bounds() {
  const std::vector<Opcode> known = all_opcodes();
  std::mt19937_64 random{20261121};
  for (int turn = 0; turn < 200'000; ++turn) {
    // Exactly as large as it claims, on the heap, so that a sanitizer sees any byte read beyond.
    std::vector<uint8_t> bytes(random() % 96);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (bytes.size() > 2 && turn % 2 == 0) {
      bytes[0] = static_cast<uint8_t>(known[random() % known.size()]);
      bytes[1] &= 0xF0;
    }
    Packet out;
    if (wire::decode(bytes, bytes.size(), out) == Malformed::none) {
      CHECK(wire::header_bytes(out.opcode) + out.payload_bytes + wire::kIcrcBytes <= bytes.size());
    }
    if (bytes.size() > 20 && turn % 3 == 0) {
      bytes[12] = 0x08;
      bytes[13] = 0x00;
      bytes[14] = static_cast<uint8_t>(0x40 | (random() % 16));
      if (bytes.size() > 23) bytes[23] = 17;
      bytes[16] = 0;
    }
    CHECK(wire::check_frame(bytes) != wire::FrameCheck::good);
  }
}

// A cut packet is known by its first twelve bytes, whatever follows and whatever the lengths around it say.
void what_a_switch_left_is_read_within_bounds() {
  const std::vector<Opcode> known = all_opcodes();
  std::mt19937_64 random{20261124};
  wire::CutPacket out;
  for (int turn = 0; turn < 200'000; ++turn) {
    std::vector<uint8_t> bytes(random() % 24);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (bytes.size() > 2 && turn % 2 == 0) {
      bytes[0] = static_cast<uint8_t>(known[random() % known.size()]);
      bytes[1] &= 0xF0;
    }
    const Malformed got = wire::decode_cut(bytes, out);
    CHECK_EQ(got == Malformed::too_short, bytes.size() < wire::kBthBytes);
    if (got == Malformed::none) CHECK(out.psn <= wire::kPsnMask && out.dest_qpn <= wire::kPsnMask);
  }
}

// The frame of a full packet, cut to every length, with its lengths as they were, and with that of IP made new.
void frames_that_are_cut_say_what_is_left() {
  for (const bool four : {true, false}) {
    ethernet::Path path;
    path.flow.src_ip = four ? IpAddress::v4(0x0A000001) : IpAddress{{0xFD, 0, 0, 1}};
    path.flow.dst_ip = four ? IpAddress::v4(0x0A000002) : IpAddress{{0xFD, 0, 0, 2}};
    Packet packet;
    packet.opcode = Opcode::write_middle;
    packet.dest_qpn = 0x1234;
    packet.psn = 77;
    packet.payload_bytes = 1024;
    std::vector<uint8_t> frame(2048);
    const size_t datagram = wire::datagram_bytes(packet.opcode, packet.payload_bytes);
    const size_t headers = ethernet::put_headers(path, 48 << 2, 0, datagram, frame);
    wire::encode_headers(packet, std::span(frame).subspan(headers));
    frame.resize(headers + datagram);
    for (size_t left = 0; left < frame.size(); ++left) {
      for (const bool made_new : {false, true}) {
        std::vector<uint8_t> cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(left));
        if (made_new && left >= headers) {
          const size_t field = four ? 16 : 18;
          const size_t length = left - 14 - (four ? 0 : 40);
          cut[field] = static_cast<uint8_t>(length >> 8);
          cut[field + 1] = static_cast<uint8_t>(length);
        }
        const ethernet::Frame parsed = ethernet::parse(cut, wire::kRoceUdpPort);
        CHECK(parsed.kind != ethernet::FrameKind::roce);
        if (left < headers) continue;
        CHECK(parsed.kind == ethernet::FrameKind::malformed);
        CHECK_EQ(parsed.left_bytes, left - headers);
        wire::CutPacket out;
        if (left < headers + wire::kBthBytes) continue;
        CHECK(wire::decode_cut(std::span(cut).subspan(parsed.datagram_at, parsed.left_bytes), out) == Malformed::none);
        CHECK_EQ(out.psn, 77U);
        CHECK_EQ(out.dest_qpn, 0x1234U);
      }
    }
  }
}

void distances_wrap() {
  CHECK_EQ(wire::psn_distance(0, 0xFFFFFF), 1);
  CHECK_EQ(wire::psn_distance(0xFFFFFF, 0), -1);
  CHECK_EQ(wire::psn_distance(5, 5), 0);
  CHECK_EQ(wire::psn_distance(0x7FFFFF, 0), 0x7FFFFF);
}

}  // namespace

int main() {
  crc_is_the_ethernet_one();
  every_length_and_alignment_agrees_with_hashing_bits();
  linear_algebra_agrees_with_hashing_bytes();
  pattern_costs_no_bytes_yet_hashes_as_they_do();
  what_is_encoded_is_decoded();
  headers_alone_decode_to_the_pattern();
  each_malformation_has_its_name();
  arbitrary_bytes_are_refused_or_decoded_within_bounds();
  what_a_switch_left_is_read_within_bounds();
  frames_that_are_cut_say_what_is_left();
  distances_wrap();
  return test::failures();
}
