// A whole core between its port and its peers: what belongs to the run and what only prepares it.
#include "core/core.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "support/check.h"
#include "support/core_parts.h"
#include "wire/wire.h"

using namespace etloop;

namespace {

class RecordingPort final : public TxPort {
 public:
  TxResult send(const PacketRun& run) override {
    sent.push_back(run);
    return TxResult::sent;
  }
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return 1; }

  std::vector<PacketRun> sent;
};

class StillClock final : public Clock {
 public:
  Nanos now() override { return now_ns; }
  Nanos now_ns = 100;
};

// An acknowledgement of packet 0, as the peer of this queue pair would send it.
void acknowledge(Core& core, const EnginePlan& plan, uint32_t qpn, Nanos now) {
  wire::Packet packet;
  packet.opcode = wire::Opcode::acknowledge;
  packet.dest_qpn = qpn;
  packet.psn = plan.transport.initial_psn;
  packet.syndrome = 0x1F;
  packet.msn = 1;
  std::array<uint8_t, 64> bytes{};
  const size_t size = wire::encode_headers(packet, bytes) + 4;  // the port has checked the ICRC
  Datagram datagram;
  datagram.bytes = std::span<const uint8_t>(bytes).first(size);
  datagram.datagram_bytes = static_cast<uint32_t>(size);
  datagram.src_ip = plan.connections[0].dst_ip;
  core.on_datagram(datagram, now);
}

// The peer is on a card, so a probe is a write that the transport repeats until it is acknowledged.
void probes_of_cards_are_in_no_figure() {
  const EnginePlan plan = test::one_send(test::kMessageBytes, 1);
  test::FlowCounter flows;
  auto made = Core::make(plan, 0, 1 << 20, flows.opener());
  CHECK(static_cast<bool>(made));
  Core& core = **made;
  Endpoint card;
  card.qpn = 0x800;
  card.va = 0x10000;
  card.rkey = 0x33;
  core.set_peer_endpoints({card});
  RecordingPort port;
  StillClock clock;
  core.start_probe();
  core.transmit(port, clock, 8);
  CHECK_EQ(port.sent.size(), 1u);
  clock.now_ns += 20 * plan.transport.timeout_ns;
  core.on_time(clock.now_ns);
  core.transmit(port, clock, 8);
  CHECK_EQ(port.sent.size(), 2u);  // sent again
  CHECK_EQ(core.flows()[0].retransmitted_packets, 1);
  CHECK_EQ(core.flows()[0].local_ack_timeout_err, 1);
  acknowledge(core, plan, 0x100, clock.now_ns + 10);
  CHECK(core.probing().prober().over());
  CHECK(core.probing().prober().result(0).verdict == ProbeVerdict::good);

  core.start(clock.now_ns + 1000);
  const FlowRecord left = core.flows()[0];
  CHECK_EQ(left.tx_packets, 0);
  CHECK_EQ(left.retransmitted_packets, 0);
  CHECK_EQ(left.local_ack_timeout_err, 0);
  CHECK_EQ(left.acks_rx, 0);
  CHECK_EQ(left.local_qpn, 0x100u);
  CHECK_EQ(left.remote_qpn, 0x800u);
  CHECK_EQ(left.sends_data, 1);
}

// The first packet of a READ's answer, or an acknowledgement, comes marked Congestion Experienced.
void marked_responses_are_told_of_and_marked_acknowledgements_are_not() {
  struct Row {
    const char* why;
    wire::Opcode opcode;
    uint32_t payload_bytes;
    int64_t notifications;
  };
  const Row rows[] = {
      {"a READ response carries data", wire::Opcode::read_response_only, 64, 1},
      {"an acknowledgement carries none", wire::Opcode::acknowledge, 0, 0},
      {"nor does an atomic's", wire::Opcode::atomic_acknowledge, 0, 0},
  };
  for (const Row& row : rows) {
    const EnginePlan plan = test::one_send(test::kMessageBytes, 1);
    test::FlowCounter flows;
    auto made = Core::make(plan, 0, 1 << 20, flows.opener());
    Core& core = **made;
    wire::Packet packet;
    packet.opcode = row.opcode;
    packet.dest_qpn = 0x100;
    packet.syndrome = 0x1F;
    packet.payload_bytes = row.payload_bytes;
    std::array<uint8_t, 160> bytes{};
    wire::encode_headers(packet, bytes);
    Datagram datagram;
    const size_t size = wire::datagram_bytes(row.opcode, row.payload_bytes);
    datagram.bytes = std::span<const uint8_t>(bytes).first(size);
    datagram.datagram_bytes = static_cast<uint32_t>(size);
    datagram.src_ip = plan.connections[0].dst_ip;
    datagram.traffic_class = 0x6B;
    core.on_datagram(datagram, 50);
    RecordingPort port;
    StillClock clock;
    core.transmit(port, clock, 8);
    const int64_t sent = std::count_if(port.sent.begin(), port.sent.end(),
                                       [](const PacketRun& run) { return run.head.opcode == wire::Opcode::cnp; });
    if (sent != row.notifications) std::fprintf(stderr, "%s\n", row.why);
    CHECK_EQ(sent, row.notifications);
    CHECK_EQ(core.flows()[0].np_ecn_marked_roce_packets, row.notifications);
  }
}

}  // namespace

int main() {
  marked_responses_are_told_of_and_marked_acknowledgements_are_not();
  probes_of_cards_are_in_no_figure();
  return test::failures();
}
