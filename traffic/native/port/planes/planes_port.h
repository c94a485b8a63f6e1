// The ports of a multi-plane card as one: packets use the plane that they name, and one thread polls all planes. Packets on a
// plane with its link down are lost, as they would be beyond it.
#pragma once

#include <memory>
#include <vector>

#include "plan/records.h"
#include "port/datagram_port.h"
#include "port/planes/link_state.h"

namespace etloop {

class PlanesPort final : public DatagramPort {
 public:
  // Interval between checks of the links.
  static constexpr Nanos kLookNs = 100'000;

  // One port per plane, in order.
  static Result<std::unique_ptr<PlanesPort>> open(const std::vector<PortConfig>& planes);

  Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) override;
  TxResult send(const PacketRun&) override { return TxResult::failed; }  // RoCEv2 uses single ports only
  TxResult send_built(const BuiltPacket& built) override;
  uint32_t planes_up() const override { return up_; }
  uint32_t open_planes(FlowId first, const ClassMarks& marks) override;
  uint32_t max_run(uint32_t payload_bytes) const override { return planes_.front().port->max_run(payload_bytes); }
  size_t receive(PortSink& sink, size_t budget) override;
  void wait(Nanos timeout_ns, int wake_fd) override;
  int arrival_fd() const override { return arrivals_.get(); }
  // Sent datagrams and bytes over all planes; the rest is in `records`.
  const PortRecord& counters() const override;
  std::vector<PortRecord> records() const override;
  int64_t receive_buffer_bytes() const override;
  std::vector<std::string> degraded() const override;
  std::vector<std::string> capabilities() const override;
  std::string last_error() const override;

 private:
  // Longest time until a full plane is tried again.
  static constexpr Nanos kRoomRetryNs = 50'000;

  struct Plane {
    std::unique_ptr<DatagramPort> port;
    LinkState link;
    int64_t trimmed = 0;
  };
  struct Flow {
    uint32_t plane;
    FlowId own;  // its flow at that plane's port
  };
  // Adds the arrival plane to a datagram.
  struct Arrivals final : public PortSink {
    Arrivals(PortSink& to, Plane& by, size_t before) : sink(to), plane(by), first_address(before) {}
    void on_datagram(const Datagram& datagram, Nanos arrived_ns) override {
      Datagram numbered = datagram;
      numbered.address = static_cast<uint16_t>(datagram.address + first_address);
      plane.trimmed += datagram.trimmed ? 1 : 0;
      sink.on_datagram(numbered, arrived_ns);
    }
    void on_read(Nanos now) override { sink.on_read(now); }
    PortSink& sink;
    Plane& plane;
    size_t first_address;
  };

  explicit PlanesPort(size_t addresses) : addresses_(addresses) {}
  Result<void> poll_all();
  void look_at_links(Nanos now);
  uint32_t all() const { return (1U << planes_.size()) - 1; }

  size_t addresses_;  // addresses per plane
  std::vector<Plane> planes_;
  std::vector<Flow> flows_;
  uint32_t up_ = 0;       // planes that are up, as bits
  uint32_t full_ = 0;     // planes found full since the last receive
  Nanos looked_ns_ = 0;
  uint32_t failed_ = 0;   // plane of the last failed send
  size_t first_ = 0;      // plane polled first
  Descriptor arrivals_;   // readable after an arrival on a plane, or a wake-up of the loop
  int wake_fd_ = -1;      // wake descriptor in `arrivals_`
  mutable PortRecord sum_{};
};

}  // namespace etloop
