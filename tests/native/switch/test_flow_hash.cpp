// What switches choose ways by: fields of a hash, weights of ports, bits of entropy, entries of a flowlet table.
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "support/check.h"
#include "support/switch_bench.h"
#include "switch/soft_frame.h"
#include "virtual/twin_frames.h"

using namespace etloop;
using namespace etloop::test;

namespace {

IpAddress v6(uint8_t last) {
  IpAddress address;
  address.bytes[0] = 0xFD;
  address.bytes[15] = last;
  return address;
}

HashedHeaders usual() {
  HashedHeaders headers;
  headers.outer = {v6(1), v6(2), 17, 50'000, 4791};
  headers.inner = {v6(3), v6(4), 6, 1, 2};
  headers.dest_qp = 0x000123;
  headers.flow_label = 7;
  return headers;
}

// Each field alone: a key that hashes it changes with it, and one that does not stays.
void a_hash_covers_its_fields_and_no_others() {
  struct Change {
    HashField field;
    void (*change)(HashedHeaders&);
  };
  const Change changes[] = {
      {HashField::src_ip, [](HashedHeaders& h) { h.outer.src_ip = v6(9); }},
      {HashField::dst_ip, [](HashedHeaders& h) { h.outer.dst_ip = v6(9); }},
      {HashField::protocol, [](HashedHeaders& h) { h.outer.protocol = 6; }},
      {HashField::src_port, [](HashedHeaders& h) { h.outer.src_port ^= 0x8000; }},
      {HashField::dst_port, [](HashedHeaders& h) { h.outer.dst_port ^= 1; }},
      {HashField::dest_qp, [](HashedHeaders& h) { h.dest_qp ^= 0x800000; }},
      {HashField::flow_label, [](HashedHeaders& h) { h.flow_label ^= 0x80000; }},
      {HashField::inner_src_ip, [](HashedHeaders& h) { h.inner.src_ip = v6(9); }},
      {HashField::inner_dst_ip, [](HashedHeaders& h) { h.inner.dst_ip = v6(9); }},
      {HashField::inner_protocol, [](HashedHeaders& h) { h.inner.protocol = 17; }},
      {HashField::inner_src_port, [](HashedHeaders& h) { h.inner.src_port ^= 0x100; }},
      {HashField::inner_dst_port, [](HashedHeaders& h) { h.inner.dst_port ^= 0x100; }},
  };
  std::set<uint64_t> keys;
  for (const Change& hashed : changes) {
    const HashFields fields = bit_of(hashed.field);
    CHECK(keys.insert(hash_key(usual(), fields)).second);
    for (const Change& changed : changes) {
      HashedHeaders other = usual();
      changed.change(other);
      CHECK_EQ(hash_key(other, fields) != hash_key(usual(), fields), hashed.field == changed.field);
    }
  }
  CHECK_EQ(hash_key(usual(), kFiveTuple), flow_key(usual().outer));
}

// 4,096 queue pairs of one five-tuple over eight ways: chi-square with seven degrees of freedom is below 24.3 in 999 of 1,000.
void queue_pairs_of_one_five_tuple_spread_evenly() {
  std::map<size_t, int> taken;
  for (uint32_t qp = 0; qp < 4096; ++qp) {
    HashedHeaders headers = usual();
    headers.dest_qp = 0x1000 + qp;
    ++taken[ecmp_choice(hash_key(headers, kFiveTuple | bit_of(HashField::dest_qp)), 1, 8)];
  }
  double chi_square = 0;
  for (size_t way = 0; way < 8; ++way) chi_square += std::pow(taken[way] - 512.0, 2) / 512.0;
  CHECK(chi_square < 24.3);
}

std::vector<uint8_t> roce_frame(bool ipv6, uint16_t dst_port = 4791) {
  ethernet::Path path;
  path.flow = {ipv6 ? v6(1) : IpAddress::v4(0x0A000001), ipv6 ? v6(2) : IpAddress::v4(0x0A000002), 50'000, dst_port};
  std::vector<uint8_t> frame(ethernet::header_bytes(path) + 32);
  const size_t at = ethernet::put_headers(path, 26 << 2, 0, 32, frame);
  frame[at + 4] = 0xFF;  // before the queue pair, and no part of it
  frame[at + 5] = 0xAB;
  frame[at + 6] = 0xCD;
  frame[at + 7] = 0xEF;
  return frame;
}

void a_queue_pair_is_read_where_roce_has_it() {
  for (const bool ipv6 : {false, true}) {
    std::vector<uint8_t> frame = roce_frame(ipv6);
    const HashedHeaders read = soft::read_hashed(frame, soft::read_headers(frame));
    CHECK_EQ(read.dest_qp, 0xABCDEFU);
    CHECK_EQ(read.flow_label, ipv6 ? ethernet::flow_label(50'000) : 0U);
    CHECK_EQ(read.outer.src_port, 50'000);
    const std::vector<uint8_t> other = roce_frame(ipv6, 4971);
    CHECK_EQ(soft::read_hashed(other, soft::read_headers(other)).dest_qp, 0U);
    for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
      const std::span<const uint8_t> cut(frame.data(), bytes);
      (void)soft::read_hashed(cut, soft::read_headers(cut));  // of the sanitizers: no byte beyond is read
    }
  }
}

// The twin knows packets as values and the lab as bytes: of one packet both hash the same, whatever the fields.
void twin_and_lab_hash_one_packet_alike() {
  for (const bool ipv6 : {false, true}) {
    for (const uint16_t dst_port : {uint16_t{4791}, uint16_t{4971}, uint16_t{4793}}) {
      const std::vector<uint8_t> frame = roce_frame(ipv6, dst_port);
      const soft::Headers read = soft::read_headers(frame);
      HashedHeaders known = headers_of(read.src_ip, read.dst_ip, 50'000, dst_port);
      if (dst_port == 4791) known.dest_qp = 0xABCDEF;
      const HashedHeaders seen = soft::read_hashed(frame, read);
      for (unsigned field = 0; field < kHashFields; ++field) {
        const HashFields one = static_cast<HashFields>(1U << field);
        CHECK_EQ(hash_key(known, one), hash_key(seen, one));
      }
      CHECK_EQ(read.flow_key, key_of(read.src_ip, read.dst_ip, 50'000, dst_port));
    }
  }
}

// IPv6 in IPv6, with and without a routing header between them, and IPv4 in IPv6.
void a_packet_inside_is_read() {
  for (const bool routed : {false, true}) {
    for (const bool inner_v6 : {false, true}) {
      const std::vector<uint8_t> inside = roce_frame(inner_v6);
      std::vector<uint8_t> frame(inside.begin(), inside.begin() + 12);
      frame.insert(frame.end(), {0x86, 0xDD, 0x60, 0, 0, 9, 0, 0});
      const uint8_t kind = inner_v6 ? 41 : 4;
      frame.push_back(routed ? 43 : kind);
      frame.push_back(64);
      for (const uint8_t last : {uint8_t{21}, uint8_t{22}}) {
        const IpAddress address = v6(last);
        frame.insert(frame.end(), address.bytes.begin(), address.bytes.end());
      }
      if (routed) frame.insert(frame.end(), {kind, 2, 4, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
      frame.insert(frame.end(), inside.begin() + 14, inside.end());
      const soft::Headers headers = soft::read_headers(frame);
      const HashedHeaders read = soft::read_hashed(frame, headers);
      CHECK(read.outer.dst_ip == v6(22));
      CHECK_EQ(read.flow_label, 9U);
      CHECK_EQ(read.inner.src_port, 50'000);
      CHECK_EQ(read.inner.dst_port, 4791);
      CHECK_EQ(int{read.inner.protocol}, 17);
      CHECK(read.inner.dst_ip == (inner_v6 ? v6(2) : IpAddress::v4(0x0A000002)));
      for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
        const std::span<const uint8_t> cut(frame.data(), bytes);
        (void)soft::read_hashed(cut, soft::read_headers(cut));
      }
    }
  }
}

// ---- ways

std::map<size_t, int64_t> spread(SwitchConfig config, int packets) {
  Bench bench(config);
  for (int i = 0; i < packets; ++i) {
    SwitchFrame frame = frame_to(0, 26, 100, mixed(static_cast<uint64_t>(i)));
    frame.entropy = static_cast<uint16_t>(i);
    bench.model.on_frame(0, frame, i * 1000);
    bench.advance(i * 1000);
  }
  bench.advance(1'000'000'000'000);
  return bench.delivered;
}

// Ports of weights 1, 2 and 4 carry a seventh, two and four, whether by hash, chance or the packet's word.
void ways_have_their_weights() {
  for (const LoadBalancing balancing : {LoadBalancing::ecmp, LoadBalancing::spray, LoadBalancing::structured}) {
    SwitchConfig config = config_of(4);
    config.routes = {{1, 2, 3}};
    config.ways.balancing = balancing;
    config.ports[1].weight = 3;
    config.ports[2].weight = 6;
    config.ports[3].weight = 12;  // 3, 6 and 12 are 1, 2 and 4
    auto taken = spread(config, 7000);
    // Four standard deviations of the largest are 166.
    CHECK(std::abs(taken[1] - 1000) < 166);
    CHECK(std::abs(taken[2] - 2000) < 166);
    CHECK(std::abs(taken[3] - 4000) < 166);
  }
}

// Weights hold for new routes too, and alike they change nothing, however large.
void weights_outlive_routes_and_equal_ones_are_none() {
  SwitchConfig config = config_of(4);
  config.routes = {{1}};
  for (SwitchPortConfig& port : config.ports) port.weight = 9;
  SwitchConfig plain = config;
  for (SwitchPortConfig& port : plain.ports) port.weight = 1;
  plain.routes = config.routes = {{1, 2, 3}};
  CHECK(spread(config, 500) == spread(plain, 500));

  config.ports[2].weight = 18;
  config.ways.balancing = LoadBalancing::structured;
  Bench bench(config);
  bench.model.set_ways({{0, 2}, {1, 2}});
  for (int i = 0; i < 9; ++i) {
    SwitchFrame frame = frame_to(0, 26, 100);
    frame.entropy = static_cast<uint16_t>(i);
    bench.model.on_frame(0, frame, 0);
  }
  bench.advance(1'000'000'000);
  CHECK_EQ(bench.delivered[1], 3);
  CHECK_EQ(bench.delivered[2], 6);
}

// The bits that a switch looks at name its way, and no others do: two tiers share one value.
void structured_entropy_has_fields() {
  SwitchConfig config = config_of(5);
  config.routes = {{1, 2, 3, 4}};
  config.ways.balancing = LoadBalancing::structured;
  config.ways.entropy_shift = 4;
  config.ways.entropy_bits = 2;
  Bench bench(config);
  for (uint32_t value = 0; value < 256; ++value) {
    SwitchFrame frame = frame_to(0, 26, 100);
    frame.entropy = static_cast<uint16_t>(0xC000 | value);
    bench.model.on_frame(0, frame, value * 1000);
    bench.advance(value * 1000 + 999);
    CHECK_EQ(bench.delivered[1 + (value >> 4 & 3)], value / 64 * 16 + (value & 15) + 1);
  }
}

// Of ways of unequal rates the one that is through with its queue first: 400 Gb/s takes four of five packets.
void what_adapts_counts_the_time_to_drain() {
  SwitchConfig config = config_of(3);
  config.routes = {{1, 2}};
  config.ways.balancing = LoadBalancing::adaptive;
  config.ports[2].rate_bps = 400 * kGbps;
  Bench bench(config);
  for (int i = 0; i < 500; ++i) bench.model.on_frame(0, frame_to(0), 0);
  bench.advance(1'000'000'000);
  CHECK(std::abs(bench.delivered[2] - 400) <= 5);
}

// A table of 16,384 entries that 20,000 flows share: those of one entry go as one, so that nobody is moved within a gap.
void flows_of_one_entry_share_its_way() {
  SwitchConfig config = config_of(5);
  config.routes = {{1, 2, 3, 4}};
  config.ways.balancing = LoadBalancing::flowlet;
  config.ways.flowlet_gap_ns = 1'000'000'000;
  Bench bench(config);
  std::vector<size_t> first(20'000);
  std::map<size_t, int64_t> before;
  const auto way = [&] {
    for (const auto& [port, count] : bench.delivered) {
      if (before[port] != count) {
        before[port] = count;
        return port;
      }
    }
    return size_t{0};
  };
  Nanos now = 0;
  for (int round = 0; round < 2; ++round) {
    for (size_t flow = 0; flow < first.size(); ++flow) {
      bench.model.on_frame(0, frame_to(0, 26, 100, mixed(flow + 1)), now += 100);
      bench.advance(now += 100);
      const size_t taken = way();
      if (round == 0) first[flow] = taken;
      else CHECK_EQ(taken, first[flow]);
    }
  }
}

void what_cannot_be_is_refused() {
  SwitchConfig config = config_of(2);
  config.ways.hash_fields = 0;
  CHECK_EQ(validate(config), "hash_fields: names none, or one that is not known");
  config.ways.hash_fields = kFiveTuple;
  config.ways.entropy_shift = 9;
  CHECK_EQ(validate(config), "entropy_bits: are none, or beyond the 16 of a UDP port");
  config.ways.entropy_shift = 8;
  CHECK_EQ(validate(config), "");
  config.ports[1].weight = 257;
  CHECK_EQ(validate(config), "ports[1].weight: is outside 1 to 256");
}

}  // namespace

int main() {
  a_hash_covers_its_fields_and_no_others();
  queue_pairs_of_one_five_tuple_spread_evenly();
  a_queue_pair_is_read_where_roce_has_it();
  twin_and_lab_hash_one_packet_alike();
  a_packet_inside_is_read();
  ways_have_their_weights();
  weights_outlive_routes_and_equal_ones_are_none();
  structured_entropy_has_fields();
  what_adapts_counts_the_time_to_drain();
  flows_of_one_entry_share_its_way();
  what_cannot_be_is_refused();
  return etloop::test::failures();
}
