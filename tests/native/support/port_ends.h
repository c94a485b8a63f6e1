// Both ends of a port under test: what is sent, what is kept of what came, and how one waits for it.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "port/datagram_port.h"
#include "support/check.h"
#include "support/failure_of.h"

namespace etloop::test {

constexpr uint16_t kSourcePort = 0xC123;
constexpr uint8_t kTrafficClass = 0x6A;

struct Kept {
  Datagram datagram;
  std::vector<uint8_t> bytes;
};

class Keeper final : public PortSink {
 public:
  void on_datagram(const Datagram& datagram, Nanos) override {
    kept.push_back({datagram, {datagram.bytes.begin(), datagram.bytes.end()}});
  }
  std::vector<Kept> kept;
};

// A port as `open` opens it; without one there is nothing to test, so the program ends with the reason.
template <typename Open>
auto opened_by(Open open, const PortConfig& config) {
  auto port = open(config);
  if (!port) {
    std::cerr << port.error().text << '\n';
    std::exit(1);
  }
  return *std::move(port);
}

inline FlowId flow_to(DatagramPort& port, const IpAddress& destination, uint16_t source_port = kSourcePort) {
  const Result<FlowId> flow = port.add_flow(0, destination, source_port, kTrafficClass);
  CHECK_EQ(failure_of(flow), std::string());
  return *flow;
}

// Waits for datagrams, at most two seconds for the next.
inline void receive(DatagramPort& port, Keeper& keeper, size_t count) {
  for (int turn = 0; turn < 200 && keeper.kept.size() < count; ++turn) {
    port.receive(keeper, 64);
    if (keeper.kept.size() < count) port.wait(10'000'000, -1);
  }
  CHECK_EQ(keeper.kept.size(), count);
}

inline PacketRun middles(FlowId flow, uint32_t count, uint32_t psn, uint32_t payload_bytes = 4096) {
  PacketRun run;
  run.flow = flow;
  run.head = {.opcode = wire::Opcode::write_middle, .dest_qpn = 0x123, .psn = psn, .payload_bytes = payload_bytes};
  run.count = count;
  run.ack_every = 4;
  return run;
}

}  // namespace etloop::test
