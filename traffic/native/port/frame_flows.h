// Common part of ports that write whole Ethernet frames: flows with link addresses, validation and dispatch of received frames,
// and pause frames. Frame I/O is left to the port.
#pragma once

#include <map>
#include <random>

#include "core/port.h"
#include "port/device_port.h"
#include "port/neighbours.h"
#include "wire/frame_builder.h"

namespace etloop {

// A frame with headers of another transport. The payload pattern is kept when the next frame has the same layout.
struct BuiltFrame {
  std::vector<uint8_t> bytes;
  size_t header_bytes = 0;  // Ethernet, IP and UDP
  size_t pattern_at = 0;    // offset of `pattern_bytes`; 0: none
  size_t pattern_bytes = 0;
};

class FrameFlows {
 public:
  explicit FrameFlows(const PortConfig& config);
  // Find the interface, and bind the RoCE port of each address with a socket that receives nothing, so that the kernel does not
  // answer peers with "port unreachable".
  Result<void> open();

  Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class);
  const Interface& interface() const { return interface_; }
  // Whether packets use plain destination addresses, without micro segments.
  bool uses_plain_addresses() const { return config_.segments.empty(); }

  // Return the headers of a run's next packet with a datagram of this length; empty while its neighbour is unknown: the packet
  // then counts as lost in the network.
  std::span<const uint8_t> headers(const PacketRun& run, size_t datagram_bytes, Nanos now);
  // Build the frame (without FCS, with ICRC) of another transport's packet. False: neighbour unknown, as above.
  bool put_built(const BuiltPacket& built, Nanos now, BuiltFrame& frame);
  Nanos paused_until(const BuiltPacket& built, Nanos now) const;
  const wire::IpFlow& tuple(FlowId flow) const { return flows_[flow].path.flow; }
  // kNever: the run may leave; otherwise the end of the pause of its priority.
  Nanos paused_until(const PacketRun& run, Nanos now) const;

  // Note a sent frame, in two pieces.
  void note_sent(std::span<const uint8_t> header, std::span<const uint8_t> datagram, Nanos now);

  // Process a received frame without FCS. `tag`: removed from it by the kernel. Returns its number of packets.
  size_t take(std::span<const uint8_t> frame, const std::optional<ethernet::Tag>& tag, PortSink& sink, Nanos arrived_ns);
  // Same for a frame that the kernel joined from, or did not split into, datagrams of `segment_bytes`.
  size_t take_joined(std::span<const uint8_t> frame, size_t segment_bytes, const std::optional<ethernet::Tag>& tag,
                     PortSink& sink, Nanos arrived_ns);

  // Update the pause counters to a time.
  void account_pauses(Nanos now);

  PortRecord counters{};
  ethernet::PauseState pauses;

 private:
  struct Hop {
    std::optional<ethernet::Mac> mac;
    Nanos asked_ns = 0;
    IpAddress ip;
  };
  struct Flow {
    ethernet::Path path;
    size_t hop;
    uint8_t traffic_class;
  };
  bool deliver(std::span<const uint8_t> frame, const ethernet::Frame& parsed, const std::optional<ethernet::Tag>& tag,
               PortSink& sink, Nanos arrived_ns);
  uint8_t priority(FlowId flow, const ClassMarks& marks) const;
  Nanos paused_until(FlowId flow, const ClassMarks& marks, Nanos now) const;
  void on_pause(const ethernet::Pause& pause, Nanos arrived_ns);
  static ClassMarks marks_of(const PacketRun& run) { return {run.traffic_class, run.priority}; }
  // Return the path of a packet with neighbour and priority; nullptr: the neighbour is unknown.
  ethernet::Path* path_of(FlowId flow, const ClassMarks& marks, Nanos now);
  bool is_marked_cut(const ethernet::Frame& parsed) const;

  PortConfig config_;
  Interface interface_;
  Neighbours neighbours_;
  std::vector<Descriptor> holders_;
  std::map<IpAddress, uint16_t> address_of_;
  std::map<IpAddress, size_t> hop_of_;
  std::vector<Hop> hops_;
  std::vector<Flow> flows_;
  std::mt19937_64 random_;
  std::array<uint8_t, ethernet::kMaxHeaderBytes> header_{};
  std::vector<uint8_t> segment_;
};

}  // namespace etloop
