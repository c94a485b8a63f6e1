// RoCEv2 over packet sockets (AF_PACKET): Ethernet, IP and UDP headers as a NIC writes them, all received ICRCs checked, VLAN
// tags, and priority flow control if the interface passes pause frames. Needs CAP_NET_RAW.
//
// The kernel keeps the addresses: it answers ARP and neighbour discovery and has routes and neighbours. A socket that receives
// nothing binds the RoCE port of each address, so that it does not answer peers with "port unreachable".
#pragma once

#include "port/datagram_port.h"
#include "wire/ethernet.h"

namespace etloop {

class PacketPort final : public DatagramPort {
 public:
  static Result<std::unique_ptr<PacketPort>> open(const PortConfig& config);
  ~PacketPort() override;

  Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) override;
  TxResult send(const PacketRun& run) override;
  TxResult send_built(const BuiltPacket& built) override;
  uint32_t max_run(uint32_t payload_bytes) const override;
  size_t receive(PortSink& sink, size_t budget) override;
  void wait(Nanos timeout_ns, int wake_fd) override;
  int arrival_fd() const override;
  const PortRecord& counters() const override;
  int64_t receive_overflows() const override;
  std::vector<std::string> degraded() const override;
  std::vector<std::string> capabilities() const override;
  std::string last_error() const override;
  std::string link_loss() const override;
  bool send_pause(const ethernet::Pause& pause) override;

 private:
  struct State;
  explicit PacketPort(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
