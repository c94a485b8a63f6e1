// All that a loop needs of its port: a core that fits it, what arrived, what is to be sent, and a sleep in between. Every way
// to reach a wire (kernel UDP sockets, packet sockets, AF_XDP, a card's queue pairs) is one of these; `open_port` makes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "plan/records.h"
#include "wire/packet_run.h"
#include "wire/usid.h"
#include "wire/wire.h"

namespace etloop {

// Numbers as in contract.assignment.PortBackend.
enum class Backend : uint8_t { udp = 0, packet = 1, xdp = 2, verbs = 3 };

class Capture;
class Clock;
struct SharedQueues;
class Core;
struct EnginePlan;

namespace ethernet {
struct Pause;
}

struct PortConfig {
  Backend backend = Backend::udp;
  std::string interface;  // "": the one that has the first address
  uint32_t queue = 0;     // which of the queues of its port this is, where they share the addresses
  std::shared_ptr<SharedQueues> shared;  // by them; none: the port is one queue
  std::vector<IpAddress> addresses;
  uint16_t udp_port = wire::kRoceUdpPort;
  uint32_t path_mtu = 4096;
  int64_t link_bps = 0;        // of pause times
  int32_t vlan_id = -1;        // -1: untagged; 0: a tag that carries the priority alone
  uint8_t vlan_priority = 0;
  uint8_t hop_limit = 0;       // TTL of what is sent; 0: the usual
  PacketTrailer trailer = PacketTrailer::icrc;  // of every packet
  std::vector<usid::Route> segments;  // by which packets to some addresses are led; none: by their own address
  usid::End segment_end;              // whose outer headers are taken off
  uint64_t trimmed_dscps = 0;  // bit i: a packet with DSCP i that is not whole was cut down by a switch
  bool segmentation_offload = true;
  int64_t receive_buffer_bytes = 64 << 20;  // asked for; what the kernel gave is in counters()
  uint32_t drop_per_million = 0;
  uint64_t drop_seed = 0;
  bool is_plane = false;  // of a card of several: while its link is down what it sends is lost, and no failure
  bool departure_times = true;  // false: something of ours acts on packets as they leave, so they may not wait in the kernel
  uint32_t busy_poll_us = 0;  // how long a look into an empty xdp queue drives its interface; 0: interrupts do
  bool receive_ring = false;  // of a packet port: frames arrive in memory shared with the kernel
  std::shared_ptr<Capture> capture;  // none: nothing is kept
};

class DevicePort {
 public:
  virtual ~DevicePort() = default;
  // Makes the core of this port of the plan, over what the port carries. Plan and port outlive it.
  virtual Result<std::unique_ptr<Core>> make_core(const EnginePlan& plan, int32_t port) = 0;

  // Hands the core everything that is there, at most about `budget` datagrams or completions. Returns their number.
  virtual size_t receive_into(Core& core, size_t budget) = 0;
  // Sends at most `budget` runs of what the core has to send. True: there is more that could be sent now.
  virtual bool transmit_from(Core& core, Clock& clock, size_t budget) = 0;
  // Sleeps until something arrives, `wake_fd` is readable (it is drained), what was blocked may be sent, or the timeout.
  // `wake_fd` -1: there is none. kNever: no timeout. Its precision is the calling thread's timer slack.
  virtual void wait(Nanos timeout_ns, int wake_fd) = 0;

  // The loop's own fields (turns, blocked time) stay zero.
  virtual const PortRecord& counters() const = 0;
  // All that was counted, by plane of a card; of a port by itself one row.
  virtual std::vector<PortRecord> records() const {
    PortRecord record = counters();
    record.receive_overflows = receive_overflows();
    record.rx_icrc_encapsulated += damaged_datagrams();
    return {record};
  }
  // Datagrams the kernel dropped because a receive buffer was full: the emulator's loss, not the device's. A system
  // call per address.
  virtual int64_t receive_overflows() const { return 0; }
  // Datagrams the kernel dropped because they were damaged on the way. A port that gets them itself counts them itself.
  virtual int64_t damaged_datagrams() const { return 0; }
  // Of the kernel's sockets, the least; -1 where a card carries the transport.
  virtual int64_t receive_buffer_bytes() const { return counters().receive_buffer_bytes; }
  // What this port does otherwise than it was asked to, or cannot do, a sentence each, for people.
  virtual std::vector<std::string> degraded() const = 0;
  // What this port has of what a host may offer or not, and why not, a sentence each, for people.
  virtual std::vector<std::string> capabilities() const { return {}; }
  // Asks the other end of the link to rest. False: this port writes no frames of its own, or the kernel did not take it.
  virtual bool send_pause(const ethernet::Pause&) { return false; }
};

}  // namespace etloop
