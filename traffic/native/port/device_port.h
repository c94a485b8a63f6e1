// The interface between a loop and its port: make a matching core, receive, transmit, and sleep. Every I/O method (kernel UDP
// sockets, packet sockets, AF_XDP, a NIC's queue pairs) implements it; `open_port` makes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "plan/records.h"
#include "plan/short_messages.h"
#include "wire/packet_run.h"
#include "wire/usid.h"
#include "wire/wire.h"

namespace etloop {

// Numbers match contract.assignment.PortBackend.
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
  std::string interface;  // "": the interface with the first address
  uint32_t queue = 0;     // index among the port's queues, if they share addresses
  std::shared_ptr<SharedQueues> shared;  // state shared by the queues; null: one queue
  std::vector<IpAddress> addresses;
  std::vector<ShortBounds> short_bounds;  // of each address, for udp ports; none: short messages are not received first
  uint16_t udp_port = wire::kRoceUdpPort;
  uint32_t path_mtu = 4096;
  int64_t link_bps = 0;        // for pause times
  int32_t vlan_id = -1;        // -1: untagged; 0: priority tag only
  uint8_t vlan_priority = 0;
  uint8_t hop_limit = 0;       // TTL of sent packets; 0: default
  PacketTrailer trailer = PacketTrailer::icrc;  // of every packet
  std::vector<usid::Route> segments;  // micro segment routes to some addresses; none: plain destination addresses
  usid::End segment_end;              // outer headers with this destination are removed
  uint64_t trimmed_dscps = 0;  // bit i: an incomplete packet with DSCP i was trimmed by a switch
  bool segmentation_offload = true;
  int64_t receive_buffer_bytes = 64 << 20;  // requested; the kernel's actual size is in counters()
  uint32_t drop_per_million = 0;
  uint64_t drop_seed = 0;
  bool is_plane = false;  // a plane of a card: packets sent while its link is down are lost, which is not a failure
  bool departure_times = true;  // false: packets must not wait in the kernel, because something acts on them at departure
  uint32_t busy_poll_us = 0;  // busy-poll time of an empty xdp queue; 0: interrupts
  bool receive_ring = false;  // packet port: receive through memory shared with the kernel
  std::shared_ptr<Capture> capture;  // null: no capture
};

class DevicePort {
 public:
  virtual ~DevicePort() = default;
  // Make the core of this port of the plan over this port's transport. Plan and port outlive it.
  virtual Result<std::unique_ptr<Core>> make_core(const EnginePlan& plan, int32_t port) = 0;

  // Pass arrivals to the core, at most about `budget` datagrams or completions. Returns their number.
  virtual size_t receive_into(Core& core, size_t budget) = 0;
  // Send at most `budget` runs of the core. True: more can be sent now.
  virtual bool transmit_from(Core& core, Clock& clock, size_t budget) = 0;
  // Sleep until an arrival, until `wake_fd` is readable (it is drained), until a blocked send can continue, or the timeout.
  // `wake_fd` -1: none. kNever: no timeout. The precision is the thread's timer slack.
  virtual void wait(Nanos timeout_ns, int wake_fd) = 0;

  // The fields of the loop (turns, blocked time) stay zero.
  virtual const PortRecord& counters() const = 0;
  // Return all counters by plane of a card; one row for a single port.
  virtual std::vector<PortRecord> records() const {
    PortRecord record = counters();
    record.receive_overflows = receive_overflows();
    record.rx_icrc_encapsulated += damaged_datagrams();
    return {record};
  }
  // Datagrams dropped by the kernel because of a full receive buffer: a loss of the emulator, not of the device. One system call
  // per address.
  virtual int64_t receive_overflows() const { return 0; }
  // Datagrams dropped by the kernel because of a bad checksum. A port that receives these counts them itself.
  virtual int64_t damaged_datagrams() const { return 0; }
  // Smallest receive buffer of the kernel's sockets; -1 if a card carries the transport.
  virtual int64_t receive_buffer_bytes() const { return counters().receive_buffer_bytes; }
  // Why the kernel last lost packets because the link, the address or the route was gone; "": it never did. From any thread.
  virtual std::string link_loss() const { return {}; }
  // Sentences about deviations of this port from its configuration.
  virtual std::vector<std::string> degraded() const = 0;
  // Sentences about the optional host features of this port, and why some are missing.
  virtual std::vector<std::string> capabilities() const { return {}; }
  // Send a PAUSE to the other end of the link. False: this port writes no frames, or the kernel did not accept it.
  virtual bool send_pause(const ethernet::Pause&) { return false; }
};

}  // namespace etloop
