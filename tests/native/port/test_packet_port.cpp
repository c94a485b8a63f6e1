// Ports that write whole frames, over a veth pair in a namespace: what leaves, what is taken, and what is refused.
#include "port/packet_port.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>

#include "port/capture.h"
#include "port/open_port.h"
#include "port/shared_queues.h"
#include "port/udp_port.h"
#include "support/check.h"
#include "support/lab.h"
#include "support/port_ends.h"
#include "wire/frame_builder.h"

namespace {

using namespace etloop;
using test::failure_of;
using test::flow_to;
using test::Keeper;
using test::Kept;
using test::kSourcePort;
using test::middles;
using test::receive;
using wire::Opcode;
using wire::Packet;

const IpAddress kNear4 = *IpAddress::parse("10.92.0.1");
const IpAddress kFar4 = *IpAddress::parse("10.92.0.2");
const IpAddress kNear6 = *IpAddress::parse("fd00:92::1");
const IpAddress kFar6 = *IpAddress::parse("fd00:92::2");

// Both ends in one namespace: neighbours stand in the table, as the kernel would not ask the wire for its own addresses.
constexpr const char* kLab =
    "ip link add n0 mtu 9000 address 02:00:00:00:00:01 type veth peer name f0 mtu 9000 address 02:00:00:00:00:02 && "
    "sysctl -qw net.ipv6.conf.n0.accept_dad=0 net.ipv6.conf.f0.accept_dad=0 && "
    "ip address add 10.92.0.1/24 dev n0 && ip address add 10.92.0.2/24 dev f0 && "
    "ip address add fd00:92::1/64 dev n0 nodad && ip address add fd00:92::2/64 dev f0 nodad && "
    "ip link set lo up && ip link set n0 up && ip link set f0 up && "
    "ip neighbour replace 10.92.0.2 lladdr 02:00:00:00:00:02 dev n0 nud permanent && "
    "ip neighbour replace 10.92.0.1 lladdr 02:00:00:00:00:01 dev f0 nud permanent && "
    "ip neighbour replace fd00:92::2 lladdr 02:00:00:00:00:02 dev n0 nud permanent && "
    "ip neighbour replace fd00:92::1 lladdr 02:00:00:00:00:01 dev f0 nud permanent";

struct Ends {
  const char* name;
  Backend backend;
  IpAddress near;
  IpAddress far;
};

std::unique_ptr<DatagramPort> opened(const PortConfig& config) { return test::opened_by(open_datagram_port, config); }

bool packet_ports_have_rings = false;

PortConfig settings(Backend backend, const IpAddress& address, const char* interface) {
  PortConfig config;
  config.receive_ring = backend == Backend::packet && packet_ports_have_rings;
  config.backend = backend;
  config.addresses = {address};
  config.interface = interface;
  config.link_bps = 100'000'000'000;
  return config;
}

std::vector<std::vector<uint8_t>> frames_at(const Descriptor& capture) {
  std::vector<std::vector<uint8_t>> frames;
  std::array<uint8_t, 65536> frame;
  for (ssize_t length = 0; (length = read(capture.get(), frame.data(), frame.size())) > 0;) {
    frames.emplace_back(frame.begin(), frame.begin() + length);
  }
  return frames;
}

// Frames of a pcapng file as Capture writes it: section, interface, packets, statistics.
std::vector<std::vector<uint8_t>> frames_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::vector<uint8_t>> frames;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint32_t head[7]{};
    std::memcpy(head, &bytes[at], std::min(sizeof head, bytes.size() - at));
    uint32_t trailer = 0;
    CHECK(head[1] >= 12 && at + head[1] <= bytes.size());
    if (head[1] < 12 || at + head[1] > bytes.size()) break;
    std::memcpy(&trailer, &bytes[at + head[1] - 4], sizeof trailer);
    CHECK_EQ(trailer, head[1]);
    if (head[0] == 6) frames.emplace_back(&bytes[at + 28], &bytes[at + 28] + head[5]);
    at += head[1];
  }
  return frames;
}

void every_pair_of_backends_talks(const Ends& ends) {
  const std::string path = "/tmp/etloop-capture-" + std::to_string(getpid()) + ".pcapng";
  PortConfig captured = settings(ends.backend, ends.near, "n0");
  CaptureConfig capture_config;
  capture_config.path = path;
  auto file = Capture::open(capture_config);
  CHECK_EQ(failure_of(file), std::string());
  captured.capture = *std::move(file);
  auto near = opened(captured);
  auto far = opened(settings(ends.backend, ends.far, "f0"));
  const Descriptor capture = test::frame_socket("f0");
  const FlowId flow = flow_to(*near, ends.far);
  const uint32_t first_psn = 0xFFFFFA;
  Keeper keeper;
  size_t expected = 0;
  for (const uint32_t payload_bytes : {4096U, 1024U, 256U}) {
    const uint32_t count = near->max_run(payload_bytes);
    CHECK(near->send(middles(flow, count, first_psn, payload_bytes)) == TxResult::sent);
    receive(*far, keeper, expected += count);
  }
  std::vector<uint8_t> payload(61, 0x5A);
  const Packet packets[] = {
      {.opcode = Opcode::write_first, .dest_qpn = 1, .va = 2, .rkey = 3, .dma_bytes = 4100, .payload_bytes = 4096},
      {.opcode = Opcode::write_only, .dest_qpn = 1, .psn = 2, .payload_bytes = 61, .payload = payload.data()},
      {.opcode = Opcode::acknowledge, .dest_qpn = 1, .psn = 2, .syndrome = wire::kSyndromeAck, .msn = 2},
      {.opcode = Opcode::cnp, .becn = true, .dest_qpn = 1},
  };
  for (const Packet& packet : packets) CHECK(near->send({.flow = flow, .head = packet}) == TxResult::sent);
  receive(*far, keeper, expected += std::size(packets));
  uint32_t psn = first_psn;
  for (size_t i = 0; i < near->max_run(4096) && i < keeper.kept.size(); ++i, psn = (psn + 1) & wire::kPsnMask) {
    Packet packet;
    CHECK(wire::decode(keeper.kept[i].bytes, keeper.kept[i].bytes.size(), packet) == wire::Malformed::none);
    CHECK_EQ(packet.psn, psn);
    CHECK_EQ(packet.ack_req, (psn + 1) % 4 == 0);
    CHECK(keeper.kept[i].datagram.src_ip == ends.near);
    CHECK_EQ(keeper.kept[i].datagram.src_port, kSourcePort);
    CHECK_EQ(keeper.kept[i].datagram.traffic_class, 0x6A);
  }
  CHECK_EQ(near->counters().tx_datagrams, static_cast<int64_t>(expected));
  CHECK_EQ(far->counters().rx_datagrams, static_cast<int64_t>(expected));
  CHECK_EQ(far->counters().rx_icrc_encapsulated, int64_t{0});
  near.reset();
  captured.capture.reset();  // the file is whole
  const auto kept = frames_of_file(path);
  std::remove(path.c_str());
  CHECK_EQ(kept.size(), expected);
  for (const auto& frame : kept) CHECK(wire::check_frame(frame) == wire::FrameCheck::good);
  if (ends.backend == Backend::xdp) return;  // its frames pass below where others could look; the far end has checked them
  size_t roce = 0;
  for (const auto& frame : frames_at(capture)) {
    const wire::FrameCheck check = wire::check_frame(frame);
    CHECK(check == wire::FrameCheck::good || check == wire::FrameCheck::not_roce);  // the kernel's own
    roce += check == wire::FrameCheck::good ? 1 : 0;
  }
  CHECK_EQ(roce, expected);
}

void an_xdp_port_takes_all_queues_or_says_so() {
  PortConfig config = settings(Backend::xdp, kNear4, "n0");
  config.shared = std::make_shared<SharedQueues>(2, 0x100);
  CHECK(failure_of(open_datagram_port(config)).starts_with("n0 has 1 receive queues, not 2, and packets"));
}

void a_wrong_icrc_is_counted_and_dropped() {
  auto far = opened(settings(Backend::packet, kFar4, "f0"));
  const ethernet::Path path{.source = {2, 0, 0, 0, 0, 1}, .destination = {2, 0, 0, 0, 0, 2}, .tag = {},
                            .flow = {kNear4, kFar4, kSourcePort}};
  std::vector<uint8_t> frame(200);
  const Packet ack{.opcode = Opcode::acknowledge, .dest_qpn = 1, .psn = 2, .syndrome = wire::kSyndromeAck, .msn = 2};
  const size_t bytes = wire::datagram_bytes(ack.opcode, 0);
  const size_t headers = ethernet::put_headers(path, 0x6A, 0, bytes, frame);
  build_datagram(path.flow, 0, ack, std::span(frame).subspan(headers));
  frame.resize(headers + bytes);
  const Descriptor sender = test::frame_socket("n0");
  for (const size_t spoilt : {size_t{0}, headers + 5, headers + bytes - 1}) {
    if (spoilt != 0) frame[spoilt] ^= 1;
    CHECK_EQ(send(sender.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
    if (spoilt != 0) frame[spoilt] ^= 1;
  }
  Keeper keeper;
  receive(*far, keeper, 1);
  for (int turn = 0; turn < 100 && far->counters().rx_datagrams < 3; ++turn) far->receive(keeper, 64);
  CHECK_EQ(far->counters().rx_icrc_encapsulated, int64_t{2});
  CHECK_EQ(keeper.kept.size(), size_t{1});
}

// With lengths as they were, with that of IP made new, and with none that hides the cut.
void cut_frames_are_known_by_their_dscp(Backend backend, const IpAddress& near_ip, const IpAddress& far_ip) {
  PortConfig config = settings(backend, far_ip, "f0");
  config.trimmed_dscps = 1ULL << 48;
  auto far = opened(config);
  const ethernet::Path path{.source = {2, 0, 0, 0, 0, 1}, .destination = {2, 0, 0, 0, 0, 2}, .tag = {},
                            .flow = {near_ip, far_ip, kSourcePort}};
  Packet middle{.opcode = Opcode::write_middle, .dest_qpn = 0x1234, .psn = 77, .payload_bytes = 1024};
  const size_t bytes = wire::datagram_bytes(middle.opcode, middle.payload_bytes);
  std::vector<uint8_t> whole(2048);
  const size_t headers = ethernet::put_headers(path, 48 << 2 | 2, 0, bytes, whole);
  build_datagram(path.flow, 0, middle, std::span(whole).subspan(headers));
  whole.resize(headers + bytes);
  const Descriptor sender = test::frame_socket("n0");
  const auto put = [&](size_t length, bool made_new, uint8_t traffic_class) {
    std::vector<uint8_t> frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    ethernet::put_headers(path, traffic_class, 0, made_new ? length - headers : bytes, frame);
    CHECK_EQ(send(sender.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  };
  put(128, false, 48 << 2);
  put(128, true, 48 << 2 | 3);
  put(whole.size(), false, 48 << 2);  // short enough for its switch: marked, and not cut
  put(128, false, 26 << 2);           // cut by nobody whom we know
  put(headers + 11, false, 48 << 2);  // nothing names it
  Keeper keeper;
  receive(*far, keeper, 3);
  for (int turn = 0; turn < 100 && far->counters().rx_datagrams < 5; ++turn) far->receive(keeper, 64);
  CHECK_EQ(keeper.kept.size(), size_t{3});
  CHECK_EQ(far->counters().foreign_datagrams, int64_t{2});
  for (size_t i = 0; i < keeper.kept.size(); ++i) {
    CHECK_EQ(keeper.kept[i].datagram.trimmed, i < 2);
    wire::CutPacket cut;
    CHECK(wire::decode_cut(keeper.kept[i].bytes, cut) == wire::Malformed::none);
    CHECK_EQ(cut.psn, 77U);
    CHECK_EQ(keeper.kept[i].bytes.size(), i < 2 ? 128 - headers : bytes);
  }
}

void tags_carry_number_and_priority() {
  PortConfig config = settings(Backend::packet, kNear4, "n0");
  config.vlan_id = 0;
  config.vlan_priority = 5;
  auto near = opened(config);
  auto far = opened(settings(Backend::packet, kFar4, "f0"));
  const Descriptor capture = test::frame_socket("f0");
  const FlowId flow = flow_to(*near, kFar4);
  CHECK(near->send(middles(flow, 2, 0)) == TxResult::sent);
  Keeper keeper;
  receive(*far, keeper, 2);
  CHECK_EQ(near->counters().tx_datagrams, int64_t{2});
}

void a_pause_holds_its_priority_and_is_accounted() {
  auto near = opened(settings(Backend::packet, kNear4, "n0"));
  auto far = opened(settings(Backend::packet, kFar4, "f0"));
  const FlowId flow = flow_to(*near, kFar4);
  ethernet::Pause pause{.enabled = 1U << 3, .quanta = {}};
  pause.quanta[3] = 0xFFFF;  // 335 us at 100 Gb/s
  Keeper keeper;
  for (int turn = 0; turn < 100; ++turn) {
    CHECK(far->send_pause(pause));
    near->receive(keeper, 64);
    if (near->send(middles(flow, 1, 0)) == TxResult::held) break;
  }
  CHECK(near->send(middles(flow, 1, 0)) == TxResult::held);
  PacketRun other = middles(flow, 1, 0);
  other.traffic_class = 48 << 2;  // another priority, as a CNP
  CHECK(near->send(other) == TxResult::sent);
  pause.quanta[3] = 0;
  CHECK(far->send_pause(pause));
  near->wait(1'000'000, -1);
  near->receive(keeper, 64);
  CHECK(near->send(middles(flow, 1, 0)) == TxResult::sent);
  CHECK(near->counters().rx_pause_frames >= 2);
  CHECK(near->counters().paused_ns > 0);
}

void a_pause_of_the_datas_tag_leaves_that_of_notifications() {
  const std::string path = "/tmp/etloop-test-marks-" + std::to_string(getpid()) + ".pcapng";
  PortConfig config = settings(Backend::packet, kNear4, "n0");
  config.vlan_id = 0;
  config.vlan_priority = 3;
  config.capture = *Capture::open({.path = path, .interface = "n0"});
  auto near = opened(config);
  auto far = opened(settings(Backend::packet, kFar4, "f0"));
  const FlowId flow = flow_to(*near, kFar4);
  ethernet::Pause pause{.enabled = 1U << 3, .quanta = {}};
  pause.quanta[3] = 0xFFFF;
  Keeper keeper;
  for (int turn = 0; turn < 100 && near->send(middles(flow, 1, 0)) != TxResult::held; ++turn) {
    CHECK(far->send_pause(pause));
    near->receive(keeper, 64);
  }
  PacketRun notification = middles(flow, 1, 0);
  mark(notification, {48 << 2, 6});
  CHECK(near->send(notification) == TxResult::sent);
  near.reset();
  config.capture.reset();
  const auto kept = frames_of_file(path);
  std::remove(path.c_str());
  CHECK(!kept.empty());
  const std::vector<uint8_t>& last = kept.back();
  CHECK_EQ(last[12] << 8 | last[13], 0x8100);
  CHECK_EQ(last[14] >> 5, 6);
}

// Several datagrams in one frame, as the kernel joins them (virtio 1.2, 5.1.6).
void send_joined(uint32_t count, uint32_t first_psn) {
  constexpr std::array<uint8_t, 10> kOffload{1, 5, 42, 0, 0x20, 0x04, 34, 0, 6, 0};  // a checksum to fill in, UDP, 1056 B each
  const ethernet::Path path{.source = {2, 0, 0, 0, 0, 1}, .destination = {2, 0, 0, 0, 0, 2}, .tag = {},
                            .flow = {kNear4, kFar4, kSourcePort}};
  constexpr size_t kEach = 1056;  // with BTH of 12, ICRC of 4 and an even payload
  std::vector<uint8_t> frame(kOffload.begin(), kOffload.end());
  frame.resize(kOffload.size() + 64 + count * kEach);
  const std::span<uint8_t> on_wire = std::span(frame).subspan(kOffload.size());
  const size_t at = kOffload.size() + ethernet::put_headers(path, 0x6A, 0, count * kEach, on_wire);
  for (uint32_t i = 0; i < count; ++i) {
    const Packet packet{.opcode = Opcode::write_middle, .dest_qpn = 0x123, .psn = first_psn + i, .payload_bytes = kEach - 16};
    build_datagram(path.flow, static_cast<uint16_t>(i), packet, std::span(frame).subspan(at + i * kEach, kEach));
  }
  frame.resize(at + count * kEach);
  const Descriptor sender = test::frame_socket("n0");
  const int with_offload = 1;
  CHECK_EQ(setsockopt(sender.get(), SOL_PACKET, 15, &with_offload, sizeof with_offload), 0);  // PACKET_VNET_HDR
  CHECK_EQ(send(sender.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
}

// Frames that fit a slot are read from the ring; those that the kernel has joined wait at the socket, in their turn.
void a_ring_spares_the_calls_but_for_long_frames() {
  PortConfig ringed = settings(Backend::packet, kFar4, "f0");
  ringed.receive_ring = true;
  auto far = opened(ringed);
  auto near = opened(settings(Backend::packet, kNear4, "n0"));
  const FlowId flow = flow_to(*near, kFar4);
  Keeper keeper;
  CHECK(near->send(middles(flow, 7, 100)) == TxResult::sent);
  receive(*far, keeper, 7);
  CHECK_EQ(far->counters().rx_calls, int64_t{0});
  send_joined(40, 107);
  CHECK(near->send(middles(flow, 1, 147)) == TxResult::sent);
  send_joined(40, 148);
  receive(*far, keeper, 88);
  CHECK_EQ(far->counters().rx_calls, int64_t{2});
  for (uint32_t i = 0; i < keeper.kept.size(); ++i) {
    Packet packet;
    CHECK(wire::decode(keeper.kept[i].bytes, keeper.kept[i].bytes.size(), packet) == wire::Malformed::none);
    CHECK_EQ(packet.psn, 100 + i);
  }
}

// What came while all slots were taken is counted as lost in a receive buffer; afterwards the ring goes on.
void a_full_ring_counts_what_it_lost() {
  PortConfig ringed = settings(Backend::packet, kFar4, "f0");
  ringed.receive_ring = true;
  ringed.receive_buffer_bytes = 1 << 20;
  auto far = opened(ringed);
  auto near = opened(settings(Backend::packet, kNear4, "n0"));
  const FlowId flow = flow_to(*near, kFar4);
  const auto slots = static_cast<uint32_t>(far->counters().receive_buffer_bytes / 8192);
  const uint32_t sent = 2 * slots;
  for (uint32_t i = 0; i < sent; ++i) CHECK(near->send(middles(flow, 1, i)) == TxResult::sent);
  Keeper keeper;
  for (int turn = 0; turn < 1000 && keeper.kept.size() < slots; ++turn) far->receive(keeper, 64);
  CHECK_EQ(keeper.kept.size(), size_t{slots});
  CHECK_EQ(far->receive_overflows(), int64_t{sent} - slots);
  CHECK(near->send(middles(flow, 5, sent)) == TxResult::sent);
  receive(*far, keeper, slots + 5);
  CHECK_EQ(far->receive_overflows(), int64_t{sent} - slots);
}

void errors_say_what_to_do() {
  CHECK_EQ(failure_of(open_datagram_port(settings(Backend::packet, kNear4, "none0"))),
           std::string("there is no interface none0; write one that `ip link` lists"));
  CHECK_EQ(failure_of(open_datagram_port(settings(Backend::packet, *IpAddress::parse("192.0.2.1"), ""))),
           std::string("address 192.0.2.1 is not on this host; name an address that `ip address` lists"));
  PortConfig config = settings(Backend::packet, kNear4, "lo");
  auto port = opened(config);
  CHECK(failure_of(open_datagram_port(config)).starts_with("10.92.0.1 UDP port 4791 is in use; "));
}

}  // namespace

int main() {
  std::string reason;
  if (!test::enter_lab(kLab, reason)) {
    test::skipped(test::Missing::kernel_or_right, "all tests of packet ports", reason);
    return test::failures();
  }
  if (const std::string refused = failure_of(open_datagram_port(settings(Backend::xdp, kNear4, "n0"))); refused.empty()) {
    every_pair_of_backends_talks({"AF_XDP, IPv4", Backend::xdp, kNear4, kFar4});
    every_pair_of_backends_talks({"AF_XDP, IPv6", Backend::xdp, kNear6, kFar6});
    an_xdp_port_takes_all_queues_or_says_so();
    cut_frames_are_known_by_their_dscp(Backend::xdp, kNear4, kFar4);
  } else {
    test::skipped(test::Missing::kernel_or_right, "the tests of xdp ports", refused);
  }
  for (const bool ring : {false, true}) {
    packet_ports_have_rings = ring;
    every_pair_of_backends_talks({"IPv4", Backend::packet, kNear4, kFar4});
    every_pair_of_backends_talks({"IPv6", Backend::packet, kNear6, kFar6});
    a_wrong_icrc_is_counted_and_dropped();
    cut_frames_are_known_by_their_dscp(Backend::packet, kNear4, kFar4);
    cut_frames_are_known_by_their_dscp(Backend::packet, kNear6, kFar6);
    tags_carry_number_and_priority();
    a_pause_holds_its_priority_and_is_accounted();
    a_pause_of_the_datas_tag_leaves_that_of_notifications();
  }
  packet_ports_have_rings = false;
  a_ring_spares_the_calls_but_for_long_frames();
  a_full_ring_counts_what_it_lost();
  errors_say_what_to_do();
  return test::failures();
}
