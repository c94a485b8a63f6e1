// RoCEv2 over kernel UDP sockets, without privileges: one receive socket per local address on the RoCE port, one transmit socket
// per (address, source port), UDP GSO and GRO.
//
// Transmit sockets are unconnected and never fragment (IP_PMTUDISC_DO), so that the kernel writes IPv4 identifications 0, 1, 2
// ... over the segments of a send, which makes the ICRC predictable (docs/decisions.md, "The wire"; verified by a capture test).
// IPv6 has no identification.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/datagram_port.h"

namespace etloop {

class UdpPort final : public DatagramPort {
 public:
  // Open the receive sockets. An error has the address, the reason and the remedy.
  static Result<std::unique_ptr<UdpPort>> open(const PortConfig& config);
  ~UdpPort() override;

  // Open (or share) the transmit socket of the source port.
  Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) override;
  TxResult send(const PacketRun& run) override;
  bool transmit_from(Core& core, Clock& clock, size_t budget) override;
  uint32_t max_run(uint32_t payload_bytes) const override;
  Nanos departure_horizon_ns() const override;
  Nanos answer_patience_ns() const override;
  size_t receive(PortSink& sink, size_t budget) override;
  void wait(Nanos timeout_ns, int wake_fd) override;
  const PortRecord& counters() const override;
  int64_t receive_overflows() const override;
  int64_t damaged_datagrams() const override;
  std::vector<std::string> degraded() const override;
  std::vector<std::string> capabilities() const override;
  std::string last_error() const override;
  std::string link_loss() const override;

 private:
  struct State;
  explicit UdpPort(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
