// Ports of one address that are the queues of one port: what comes to which is the rule of plan/queue_deal.h, over sockets
// and over packet sockets, and a pause holds all of them.
#include "port/shared_queues.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "plan/queue_deal.h"
#include "port/open_port.h"
#include "support/check.h"
#include "support/lab.h"
#include "support/port_ends.h"
#include "wire/ethernet.h"

namespace {

using namespace etloop;
using test::failure_of;
using test::flow_to;
using test::Keeper;

constexpr uint32_t kFirstQpn = 0xFFFF00;
constexpr uint32_t kQueuePairs = 40;

const IpAddress kNear4 = *IpAddress::parse("10.93.0.1");
const IpAddress kFar4 = *IpAddress::parse("10.93.0.2");
const IpAddress kNear6 = *IpAddress::parse("fd00:93::1");
const IpAddress kFar6 = *IpAddress::parse("fd00:93::2");

constexpr const char* kLab =
    "ip link add n0 mtu 9000 address 02:00:00:00:00:01 type veth peer name f0 mtu 9000 address 02:00:00:00:00:02 && "
    "sysctl -qw net.ipv6.conf.n0.accept_dad=0 net.ipv6.conf.f0.accept_dad=0 && "
    "ip address add 10.93.0.1/24 dev n0 && ip address add 10.93.0.2/24 dev f0 && "
    "ip address add fd00:93::1/64 dev n0 nodad && ip address add fd00:93::2/64 dev f0 nodad && "
    "ip link set lo up && ip link set n0 up && ip link set f0 up && "
    "ip neighbour replace 10.93.0.2 lladdr 02:00:00:00:00:02 dev n0 nud permanent && "
    "ip neighbour replace 10.93.0.1 lladdr 02:00:00:00:00:01 dev f0 nud permanent && "
    "ip neighbour replace fd00:93::2 lladdr 02:00:00:00:00:02 dev n0 nud permanent && "
    "ip neighbour replace fd00:93::1 lladdr 02:00:00:00:00:01 dev f0 nud permanent";

PortConfig settings(Backend backend, const IpAddress& address, const char* interface) {
  PortConfig config;
  config.backend = backend;
  config.addresses = {address};
  config.interface = interface;
  config.link_bps = 100'000'000'000;
  return config;
}

using Queues = std::vector<std::unique_ptr<DatagramPort>>;

Queues queues_of(PortConfig config, uint32_t count) {
  Queues queues;
  config.shared = std::make_shared<SharedQueues>(count, kFirstQpn);
  for (config.queue = 0; config.queue < count; ++config.queue) queues.push_back(test::opened_by(open_datagram_port, config));
  return queues;
}

PacketRun acknowledgement(FlowId flow, uint32_t dest_qpn) {
  PacketRun run;
  run.flow = flow;
  run.head.opcode = wire::Opcode::acknowledge;
  run.head.dest_qpn = dest_qpn;
  run.head.psn = 7;
  return run;
}

struct Place {
  const char* name;
  Backend backend;
  IpAddress near;
  IpAddress far;
};

// Every number in turn: each datagram is at the queue that the rule says, and at no other.
void packets_come_to_the_queue_of_their_number(const Place& place, uint32_t count) {
  const Queues queues = queues_of(settings(place.backend, place.far, "f0"), count);
  auto sender = test::opened_by(open_datagram_port, settings(place.backend, place.near, "n0"));
  const FlowId flow = flow_to(*sender, place.far);
  for (uint32_t number = 0; number < kQueuePairs; ++number) {
    CHECK(sender->send(acknowledgement(flow, kFirstQpn + number)) == TxResult::sent);
    sender->wait(0, -1);  // what may wait leaves
  }
  for (uint32_t queue = 0; queue < count; ++queue) {
    std::vector<uint32_t> expected;
    for (uint32_t number = 0; number < kQueuePairs; ++number) {
      if (dealt_queue(number, count) == queue) expected.push_back(kFirstQpn + number);
    }
    Keeper keeper;
    test::receive(*queues[queue], keeper, expected.size());
    std::vector<uint32_t> came;
    for (const test::Kept& kept : keeper.kept) {
      wire::Packet packet;
      CHECK(wire::decode(kept.bytes, kept.bytes.size(), packet) == wire::Malformed::none);
      came.push_back(packet.dest_qpn);
    }
    CHECK(came == expected);
    Keeper more;
    queues[queue]->receive(more, 64);
    CHECK_EQ(more.kept.size(), size_t{0});
  }
}

// Nobody who only shares the user has a part of the port.
void an_address_that_is_taken_is_refused(Backend backend) {
  const Queues queues = queues_of(settings(backend, kFar4, "f0"), 2);
  PortConfig other = settings(backend, kFar4, "f0");
  other.shared = std::make_shared<SharedQueues>(2, 0x100);
  CHECK(failure_of(open_datagram_port(other)).starts_with("10.93.0.2 UDP port 4791 is in use; "));
  CHECK(failure_of(open_datagram_port(settings(backend, kFar4, "f0"))).starts_with("10.93.0.2 UDP port 4791 is in use; "));
}

void every_queue_sends_from_the_same_source_port() {
  const Queues queues = queues_of(settings(Backend::udp, kNear4, "n0"), 3);
  const auto far = test::opened_by(open_datagram_port, settings(Backend::udp, kFar4, "f0"));
  for (const auto& queue : queues) {
    const FlowId flow = flow_to(*queue, kFar4);
    CHECK(queue->send(acknowledgement(flow, 0x123)) == TxResult::sent);
    queue->wait(0, -1);
  }
  Keeper keeper;
  test::receive(*far, keeper, queues.size());
  for (const test::Kept& kept : keeper.kept) CHECK_EQ(kept.datagram.src_port, test::kSourcePort);
}

void a_pause_holds_all_queues() {
  const Queues queues = queues_of(settings(Backend::packet, kFar4, "f0"), 2);
  const auto near = test::opened_by(open_datagram_port, settings(Backend::packet, kNear4, "n0"));
  std::vector<FlowId> flows;
  for (const auto& queue : queues) flows.push_back(flow_to(*queue, kNear4));
  ethernet::Pause pause;
  const uint8_t priority = test::kTrafficClass >> 5;
  pause.enabled = static_cast<uint8_t>(1U << priority);
  pause.quanta[priority] = 0xFFFF;
  CHECK(near->send_pause(pause));
  Keeper keeper;
  int64_t seen = 0;
  for (int turn = 0; turn < 200 && seen == 0; ++turn) {
    for (const auto& queue : queues) {
      queue->receive(keeper, 64);
      seen += queue->counters().rx_pause_frames;
    }
    if (seen == 0) queues[0]->wait(10'000'000, -1);
  }
  CHECK_EQ(seen, 1);
  // 65535 quanta of 100 Gb/s are 335 us: look while it lasts.
  CHECK(near->send_pause(pause));
  bool held = false;
  for (int turn = 0; turn < 200 && !held; ++turn) {
    for (const auto& queue : queues) queue->receive(keeper, 64);
    held = queues[1]->send(acknowledgement(flows[1], 0x123)) == TxResult::held;
    if (!held) CHECK(near->send_pause(pause));
  }
  CHECK(held);
}

void the_rule_deals_both_kinds_of_ends_evenly() {
  for (const uint32_t queues : {1U, 2U, 3U, 4U, 6U, 7U, 8U}) {
    for (uint32_t round = 0; round < 5; ++round) {
      // Senders have the even numbers, receivers the odd ones, where a connection has one queue pair.
      std::array<std::array<uint32_t, 8>, 2> dealt{};
      for (uint32_t i = 0; i < 2 * queues; ++i) ++dealt[i % 2][dealt_queue(round * 2 * queues + i, queues)];
      for (uint32_t queue = 0; queue < queues; ++queue) {
        CHECK_EQ(dealt[0][queue], 1U);
        CHECK_EQ(dealt[1][queue], 1U);
      }
    }
  }
}

}  // namespace

int main() {
  the_rule_deals_both_kinds_of_ends_evenly();
  std::string reason;
  if (!test::enter_lab(kLab, reason)) {
    test::skipped(test::Missing::kernel_or_right, "ports that share an address", reason);
    return test::failures();
  }
  for (const uint32_t count : {2U, 3U}) {
    packets_come_to_the_queue_of_their_number({"UDP, IPv4", Backend::udp, kNear4, kFar4}, count);
    packets_come_to_the_queue_of_their_number({"UDP, IPv6", Backend::udp, kNear6, kFar6}, count);
    packets_come_to_the_queue_of_their_number({"packets, IPv4", Backend::packet, kNear4, kFar4}, count);
    packets_come_to_the_queue_of_their_number({"packets, IPv6", Backend::packet, kNear6, kFar6}, count);
  }
  an_address_that_is_taken_is_refused(Backend::udp);
  an_address_that_is_taken_is_refused(Backend::packet);
  every_queue_sends_from_the_same_source_port();
  a_pause_holds_all_queues();
  return test::failures();
}
