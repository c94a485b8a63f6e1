// What every port has that writes whole Ethernet frames: flows with their link addresses, the check and sorting of what
// arrives, and pause frames. How frames get to the interface and back is the port's own business.
#pragma once

#include <map>
#include <random>

#include "core/port.h"
#include "port/device_port.h"
#include "port/neighbours.h"
#include "wire/frame_builder.h"

namespace etloop {

// Room for a frame whose headers another transport writes. Where the next one is laid out alike, its pattern stays.
struct BuiltFrame {
  std::vector<uint8_t> bytes;
  size_t header_bytes = 0;  // Ethernet, IP and UDP
  size_t pattern_at = 0;    // of `pattern_bytes`; 0: there is none
  size_t pattern_bytes = 0;
};

class FrameFlows {
 public:
  explicit FrameFlows(const PortConfig& config);
  // Finds the interface and holds the RoCE port of each address with a socket that takes nothing, so that the kernel
  // does not answer our peers with "port unreachable".
  Result<void> open();

  Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class);
  const Interface& interface() const { return interface_; }
  // Whether its packets go by their own addresses.
  bool leads_itself() const { return config_.segments.empty(); }

  // Headers of a run's next packet with a datagram of this length; none while its neighbour is not known, and then the
  // packet is as good as lost on the way.
  std::span<const uint8_t> headers(const PacketRun& run, size_t datagram_bytes, Nanos now);
  // A whole frame without FCS of a packet that another transport built, ICRC and all. False: as above, no neighbour.
  bool put_built(const BuiltPacket& built, Nanos now, BuiltFrame& frame);
  Nanos paused_until(const BuiltPacket& built, Nanos now) const;
  const wire::IpFlow& tuple(FlowId flow) const { return flows_[flow].path.flow; }
  // kNever: the run may leave; else until when its priority is paused.
  Nanos paused_until(const PacketRun& run, Nanos now) const;

  // A frame that leaves, in two pieces.
  void note_sent(std::span<const uint8_t> header, std::span<const uint8_t> datagram, Nanos now);

  // Takes one frame without FCS. `tag`: one that the kernel took out of it. Returns how many packets it held.
  size_t take(std::span<const uint8_t> frame, const std::optional<ethernet::Tag>& tag, PortSink& sink, Nanos arrived_ns);
  // The same of a frame that the kernel joined, or did not yet split, from datagrams of `segment_bytes`.
  size_t take_joined(std::span<const uint8_t> frame, size_t segment_bytes, const std::optional<ethernet::Tag>& tag,
                     PortSink& sink, Nanos arrived_ns);

  // Brings the pause counters up to a time.
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
  // The path of a packet, its neighbour and priority filled in; nullptr: nobody knows the neighbour.
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
