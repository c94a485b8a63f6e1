// Packets for a card of two planes: each is of the peer's address on the plane that it came by, and of no other; and what is said
// of it leaves by that plane.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/core.h"
#include "support/check.h"
#include "support/exchanges.h"
#include "support/failure_of.h"
#include "wire/mrc.h"
#include "wire/uet.h"

using namespace etloop;

namespace {

constexpr uint32_t kPlanes = 2;
constexpr uint32_t kReceivingQpn = 0x110;  // of the first card
constexpr uint32_t kPayloadBytes = 64;

IpAddress address_of(uint32_t card, uint32_t plane) { return IpAddress::v4(0x0A000001 + card + (plane << 16)); }

EnginePlan on_cards(TransportKind kind, DeliveryOrder order = DeliveryOrder::any) {
  EnginePlan plan = test::exchanges(1);
  plan.transport.kind = kind;
  plan.transport.multipath.uet.order = order;
  plan.transport.multipath.entropy_values = order == DeliveryOrder::sent ? 1 : 8;
  plan.transport.recovery.initial_psn = 1'000;
  std::vector<PlannedPort> ports;
  for (uint32_t card = 0; card < 2; ++card) {
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      PlannedPort port = plan.ports[card];
      port.addresses = {address_of(card, plane)};
      port.planes = kPlanes;
      port.plane = static_cast<int32_t>(plane);
      if (plane > 0) port.qpn_count = 0;
      ports.push_back(port);
    }
    plan.plane_addresses[address_of(card, 0)] = {address_of(card, 0), address_of(card, 1)};
  }
  plan.ports = ports;
  for (PlannedRank& rank : plan.ranks) rank.port *= static_cast<int32_t>(kPlanes);
  return plan;
}

// Where what is said leaves.
class Planes final : public TxPort {
 public:
  TxResult send(const PacketRun&) override { return TxResult::failed; }
  TxResult send_built(const BuiltPacket& built) override {
    ++sent[built.flow % kPlanes];
    CHECK_EQ(built.src_port % kPlanes, built.flow % kPlanes);
    return TxResult::sent;
  }
  uint32_t planes_up() const override { return up; }
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return 1; }
  std::array<int, kPlanes> sent{};
  uint32_t up = (1U << kPlanes) - 1;
};

class Still final : public Clock {
 public:
  Nanos now() override { return 1'000; }
};

template <typename Packet>
std::vector<uint8_t> bytes_of(const Packet& packet, size_t header_bytes, size_t behind_bytes,
                              size_t (*encode)(const Packet&, std::span<uint8_t>)) {
  std::vector<uint8_t> bytes(header_bytes);
  bytes.resize(encode(packet, bytes));
  bytes.resize(bytes.size() + kPayloadBytes + behind_bytes);
  return bytes;
}

std::vector<uint8_t> mrc_write() {
  wire::mrc::Write write;
  write.reth.dma_bytes = write.payload_bytes = kPayloadBytes;
  wire::mrc::Packet packet;
  packet.bth.opcode = wire::mrc::Opcode::write_only;
  packet.bth.dest_qpn = kReceivingQpn;
  packet.bth.psn = 1'000;
  packet.bth.sack_req = true;
  packet.body = write;
  return bytes_of(packet, wire::mrc::kMaxHeaderBytes, wire::mrc::kIcrcBytes, wire::mrc::encode_headers);
}

std::vector<uint8_t> uet_write(bool syn, bool ordered = false) {
  wire::uet::Packet packet;
  wire::uet::Request request;
  request.type = ordered ? wire::uet::PdsType::rod_request : wire::uet::PdsType::rud_request;
  request.syn = syn;
  request.psn = 1'000;
  request.spdcid = 7;
  if (!syn) request.dpdcid = 0x3333;
  packet.pds = request;
  wire::uet::StandardRequest message;
  message.start.opcode = wire::uet::Operation::write;
  message.start.som = message.start.eom = true;
  message.start.job_id = 1'000;
  message.memory_key = uint64_t{kReceivingQpn} << 32;
  message.message_length = kPayloadBytes;
  packet.ses = message;
  packet.payload_bytes = kPayloadBytes;
  return bytes_of(packet, wire::uet::kMaxHeaderBytes, 0, wire::uet::encode_headers);
}

struct Row {
  const char* what;
  TransportKind kind;
  std::vector<uint8_t> bytes;
  DeliveryOrder order = DeliveryOrder::any;
  bool refused = false;  // a stray, of which that is said which it is
};

// What is said of a packet from `from` that came by `plane`, and how it was counted.
struct Said {
  std::array<int, kPlanes> sent{};
  DiscardCounts discards;
};

Datagram come_by(uint32_t plane, const IpAddress& from, const std::vector<uint8_t>& bytes) {
  Datagram datagram;
  datagram.bytes = bytes;
  datagram.datagram_bytes = static_cast<uint32_t>(bytes.size());
  datagram.src_ip = from;
  datagram.src_port = static_cast<uint16_t>(50'000 + plane);
  datagram.address = static_cast<uint16_t>(plane);
  datagram.traffic_class = 2;
  return datagram;
}

Said said_of(const Row& row, const IpAddress& from, uint32_t plane) {
  const EnginePlan plan = on_cards(row.kind, row.order);
  test::FlowCounter flows;
  auto made = Core::make(plan, 0, 1 << 20, flows.opener());
  CHECK_EQ(test::failure_of(made), std::string());
  (*made)->on_datagram(come_by(plane, from, row.bytes), 1'000);
  Planes port;
  Still clock;
  (*made)->transmit(port, clock, 8);
  return {port.sent, (*made)->arrivals().discards};
}

void a_packet_is_of_its_planes_address_alone() {
  const Row rows[] = {
      {"a write of MRC", TransportKind::mrc, mrc_write()},
      {"a SYN of UET", TransportKind::uet, uet_write(true)},
      {"a SYN of UET in order", TransportKind::uet, uet_write(true, true), DeliveryOrder::sent},
      {"a packet of UET of no context", TransportKind::uet, uet_write(false), DeliveryOrder::any, true},
  };
  for (const Row& row : rows) {
    const int before = test::failures();
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      const Said own = said_of(row, address_of(1, plane), plane);
      CHECK_EQ(own.discards.total(), row.refused ? 1 : 0);
      CHECK_EQ(own.sent[plane], 1);  // by the plane that it came by
      CHECK_EQ(own.sent[1 - plane], 0);
      const Said other = said_of(row, address_of(1, 1 - plane), plane);
      CHECK_EQ(other.discards.total(), 1);
      CHECK_EQ(other.discards.of(row.refused ? Discard::unknown_qp : Discard::wrong_peer), 1);
      CHECK_EQ(other.sent[0] + other.sent[1], 0);  // nobody here has that address on that plane
    }
    if (test::failures() > before) std::cerr << row.what << '\n';
  }
}

// What came by a plane that then goes down is answered by the other.
void an_answer_takes_another_plane_when_its_own_port_is_down() {
  const EnginePlan plan = on_cards(TransportKind::uet);
  const std::vector<uint8_t> write = uet_write(true);
  test::FlowCounter flows;
  auto made = Core::make(plan, 0, 1 << 20, flows.opener());
  CHECK_EQ(test::failure_of(made), std::string());
  (*made)->on_datagram(come_by(1, address_of(1, 1), write), 1'000);
  Planes port;
  port.up = 0b01;
  Still clock;
  (*made)->transmit(port, clock, 8);
  CHECK(port.sent == (std::array<int, kPlanes>{1, 0}));
}

}  // namespace

int main() {
  a_packet_is_of_its_planes_address_alone();
  an_answer_takes_another_plane_when_its_own_port_is_down();
  return etloop::test::failures();
}
