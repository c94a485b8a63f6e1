// The UDP port over loopback addresses, and, where a network namespace can be had, what really leaves an interface.
#include "port/udp_port.h"

#include <linux/if_ether.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "port/udp_socket.h"
#include "support/check.h"
#include "support/lab.h"
#include "support/port_ends.h"

#ifndef SO_RCVPRIORITY
#define SO_RCVPRIORITY 82
#endif

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

constexpr uint32_t kLoopback = 0x7F5B0000;  // 127.91.0.0
constexpr IpAddress kA = IpAddress::v4(kLoopback + 1);
constexpr IpAddress kB = IpAddress::v4(kLoopback + 2);
constexpr IpAddress kC = IpAddress::v4(kLoopback + 3);
constexpr IpAddress kLabNear = IpAddress::v4(0x0A5B0001);
constexpr IpAddress kLabFar = IpAddress::v4(0x0A5B0002);

PortConfig settings(std::vector<IpAddress> addresses) {
  PortConfig config;
  config.addresses = std::move(addresses);
  return config;
}

std::unique_ptr<UdpPort> opened(const PortConfig& config) { return test::opened_by(UdpPort::open, config); }

void expect_middle(const Kept& kept, uint32_t i, bool counting_ids, uint32_t first_psn, const IpAddress& from = kA,
                   const IpAddress& to = kB) {
  Packet packet;
  CHECK(wire::decode(kept.bytes, kept.bytes.size(), packet) == wire::Malformed::none);
  CHECK_EQ(packet.psn, (first_psn + i) & wire::kPsnMask);
  CHECK_EQ(packet.dest_qpn, 0x123U);
  CHECK_EQ(packet.ack_req, (packet.psn + 1) % 4 == 0);
  for (uint32_t at = 0; at < packet.payload_bytes; ++at) CHECK(packet.payload[at] == wire::kPatternByte);
  const auto ip_id = static_cast<uint16_t>(counting_ids ? i : 0);
  const uint32_t expected = wire::icrc({from, to, kSourcePort}, ip_id, packet);
  uint32_t stands = 0;
  std::memcpy(&stands, kept.bytes.data() + kept.bytes.size() - 4, 4);
  CHECK_EQ(stands, expected);
  CHECK(kept.datagram.src_ip == from);
  CHECK_EQ(kept.datagram.src_port, kSourcePort);
  CHECK_EQ(kept.datagram.traffic_class, 0x6A);
}

void a_run_of_middles_arrives_packet_by_packet() {
  for (const bool offload : {true, false}) {
    PortConfig config = settings({kA});
    config.segmentation_offload = offload;
    auto a = opened(config);
    auto b = opened(settings({kB}));
    const FlowId flow = flow_to(*a, kB);
    for (const uint32_t payload_bytes : {4096U, 1024U, 256U}) {
      const uint32_t first_psn = 0xFFFFFA;  // wraps within the run
      const uint32_t count = a->max_run(payload_bytes);
      Keeper keeper;
      CHECK(a->send(middles(flow, count, first_psn, payload_bytes)) == TxResult::sent);
      receive(*b, keeper, count);
      for (uint32_t i = 0; i < keeper.kept.size(); ++i) expect_middle(keeper.kept[i], i, offload, first_psn);
    }
    const int64_t sent = 15 + 62 + 64;
    CHECK_EQ(a->counters().tx_datagrams, sent);
    CHECK_EQ(b->counters().rx_datagrams, sent);
    CHECK_EQ(a->counters().tx_bytes, b->counters().rx_bytes);
    CHECK_EQ(a->counters().tx_calls, int64_t{3});
  }
}

// One address talks to itself: IPv6 has a single loopback address.
void runs_over_ipv6_have_the_icrc_of_ipv6() {
  const IpAddress loopback = *IpAddress::parse("::1");
  if (const auto port = UdpPort::open(settings({loopback})); !port) {
    return test::skipped(test::Missing::kernel_or_right, "runs_over_ipv6_have_the_icrc_of_ipv6", port.error().text);
  }
  for (const bool offload : {true, false}) {
    PortConfig config = settings({loopback});
    config.segmentation_offload = offload;
    auto port = opened(config);
    const FlowId flow = flow_to(*port, loopback);
    Keeper keeper;
    CHECK(port->send(middles(flow, 15, 0xFFFFFA)) == TxResult::sent);
    receive(*port, keeper, 15);
    for (uint32_t i = 0; i < keeper.kept.size(); ++i) expect_middle(keeper.kept[i], i, offload, 0xFFFFFA, loopback, loopback);
  }
}

void single_packets_arrive_as_sent() {
  auto a = opened(settings({kA}));
  auto b = opened(settings({kB}));
  const FlowId flow = flow_to(*a, kB);
  std::vector<uint8_t> payload(61);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<uint8_t>(i);
  const Packet packets[] = {
      {.opcode = Opcode::write_first, .dest_qpn = 1, .va = 2, .rkey = 3, .dma_bytes = 4100, .payload_bytes = 4096},
      {.opcode = Opcode::write_last_imm, .ack_req = true, .dest_qpn = 1, .psn = 1, .imm = 4100, .payload_bytes = 5},
      {.opcode = Opcode::write_only, .dest_qpn = 1, .psn = 2, .payload_bytes = 61, .payload = payload.data()},
      {.opcode = Opcode::acknowledge, .dest_qpn = 1, .psn = 2, .syndrome = wire::kSyndromeAck, .msn = 2},
      {.opcode = Opcode::cnp, .becn = true, .dest_qpn = 1},
  };
  Keeper keeper;
  for (const Packet& packet : packets) CHECK(a->send({.flow = flow, .head = packet}) == TxResult::sent);
  receive(*b, keeper, std::size(packets));
  for (size_t i = 0; i < keeper.kept.size(); ++i) {
    const std::vector<uint8_t>& bytes = keeper.kept[i].bytes;
    Packet back;
    CHECK(wire::decode(bytes, bytes.size(), back) == wire::Malformed::none);
    uint32_t stands = 0;
    std::memcpy(&stands, bytes.data() + bytes.size() - 4, 4);
    CHECK_EQ(stands, wire::icrc({kA, kB, kSourcePort}, 0, packets[i]));
    if (packets[i].payload != nullptr) CHECK(std::memcmp(back.payload, payload.data(), payload.size()) == 0);
    back.payload = packets[i].payload;
    CHECK(back == packets[i]);
  }
}

// As the kernel cuts them apart it numbers them, which the ICRC covers; what is longer than the first needs another call.
void a_message_of_two_packets_leaves_in_one_call() {
  auto a = opened(settings({kA}));
  auto b = opened(settings({kB}));
  const FlowId flow = flow_to(*a, kB);
  const Packet packets[] = {
      {.opcode = Opcode::write_first, .dest_qpn = 1, .va = 2, .rkey = 3, .dma_bytes = 8192, .payload_bytes = 4096},
      {.opcode = Opcode::write_last_imm, .ack_req = true, .dest_qpn = 1, .psn = 1, .imm = 8192, .payload_bytes = 4096},
      {.opcode = Opcode::write_first, .dest_qpn = 1, .psn = 2, .va = 2, .rkey = 3, .dma_bytes = 8192, .payload_bytes = 4096},
      {.opcode = Opcode::write_last_imm, .ack_req = true, .dest_qpn = 1, .psn = 3, .imm = 8192, .payload_bytes = 4096},
  };
  for (const Packet& packet : packets) {
    CHECK(a->send({.flow = flow, .head = packet, .may_wait = !packet.ack_req}) == TxResult::sent);
  }
  Keeper keeper;
  receive(*b, keeper, std::size(packets));
  CHECK_EQ(a->counters().tx_calls, int64_t{2});
  CHECK_EQ(a->counters().tx_datagrams, int64_t{4});
  for (size_t i = 0; i < keeper.kept.size(); ++i) {
    const std::vector<uint8_t>& bytes = keeper.kept[i].bytes;
    CHECK_EQ(bytes.size(), wire::datagram_bytes(packets[i].opcode, packets[i].payload_bytes));
    uint32_t stands = 0;
    std::memcpy(&stands, bytes.data() + bytes.size() - 4, 4);
    CHECK_EQ(stands, wire::icrc({kA, kB, kSourcePort}, static_cast<uint16_t>(i % 2), packets[i]));
  }
}

void each_datagram_names_the_address_it_came_to() {
  auto a = opened(settings({kA}));
  auto b = opened(settings({kB, kC}));
  const FlowId to_c = flow_to(*a, kC);
  const FlowId to_b = flow_to(*a, kB);  // shares the socket of the source port
  CHECK(a->send(middles(to_c, 3, 0)) == TxResult::sent);
  CHECK(a->send(middles(to_b, 2, 0)) == TxResult::sent);
  Keeper keeper;
  receive(*b, keeper, 5);
  int at_c = 0;
  for (const Kept& kept : keeper.kept) at_c += kept.datagram.address;
  CHECK_EQ(at_c, 3);
}

// The priority that the kernel gave the next packet at a socket, which an interface of a VLAN maps to a PCP; -1: none came.
int priority_of_next(const Descriptor& socket) {
  pollfd waiting{socket.get(), POLLIN, 0};
  if (poll(&waiting, 1, 2000) != 1) return -1;
  std::array<uint8_t, 1 << 16> bytes{};
  alignas(cmsghdr) std::array<uint8_t, 256> control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket.get(), &message, 0) < 0) return -1;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SO_PRIORITY) continue;
    int priority = -1;
    std::memcpy(&priority, CMSG_DATA(head), sizeof priority);
    return priority;
  }
  return -1;
}

void each_packet_has_the_priority_of_its_kind() {
  const Descriptor far{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  SocketAddress place = socket_address(kB, wire::kRoceUdpPort);
  CHECK(bind(far.get(), &place.any, place.length) == 0);
  const int on = 1;
  if (setsockopt(far.get(), SOL_SOCKET, SO_RCVPRIORITY, &on, sizeof on) != 0 || !packets_have_priorities(kA)) {
    return test::skipped(test::Missing::kernel_or_right, "each_packet_has_the_priority_of_its_kind",
                         "the kernel takes no priority for single packets (Linux 6.14 does)");
  }
  constexpr int16_t kNotification = 48 << 2;
  for (const bool offload : {true, false}) {
    PortConfig config = settings({kA});
    config.segmentation_offload = offload;
    config.vlan_id = 5;
    config.vlan_priority = 3;
    auto port = opened(config);
    const FlowId flow = flow_to(*port, kB);
    const Packet cnp{.opcode = Opcode::cnp, .becn = true, .dest_qpn = 1};
    const struct {
      PacketRun run;
      int priority;
    } sends[] = {
        {middles(flow, 1, 0), 3},
        {{.flow = flow, .head = cnp, .priority = 6, .traffic_class = kNotification}, 6},
        // A class of its own would change the priority, too.
        {{.flow = flow, .head = cnp, .traffic_class = kNotification}, 3},
        {{.flow = flow, .head = cnp, .priority = 0}, 0},
        {middles(flow, 1, 1), 3},
    };
    for (const auto& [run, priority] : sends) {
      CHECK(port->send(run) == TxResult::sent);
      CHECK_EQ(priority_of_next(far), priority);
    }
  }
}

void short_packets_are_foreign_and_never_seen() {
  auto b = opened(settings({kB}));
  const auto stranger = open_sender(kA, kSourcePort, {});
  CHECK_EQ(failure_of(stranger), std::string());
  const SocketAddress to = socket_address(kB, wire::kRoceUdpPort);
  for (const size_t length : {0U, 1U, 15U, 16U}) {
    const std::array<uint8_t, 16> bytes{};
    CHECK_EQ(sendto(stranger->get(), bytes.data(), length, 0, &to.any, to.length), static_cast<ssize_t>(length));
  }
  Keeper keeper;
  receive(*b, keeper, 1);
  CHECK_EQ(keeper.kept[0].bytes.size(), 16U);
  CHECK_EQ(b->counters().foreign_datagrams, int64_t{3});
}

void injected_drops_follow_the_seed() {
  std::vector<uint32_t> survivors[2];
  for (auto& psns : survivors) {
    auto a = opened(settings({kA}));
    PortConfig config = settings({kB});
    config.drop_per_million = 300'000;
    config.drop_seed = 7;
    auto b = opened(config);
    const FlowId flow = flow_to(*a, kB);
    Keeper keeper;
    for (uint32_t psn = 0; psn < 600; psn += 15) CHECK(a->send(middles(flow, 15, psn)) == TxResult::sent);
    for (int turn = 0; turn < 200 && b->counters().rx_datagrams < 600; ++turn) {
      b->wait(10'000'000, -1);
      b->receive(keeper, 1000);
    }
    CHECK_EQ(b->counters().injected_drops, static_cast<int64_t>(600 - keeper.kept.size()));
    CHECK(keeper.kept.size() > 360 && keeper.kept.size() < 480);
    for (const Kept& kept : keeper.kept) {
      Packet packet;
      wire::decode(kept.bytes, kept.bytes.size(), packet);
      psns.push_back(packet.psn);
    }
  }
  CHECK(survivors[0] == survivors[1]);
}

void a_wake_ends_a_wait_and_is_drained() {
  for (const std::vector<IpAddress>& addresses : {std::vector{kB}, std::vector{kB, kC}}) {
    auto b = opened(settings(addresses));
    const Descriptor wake(eventfd(1, EFD_NONBLOCK));
    b->wait(kNever, wake.get());
    uint64_t value = 0;
    CHECK_EQ(read(wake.get(), &value, sizeof value), ssize_t{-1});
    b->wait(0, wake.get());
    b->wait(-5, -1);
  }
}

void errors_name_the_address_and_the_remedy() {
  auto held = opened(settings({kB}));
  CHECK_EQ(failure_of(UdpPort::open(settings({kA, kB}))),
           std::string("127.91.0.2 UDP port 4791 is in use; end the other agent that uses this address, or "
                       "unload the kernel's software RoCE (modprobe -r rdma_rxe), or choose another udp_port"));
  CHECK_EQ(failure_of(UdpPort::open(settings({IpAddress::v4(0xC0000201)}))),
           std::string("address 192.0.2.1 is not on this host; name an address that `ip -4 address` lists"));

  const auto other = open_sender(kA, kSourcePort, {});
  CHECK_EQ(failure_of(other), std::string());
  auto a = opened(settings({kA}));
  CHECK_EQ(failure_of(a->add_flow(0, kB, kSourcePort, 0x6A)),
           std::string("127.91.0.1 UDP port 49443 is in use; another process holds this source port; end it, or keep "
                       "it off (sysctl net.ipv4.ip_local_reserved_ports)"));
}

void a_full_receive_buffer_is_counted_as_our_own_loss() {
  auto a = opened(settings({kA}));
  PortConfig config = settings({kB});
  config.receive_buffer_bytes = 200'000;
  auto b = opened(config);
  CHECK(b->counters().receive_buffer_bytes >= 200'000);
  CHECK(b->counters().receive_buffer_bytes < 1'000'000);
  const FlowId flow = flow_to(*a, kB);
  CHECK_EQ(b->receive_overflows(), int64_t{0});
  for (int i = 0; i < 40; ++i) CHECK(a->send(middles(flow, 15, 0)) == TxResult::sent);
  CHECK(b->receive_overflows() > 0);
}

void a_packet_the_path_does_not_carry_names_the_mtu() {
  auto a = opened(settings({kA}));
  const FlowId flow = flow_to(*a, kB);
  CHECK_EQ(a->last_error(), std::string());
  const PacketRun run{.flow = flow, .head = {.opcode = Opcode::ud_send_only, .payload_bytes = 65'496}};
  CHECK(a->send(run) == TxResult::failed);
  CHECK_EQ(a->last_error(),
           std::string("the kernel did not send a datagram: Message too long; raise the MTU of every interface on the "
                       "path to 4160, or lower the path MTU from 4096"));
}

// A veth pair in a namespace of our own. The peer end has no address: it is where the frames are looked at.
constexpr const char* kLab =
    "ip link add tx0 mtu 9000 type veth peer name rx0 mtu 9000 && ip link set tx0 gso_max_segs 1 && "
    "ip address add 10.91.0.1/24 dev tx0 && ip link set tx0 up && ip link set rx0 up && "
    "ip neighbour add 10.91.0.2 lladdr 02:00:00:00:00:02 dev tx0";

// Reads every frame that has come, checks its ICRC and keeps its PSN. Returns whether there was one within the time.
bool read_frames(const Descriptor& capture, int timeout_ms, std::vector<uint32_t>& psns) {
  constexpr size_t kBthAt = 14 + 20 + 8;
  std::array<uint8_t, 65536> frame;
  pollfd readable{capture.get(), POLLIN, 0};
  if (poll(&readable, 1, timeout_ms) != 1) return false;
  for (ssize_t length = 0; (length = read(capture.get(), frame.data(), frame.size())) > 0;) {
    const std::span<const uint8_t> bytes{frame.data(), static_cast<size_t>(length)};
    CHECK(bytes.size() < 4200);
    CHECK_EQ(bytes[15], 0x6A);
    CHECK(wire::check_frame(bytes) == wire::FrameCheck::good);
    Packet packet;
    CHECK(wire::decode(bytes.subspan(kBthAt), bytes.size() - kBthAt, packet) == wire::Malformed::none);
    psns.push_back(packet.psn);
  }
  return true;
}

std::vector<uint32_t> counting(uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

PortConfig lab_settings(bool offload) {
  PortConfig config = settings({kLabNear});
  config.segmentation_offload = offload;
  return config;
}

void every_frame_on_the_link_has_a_valid_icrc() {
  const Descriptor capture = test::frame_socket("rx0", ETH_P_IP);
  for (const bool offload : {true, false}) {
    auto port = opened(lab_settings(offload));
    const FlowId flow = flow_to(*port, kLabFar);
    uint32_t expected = 0;
    for (const uint32_t count : {1U, 2U, 7U, 15U}) {
      CHECK(port->send(middles(flow, count, expected)) == TxResult::sent);
      expected += count;
    }
    const Packet ack{.opcode = Opcode::acknowledge, .psn = expected++, .syndrome = wire::kSyndromeAck};
    CHECK(port->send({.flow = flow, .head = ack}) == TxResult::sent);
    std::vector<uint32_t> psns;
    while (psns.size() < expected && read_frames(capture, 2000, psns)) {
    }
    CHECK(psns == counting(expected));
  }
}

// Packets are lost while the link is down, as behind a switch whose link is cut, and leave again once it is up.
void a_link_that_is_down_for_a_moment_fails_no_send() {
  const Descriptor capture = test::frame_socket("rx0", ETH_P_IP);
  for (const bool offload : {true, false}) {
    auto port = opened(lab_settings(offload));
    const FlowId flow = flow_to(*port, kLabFar);
    CHECK_EQ(port->link_loss(), std::string());
    CHECK(std::system("ip link set tx0 down") == 0);
    for (const uint32_t count : {1U, 15U}) CHECK(port->send(middles(flow, count, 0)) == TxResult::sent);
    CHECK_EQ(port->link_loss(), std::string("the kernel did not send a datagram: Network is unreachable"));
    CHECK_EQ(port->counters().tx_datagrams, 0);
    CHECK(std::system("ip link set tx0 up && ip neighbour replace 10.91.0.2 lladdr 02:00:00:00:00:02 dev tx0") == 0);
    CHECK(port->send(middles(flow, 3, 0)) == TxResult::sent);
    std::vector<uint32_t> psns;
    while (psns.size() < 3 && read_frames(capture, 2000, psns)) {
    }
    CHECK(psns == counting(3));
  }
}

// A slow link fills the send buffer: the port says so, wakes when there is room, and loses and reorders nothing.
void a_slow_link_blocks_and_loses_nothing() {
  if (std::system("tc qdisc replace dev tx0 root tbf rate 100mbit burst 70kb limit 64mb") != 0) {
    return test::skipped(test::Missing::kernel_or_right, "a_slow_link_blocks_and_loses_nothing", "no token bucket filter");
  }
  const Descriptor capture = test::frame_socket("rx0", ETH_P_IP);
  for (const bool offload : {true, false}) {
    auto port = opened(lab_settings(offload));
    const FlowId flow = flow_to(*port, kLabFar);
    uint32_t next_psn = 0;
    std::vector<uint32_t> psns;
    bool blocked = false;
    for (int recoveries = 0; recoveries < 2 && next_psn < 30'000;) {
      const TxResult result = port->send(middles(flow, 15, next_psn));
      CHECK(result != TxResult::failed);
      if (result == TxResult::sent) {
        next_psn += 15;
        if (std::exchange(blocked, false)) ++recoveries;
      } else {
        blocked = true;
        port->wait(2'000'000, -1);
      }
      read_frames(capture, 0, psns);  // often, for the capture's buffer is small without privileges
    }
    CHECK(port->counters().would_block >= 2);
    while (psns.size() < next_psn && read_frames(capture, 2000, psns)) port->wait(0, -1);
    CHECK(psns == counting(next_psn));
  }
}

}  // namespace

int main() {
  a_run_of_middles_arrives_packet_by_packet();
  runs_over_ipv6_have_the_icrc_of_ipv6();
  single_packets_arrive_as_sent();
  a_message_of_two_packets_leaves_in_one_call();
  each_packet_has_the_priority_of_its_kind();
  each_datagram_names_the_address_it_came_to();
  short_packets_are_foreign_and_never_seen();
  injected_drops_follow_the_seed();
  a_wake_ends_a_wait_and_is_drained();
  errors_name_the_address_and_the_remedy();
  a_full_receive_buffer_is_counted_as_our_own_loss();
  a_packet_the_path_does_not_carry_names_the_mtu();
  std::string reason;
  if (test::enter_lab(kLab, reason)) {  // last: it leaves the host's network
    every_frame_on_the_link_has_a_valid_icrc();
    a_link_that_is_down_for_a_moment_fails_no_send();
    a_slow_link_blocks_and_loses_nothing();
  } else {
    test::skipped(test::Missing::kernel_or_right, "the tests that look at a link", reason);
  }
  return test::failures();
}
