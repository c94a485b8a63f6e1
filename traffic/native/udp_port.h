// RoCEv2 over plain kernel UDP sockets, no privileges: one receive socket per local address on the RoCE port, one
// transmit socket per (address, source port), UDP GSO and GRO.
//
// Transmit sockets are unconnected and never fragment (IP_PMTUDISC_DO), so the kernel writes IPv4 identification 0, 1,
// 2 ... over the segments of a send, which makes the ICRC predictable (docs/decisions.md, "The wire"; held by a capture
// test). IPv6 has no identification.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port.h"
#include "records.h"

namespace etloop {

struct UdpPortConfig {
  std::vector<IpAddress> addresses;
  uint16_t udp_port = wire::kRoceUdpPort;
  uint32_t path_mtu = 4096;
  uint8_t traffic_class = 0;
  bool segmentation_offload = true;
  int64_t receive_buffer_bytes = 64 << 20;  // asked for; what the kernel gave is in counters()
  uint32_t drop_per_million = 0;
  uint64_t drop_seed = 0;
};

class UdpPort final : public TxPort {
 public:
  // Opens the receive sockets. On failure returns nullptr and says in `error` which address, why, and what to do.
  static std::unique_ptr<UdpPort> open(const UdpPortConfig& config, std::string& error);
  ~UdpPort() override;

  // Opens (or shares) the transmit socket of a source port. False: `error` says why.
  bool add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, FlowId& flow, std::string& error);

  TxResult send(const PacketRun& run) override;
  uint32_t max_run(uint32_t payload_bytes) const override;

  // Receives what is there, at most about `budget` datagrams, and hands every packet to `sink` with the time at which
  // the kernel took it from the device, on the monotonic clock. Returns their number.
  size_t receive(PortSink& sink, size_t budget);
  // Sleeps until something arrives, `wake_fd` is readable (it is drained), a blocked socket is writable, or the timeout.
  // `wake_fd` -1: there is none. kNever: no timeout. Its precision is the calling thread's timer slack.
  void wait(Nanos timeout_ns, int wake_fd);

  // The loop's own fields (turns, blocked time) stay zero.
  const PortRecord& counters() const;
  // Datagrams the kernel dropped because a receive buffer was full: the emulator's loss, not the device's. A system
  // call per address.
  int64_t receive_overflows() const;
  // Why the last send failed, for people.
  std::string last_error() const override;

 private:
  struct State;
  explicit UdpPort(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
