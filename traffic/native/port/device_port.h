// What a port loop needs of whatever carries its packets: flows to send on, what arrived, and a sleep in between.
// Every way to reach a wire (kernel UDP sockets, packet sockets, AF_XDP) is one of these; `open_port` makes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "core/port.h"
#include "plan/records.h"
#include "wire/packet_run.h"

namespace etloop {

// Numbers as in contract.assignment.PortBackend.
enum class Backend : uint8_t { udp = 0, packet = 1, xdp = 2, verbs = 3 };

class Capture;

namespace ethernet {
struct Pause;
}

struct PortConfig {
  Backend backend = Backend::udp;
  std::string interface;  // "": the one that has the first address
  uint32_t queues = 1;    // receive queues of the interface that an xdp port takes, from 0
  std::vector<IpAddress> addresses;
  uint16_t udp_port = wire::kRoceUdpPort;
  uint32_t path_mtu = 4096;
  int64_t link_bps = 0;        // of pause times
  int32_t vlan_id = -1;        // -1: untagged; 0: a tag that carries the priority alone
  uint8_t vlan_priority = 0;
  bool segmentation_offload = true;
  int64_t receive_buffer_bytes = 64 << 20;  // asked for; what the kernel gave is in counters()
  uint32_t drop_per_million = 0;
  uint64_t drop_seed = 0;
  bool departure_times = true;  // false: something of ours acts on packets as they leave, so they may not wait in the kernel
  uint32_t busy_poll_us = 0;  // how long a look into an empty xdp queue drives its interface; 0: interrupts do
  std::shared_ptr<Capture> capture;  // none: nothing is kept
};

class DevicePort : public TxPort {
 public:
  // Opens a flow from one of the port's addresses.
  virtual Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) = 0;

  // Receives what is there, at most about `budget` datagrams, and hands every packet to `sink` with the time at which
  // the kernel took it from the device, on the monotonic clock. Returns their number.
  virtual size_t receive(PortSink& sink, size_t budget) = 0;
  // Sleeps until something arrives, `wake_fd` is readable (it is drained), a blocked socket is writable, or the timeout.
  // `wake_fd` -1: there is none. kNever: no timeout. Its precision is the calling thread's timer slack.
  virtual void wait(Nanos timeout_ns, int wake_fd) = 0;

  // How long acknowledgements that nobody waits for may stay while there is data to send, so that one stands for several.
  virtual Nanos answer_patience_ns() const { return 0; }

  // The loop's own fields (turns, blocked time) stay zero.
  virtual const PortRecord& counters() const = 0;
  // Datagrams the kernel dropped because a receive buffer was full: the emulator's loss, not the device's. A system
  // call per address.
  virtual int64_t receive_overflows() const = 0;
  // Datagrams the kernel dropped because they were damaged on the way. A port that gets them itself counts them itself.
  virtual int64_t damaged_datagrams() const { return 0; }
  // What this port does otherwise than it was asked to, or cannot do, a sentence each, for people.
  virtual std::vector<std::string> degraded() const = 0;
  // What this port has of what a host may offer or not, and why not, a sentence each, for people.
  virtual std::vector<std::string> capabilities() const { return {}; }
  // Asks the other end of the link to rest. False: this port writes no frames of its own, or the kernel did not take it.
  virtual bool send_pause(const ethernet::Pause&) { return false; }
};

}  // namespace etloop
