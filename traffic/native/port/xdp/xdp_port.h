// RoCEv2 over AF_XDP sockets, bypassing most of the kernel: frames are written and checked as by packet ports, with rings instead
// of system calls. Needs CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN, and Linux 6.6 for packets of 4 KiB.
//
// The kernel keeps the addresses and all traffic except RoCEv2: the XDP program (xdp_program) redirects nothing else.
#pragma once

#include "port/datagram_port.h"

namespace etloop {

class XdpPort final : public DatagramPort {
 public:
  static Result<std::unique_ptr<XdpPort>> open(const PortConfig& config);
  ~XdpPort() override;

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
  explicit XdpPort(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
