// The cores of all ports of a plan in virtual time, and the results they collect. Decides when a woken core takes its turn; the
// network between the ports and the event queue belong to the owner (sim, twin).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/instant_guard.h"
#include "base/result.h"
#include "core/core.h"
#include "plan/plan.h"
#include "plan/records.h"

namespace etloop {

class VirtualClock final : public Clock {
 public:
  Nanos now() override { return now_ns; }
  Nanos now_ns = 0;
};

// Result of a run in virtual time, whatever the network model.
struct VirtualRun {
  std::vector<OpRecord> records;  // in order of completion over all ports
  std::vector<FlowRecord> flows;
  std::vector<WaitRecord> waits;  // if the run did not finish
  std::vector<ProbeResult> probes;
  std::string failure;            // "": every rank finished
  int32_t failed_connection = -1;
  Nanos end_ns = 0;
  std::vector<CcRecord> rates;
  std::vector<FaultCounts> faults;  // injected by endpoints, by port
  std::vector<DiscardCounts> discards;  // ignored datagrams by port, probes included
};

// The network's side of the ports.
class VirtualPorts {
 public:
  virtual ~VirtualPorts() = default;
  virtual TxPort& port(int32_t index) = 0;
  virtual Result<FlowId> add_flow(int32_t index, uint16_t address, const IpAddress& dst_ip, uint16_t src_port,
                                  uint8_t traffic_class) = 0;
  // Schedule a turn of the core at `due_ns`.
  virtual void wake(int32_t index, Nanos due_ns) = 0;
  // Latency of a message from one queue of a port to another, now.
  virtual Nanos queue_delay_ns() { return 0; }
  // How long ports hold acknowledgements, see `Core::set_answer_patience`.
  virtual Nanos answer_patience_ns() const { return 0; }
  // The port neither sends nor receives any more.
  virtual bool dead(int32_t) const { return false; }
};

class CoreSet final : public ScaleUpLinks, public QueueLinks {
 public:
  // Queue pairs are allocated from `memory`, in few pieces.
  CoreSet(const EnginePlan& plan, VirtualClock& clock, VirtualPorts& ports, VirtualRun& run,
          std::pmr::memory_resource& memory = *std::pmr::new_delete_resource())
      : plan_(plan),
        clock_(clock),
        ports_(ports),
        run_(run),
        instant_(most_turns_at_an_instant(plan.ports.size())),
        tables_(kTableBytes + 2 * plan.qps.size() * kBytesPerEnd, &memory) {}

  // Create the cores. False: `run.failure` has the reason.
  bool make(int64_t receive_buffer_bytes);

  void start_probe();
  bool probed() const;
  void start();
  bool finished();
  // As in `Core`, for a rank on whatever port.
  void expect_posts(int32_t rank);
  void post(int32_t rank, int32_t op, int64_t bytes, int32_t id, Nanos now);
  void end_posts();

  void on_datagram(int32_t port, const Datagram& datagram);
  void expect_datagram(int32_t port, uint32_t dest_qpn) const {
    cores_[static_cast<size_t>(port)]->expect_datagram(dest_qpn);
  }
  // Let a core do all work that is possible now, then schedule its next turn.
  void turn(int32_t port);
  void post(int32_t port, const ScaleUpMessage& message) override;
  void post(int32_t port, const QueueMessage& message) override;
  void pass(int32_t port, const Datagram& datagram, Nanos arrived_ns) override;

  // Fill the results that are known only at the end.
  void collect();

 private:
  // Estimated bytes per endpoint of a connection; further pieces are allocated as needed.
  static constexpr size_t kTableBytes = 4096;
  static constexpr size_t kBytesPerEnd = 1792;

  // A message or datagram in transit from one core to another.
  struct HandedOver {
    Nanos due_ns;
    QueueMessage message;
    Datagram datagram;  // its bytes are in `content`, if that is not empty
    std::vector<uint8_t> content;
  };
  void hand_over(int32_t port, HandedOver&& handed);
  void deliver_handed_over(int32_t port);

  const EnginePlan& plan_;
  VirtualClock& clock_;
  VirtualPorts& ports_;
  VirtualRun& run_;
  InstantGuard instant_;
  std::pmr::monotonic_buffer_resource tables_;  // memory of the cores; outlives all of them
  std::vector<std::unique_ptr<Core>> cores_;
  // By destination core, then source core: each pair has its own ring.
  std::vector<std::map<int32_t, std::deque<HandedOver>>> handed_over_;  // empty: no port has queues that share addresses
  int32_t current_port_ = -1;  // core that is taking its turn
  std::vector<size_t> copied_records_;  // by core: records already copied to the run's
  std::map<int32_t, int32_t> port_of_posted_;  // by rank
  size_t finished_ = 0;       // number of leading cores known to have finished
  bool probe_requested_ = false;        // whether a probe was started
};

}  // namespace etloop
