// The order in which a UDP port reads short and long messages, over loopback addresses.
#include "port/udp_receivers.h"

#include <memory>
#include <vector>

#include "port/udp_port.h"
#include "support/check.h"
#include "support/port_ends.h"

namespace {

using namespace etloop;
using test::flow_to;
using test::Keeper;
using wire::Opcode;
using wire::Packet;

constexpr uint32_t kLoopback = 0x7F5C0000;  // 127.92.0.0
constexpr IpAddress kSource = IpAddress::v4(kLoopback + 1);
constexpr IpAddress kA = IpAddress::v4(kLoopback + 2);
constexpr IpAddress kB = IpAddress::v4(kLoopback + 3);
constexpr uint32_t kLong = 0x150;
constexpr uint32_t kShort = 0x250;
constexpr size_t kBudget = 256;

std::unique_ptr<UdpPort> opened(std::vector<IpAddress> addresses, std::vector<ShortBounds> bounds = {}) {
  PortConfig config;
  config.addresses = std::move(addresses);
  config.short_bounds = std::move(bounds);
  return test::opened_by(UdpPort::open, config);
}

struct Sender {
  void send(const IpAddress& to, uint32_t qpn, int count = 1) {
    const FlowId flow = flow_to(*port, to);
    const Packet packet{.opcode = Opcode::write_only, .dest_qpn = qpn, .payload_bytes = 64};
    for (int i = 0; i < count; ++i) CHECK(port->send({.flow = flow, .head = packet}) == TxResult::sent);
  }
  std::unique_ptr<UdpPort> port = opened({kSource});
};

// The queue pairs of what one call reads.
std::vector<uint32_t> read(UdpPort& port) {
  Keeper keeper;
  port.receive(keeper, kBudget);
  std::vector<uint32_t> qpns;
  for (const test::Kept& kept : keeper.kept) {
    Packet packet;
    CHECK(wire::decode(kept.bytes, kept.bytes.size(), packet) == wire::Malformed::none);
    qpns.push_back(packet.dest_qpn);
  }
  return qpns;
}

using Qpns = std::vector<uint32_t>;

void a_short_message_is_read_before_long_ones_that_came_earlier() {
  struct Case {
    std::vector<IpAddress> addresses;
    std::vector<ShortBounds> bounds;
    IpAddress to_short;
  };
  const std::vector<IpAddress> many{kA, kB, IpAddress::v4(kLoopback + 4), IpAddress::v4(kLoopback + 5),
                                    IpAddress::v4(kLoopback + 6)};
  const Case cases[] = {
      {{kA}, {{0x100, 0x110, 0x200, 0x300}}, kA},  // the kernel sorts what comes to one address
      {{kA, kB}, {{}, {0}}, kB},
      {many, {{}, {0x200}, {}, {}, {}}, kB},  // watched by epoll
  };
  for (const Case& each : cases) {
    const auto port = opened(each.addresses, each.bounds);
    Sender sender;
    sender.send(kA, kLong, 20);
    sender.send(each.to_short, kShort, 2);
    CHECK(read(*port) == (Qpns{kShort, kShort}));
    // A short message may follow soon: long ones are read a call at a time.
    CHECK(read(*port) == Qpns(4, kLong));
    sender.send(each.to_short, kShort);
    CHECK(read(*port) == Qpns{kShort});
    size_t left = 16;
    while (left > 0) left -= read(*port).size();
    CHECK_EQ(port->counters().rx_datagrams, int64_t{23});
  }
}

void long_messages_are_read_although_short_ones_never_end() {
  const auto port = opened({kA}, {{0x200}});
  Sender sender;
  sender.send(kA, kLong, 3);
  sender.send(kA, kShort);
  CHECK(read(*port) == Qpns{kShort});
  sender.send(kA, kShort);
  CHECK(read(*port) == (Qpns{kShort, kLong, kLong, kLong}));
  sender.send(kA, kShort);
  CHECK(read(*port) == Qpns{kShort});
}

void messages_of_one_kind_are_read_in_the_order_of_arrival() {
  for (const ShortBounds& bounds : {ShortBounds{}, ShortBounds{0}}) {
    const auto port = opened({kA}, {bounds});
    Sender sender;
    sender.send(kA, kLong, 9);
    sender.send(kA, kShort);
    Qpns expected(9, kLong);
    expected.push_back(kShort);
    CHECK(read(*port) == expected);
  }
}

void too_many_ranges_are_not_distinguished() {
  ShortBounds bounds;
  for (uint32_t qpn = 1; qpn < 600; ++qpn) bounds.push_back(qpn);
  const auto port = opened({kA}, {bounds});
  Sender sender;
  sender.send(kA, 2);
  sender.send(kA, 1);
  CHECK(read(*port) == (Qpns{2, 1}));
  CHECK_EQ(port->capabilities().back(),
           std::string("short messages to 127.92.0.2 are not received before long ones: their queue pairs have 599 bounds, at "
                       "most 256 are distinguished"));
}

}  // namespace

int main() {
  a_short_message_is_read_before_long_ones_that_came_earlier();
  long_messages_are_read_although_short_ones_never_end();
  messages_of_one_kind_are_read_in_the_order_of_arrival();
  too_many_ranges_are_not_distinguished();
  return test::failures();
}
