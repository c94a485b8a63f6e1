// Frames of any protocol that a soft switch reads, cuts and marks, and the memory that they stand in.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "support/check.h"
#include "switch/frame_pool.h"
#include "switch/soft_frame.h"

using namespace etloop;

namespace {

uint16_t sum_of(std::span<const uint8_t> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

ethernet::Path path_of(bool ipv6, bool tagged) {
  ethernet::Path path;
  path.source = {2, 0, 0, 0, 0, 1};
  path.destination = {2, 0, 0, 0, 0, 2};
  if (tagged) path.tag = ethernet::Tag{100, 3};
  path.flow.src_port = 50'000;
  path.flow.dst_port = 4791;
  if (ipv6) {
    path.flow.src_ip.bytes = {0xFD, 0, 0, 1};
    path.flow.dst_ip.bytes = {0xFD, 0, 0, 2};
  } else {
    path.flow.src_ip = IpAddress::v4(0x0A000001);
    path.flow.dst_ip = IpAddress::v4(0x0A000002);
  }
  return path;
}

std::vector<uint8_t> frame_of(const ethernet::Path& path, size_t payload_bytes, uint8_t traffic_class = 26 << 2 | 2) {
  std::vector<uint8_t> frame(ethernet::header_bytes(path) + payload_bytes);
  ethernet::put_headers(path, traffic_class, 77, payload_bytes, frame);
  for (size_t i = 0; i < payload_bytes; ++i) frame[frame.size() - payload_bytes + i] = static_cast<uint8_t>(i * 7);
  return frame;
}

// The sum of a UDP pseudo header, which unfinished checksums hold.
uint16_t pseudo_sum(const soft::Headers& headers, bool ipv6, size_t udp_bytes) {
  std::vector<uint8_t> pseudo;
  const auto add = [&](const IpAddress& address) {
    const auto begin = address.bytes.begin() + (ipv6 ? 0 : 12);
    pseudo.insert(pseudo.end(), begin, address.bytes.end());
  };
  add(headers.src_ip);
  add(headers.dst_ip);
  pseudo.insert(pseudo.end(), {0, 17, static_cast<uint8_t>(udp_bytes >> 8), static_cast<uint8_t>(udp_bytes)});
  return sum_of(pseudo);
}

void joined_datagrams_are_cut_as_the_kernel_would() {
  for (const bool ipv6 : {false, true}) {
    for (const bool tagged : {false, true}) {
      const ethernet::Path path = path_of(ipv6, tagged);
      constexpr size_t kSegment = 1000;
      std::vector<uint8_t> joined = frame_of(path, 2 * kSegment + 300);
      const soft::Headers headers = soft::read_headers(joined);
      CHECK(headers.use == soft::FrameUse::ip);
      CHECK_EQ(int{headers.dscp}, 26);
      CHECK_EQ(int{headers.ecn}, 2);
      soft::OffloadHeader offload;
      offload.flags = soft::kNeedsChecksum;
      offload.gso_type = soft::kGsoUdpL4;
      offload.gso_bytes = kSegment;
      const size_t udp_bytes = 8 + 2 * kSegment + 300;
      const uint16_t begun = pseudo_sum(headers, ipv6, udp_bytes);
      joined[headers.transport_at + 6] = static_cast<uint8_t>(begun >> 8);
      joined[headers.transport_at + 7] = static_cast<uint8_t>(begun);
      CHECK_EQ(soft::datagrams_in(joined, headers, offload), size_t{3});
      for (size_t i = 0; i < 3; ++i) {
        std::vector<uint8_t> room(headers.transport_at + 8 + kSegment);
        soft::OffloadHeader left;
        const size_t bytes = soft::cut_datagram(joined, headers, offload, i, room, left);
        const size_t payload = i < 2 ? kSegment : 300;
        CHECK_EQ(bytes, headers.transport_at + 8 + payload);
        const std::span<const uint8_t> cut(room.data(), bytes);
        const ethernet::Frame parsed = ethernet::parse(cut, 4791);
        CHECK(parsed.kind == ethernet::FrameKind::roce);
        CHECK_EQ(parsed.datagram_bytes, payload);
        CHECK(std::equal(cut.end() - static_cast<int64_t>(payload), cut.end(),
                         joined.begin() + static_cast<int64_t>(headers.transport_at + 8 + i * kSegment)));
        CHECK_EQ(int{left.flags}, int{soft::kNeedsChecksum});
        CHECK_EQ(size_t{left.checksum_start}, headers.transport_at);
        const uint16_t unfinished = static_cast<uint16_t>(cut[headers.transport_at + 6] << 8 | cut[headers.transport_at + 7]);
        CHECK_EQ(unfinished, pseudo_sum(headers, ipv6, 8 + payload));
        if (!ipv6) {
          CHECK_EQ(sum_of(cut.subspan(headers.ip_at, 20)), uint16_t{0xFFFF});
          CHECK_EQ((cut[headers.ip_at + 4] << 8 | cut[headers.ip_at + 5]), static_cast<int>(77 + i));
        }
      }
    }
  }
}

// RoCEv2 leaves without a UDP checksum, everything else with the right one.
void a_checksum_is_finished_as_a_card_would() {
  for (const bool ipv6 : {false, true}) {
    for (const uint16_t port : {uint16_t{4791}, uint16_t{9000}}) {
      for (const size_t payload_bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{1001}, size_t{8900}}) {
        ethernet::Path path = path_of(ipv6, true);
        path.flow.dst_port = port;
        std::vector<uint8_t> frame = frame_of(path, payload_bytes);
        const soft::Headers headers = soft::read_headers(frame);
        const uint16_t pseudo = pseudo_sum(headers, ipv6, 8 + payload_bytes);
        frame[headers.transport_at + 6] = static_cast<uint8_t>(pseudo >> 8);
        frame[headers.transport_at + 7] = static_cast<uint8_t>(pseudo);
        soft::OffloadHeader offload;
        offload.checksum_start = static_cast<uint16_t>(headers.transport_at);
        offload.checksum_offset = 6;
        const std::vector<uint8_t> unfinished = frame;
        soft::finish_checksum(frame, offload);
        CHECK(frame == unfinished);  // nobody asked for it
        offload.flags = soft::kNeedsChecksum;
        soft::finish_checksum(frame, offload);
        const auto checksum = static_cast<uint16_t>(frame[headers.transport_at + 6] << 8 | frame[headers.transport_at + 7]);
        if (port == 4791) {
          CHECK_EQ(checksum, uint16_t{0});
          continue;
        }
        CHECK(checksum != 0);
        std::vector<uint8_t> covered(frame.begin() + static_cast<int64_t>(headers.transport_at), frame.end());
        if (covered.size() % 2 != 0) covered.push_back(0);
        covered.push_back(static_cast<uint8_t>(pseudo >> 8));
        covered.push_back(static_cast<uint8_t>(pseudo));
        CHECK_EQ(sum_of(covered), uint16_t{0xFFFF});
      }
    }
  }
}

void a_checksum_that_would_stand_outside_the_frame_is_left_alone() {
  for (const size_t start : {size_t{0}, size_t{30}, size_t{34}, size_t{60}, size_t{0xFFFF}}) {
    for (const size_t offset : {size_t{6}, size_t{16}, size_t{0xFFFF}}) {
      std::vector<uint8_t> frame(40, 1);
      soft::OffloadHeader offload;
      offload.flags = soft::kNeedsChecksum;
      offload.checksum_start = static_cast<uint16_t>(start);
      offload.checksum_offset = static_cast<uint16_t>(offset);
      soft::finish_checksum(frame, offload);
      const bool inside = start + std::max(offset + 2, size_t{8}) <= frame.size();
      CHECK_EQ(frame == std::vector<uint8_t>(40, 1), !inside);
    }
  }
}

void traffic_class_is_set_with_its_checksum() {
  for (const bool ipv6 : {false, true}) {
    std::vector<uint8_t> frame = frame_of(path_of(ipv6, false), 100);
    const soft::Headers before = soft::read_headers(frame);
    soft::set_traffic_class(frame, before.ip_at, 48 << 2 | 3);
    const soft::Headers after = soft::read_headers(frame);
    CHECK_EQ(int{after.dscp}, 48);
    CHECK_EQ(int{after.ecn}, 3);
    CHECK(after.dst_ip == before.dst_ip);
    CHECK_EQ(after.flow_key, before.flow_key);
    if (!ipv6) CHECK_EQ(sum_of(std::span<const uint8_t>(frame).subspan(after.ip_at, 20)), uint16_t{0xFFFF});
  }
}

void any_bytes_are_read_without_harm() {
  std::mt19937 random(5);
  for (const bool ipv6 : {false, true}) {
    const std::vector<uint8_t> whole = frame_of(path_of(ipv6, true), 64);
    for (size_t bytes = 0; bytes <= whole.size(); ++bytes) soft::read_headers({whole.data(), bytes});
    for (int round = 0; round < 20'000; ++round) {
      std::vector<uint8_t> frame(whole.begin(), whole.begin() + static_cast<int64_t>(random() % (whole.size() + 1)));
      for (int flips = 0; flips < 3 && !frame.empty(); ++flips) frame[random() % frame.size()] = static_cast<uint8_t>(random());
      const soft::Headers headers = soft::read_headers(frame);
      soft::OffloadHeader offload;
      offload.gso_type = soft::kGsoUdpL4;
      offload.gso_bytes = static_cast<uint16_t>(random() % 70);
      const size_t datagrams = soft::datagrams_in(frame, headers, offload);
      std::vector<uint8_t> room(frame.size() + 70);
      for (size_t i = 0; i < datagrams; ++i) {
        soft::OffloadHeader left;
        CHECK(soft::cut_datagram(frame, headers, offload, i, room, left) <= room.size());
      }
      if (headers.use == soft::FrameUse::ip) soft::set_traffic_class(frame, headers.ip_at, 7);
    }
  }
}

void a_pool_keeps_to_its_limit_and_gives_again() {
  FramePool pool(4300, 3 << 20);
  std::vector<uint32_t> taken;
  for (uint32_t handle = pool.take(4000); handle != FramePool::kNone; handle = pool.take(4000)) taken.push_back(handle);
  CHECK_EQ(taken.size(), size_t{512});  // two blocks of 256; a third would be too much
  CHECK(pool.take(100) != FramePool::kNone);
  for (const uint32_t handle : taken) {
    pool.stored(handle).bytes = 4000;
    pool.frame(handle)[3999] = static_cast<uint8_t>(handle);
  }
  for (const uint32_t handle : taken) CHECK_EQ(pool.frame(handle)[3999], static_cast<uint8_t>(handle));
  pool.give(taken.back());
  CHECK_EQ(pool.take(4000), taken.back());
}

}  // namespace

int main() {
  joined_datagrams_are_cut_as_the_kernel_would();
  a_checksum_is_finished_as_a_card_would();
  a_checksum_that_would_stand_outside_the_frame_is_left_alone();
  traffic_class_is_set_with_its_checksum();
  any_bytes_are_read_without_harm();
  a_pool_keeps_to_its_limit_and_gives_again();
  return etloop::test::failures();
}
