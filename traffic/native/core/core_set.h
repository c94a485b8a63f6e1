// The cores of all ports of a plan, run side by side in virtual time, and what they have to tell in the end. Decides when a
// core takes its turn after it was woken; leaves what joins the ports, and all of time, to its owner (sim, twin).
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

// What a run in virtual time leaves, whatever the network was.
struct VirtualRun {
  std::vector<OpRecord> records;  // in order of completion over all ports
  std::vector<FlowRecord> flows;
  std::vector<WaitRecord> waits;  // of a run that did not finish
  std::vector<ProbeResult> probes;
  std::string failure;            // "" when every rank finished
  int32_t failed_connection = -1;
  Nanos end_ns = 0;
  std::vector<CcRecord> rates;
  std::vector<FaultCounts> faults;  // what endpoints did on purpose, by port
  std::vector<DiscardCounts> discards;  // what they did not act on, likewise, probes included
};

// The network's side of the ports.
class VirtualPorts {
 public:
  virtual ~VirtualPorts() = default;
  virtual TxPort& port(int32_t index) = 0;
  virtual Result<FlowId> add_flow(int32_t index, uint16_t address, const IpAddress& dst_ip, uint16_t src_port,
                                  uint8_t traffic_class) = 0;
  // The core wants its turn at `due_ns`.
  virtual void wake(int32_t index, Nanos due_ns) = 0;
  // How long something takes from one queue of a port to another now.
  virtual Nanos queue_delay_ns() { return 0; }
  // Neither sends nor receives any more.
  virtual bool dead(int32_t) const { return false; }
};

class CoreSet final : public ScaleUpLinks, public QueueLinks {
 public:
  // Queue pairs come from `memory`, in as few pieces as their number allows.
  CoreSet(const EnginePlan& plan, VirtualClock& clock, VirtualPorts& ports, VirtualRun& run,
          std::pmr::memory_resource& memory = *std::pmr::new_delete_resource())
      : plan_(plan),
        clock_(clock),
        ports_(ports),
        run_(run),
        instant_(most_turns_at_an_instant(plan.ports.size())),
        tables_(kTableBytes + 2 * plan.qps.size() * kBytesPerEnd, &memory) {}

  // False: the run's failure says why.
  bool make(int64_t receive_buffer_bytes);

  void start_probe();
  bool probed() const;
  void start();
  bool finished();

  void on_datagram(int32_t port, const Datagram& datagram);
  void expect_datagram(int32_t port, uint32_t dest_qpn) const {
    cores_[static_cast<size_t>(port)]->expect_datagram(dest_qpn);
  }
  // Everything that a core can do now; then it asks to be woken for what it cannot do yet.
  void turn(int32_t port);
  void post(int32_t port, const ScaleUpMessage& message) override;
  void post(int32_t port, const QueueMessage& message) override;
  void pass(int32_t port, const Datagram& datagram, Nanos arrived_ns) override;

  // Fills what is known only in the end.
  void collect();

 private:
  // What the ends of connections take about; what there is more comes in further pieces.
  static constexpr size_t kTableBytes = 4096;
  static constexpr size_t kBytesPerEnd = 1792;

  // What one core hands another, until it is there.
  struct HandedOver {
    Nanos due_ns;
    QueueMessage message;
    Datagram datagram;  // where `content` has its bytes
    std::vector<uint8_t> content;
  };
  void hand_over(int32_t port, HandedOver&& handed);
  void take_handed(int32_t port);

  const EnginePlan& plan_;
  VirtualClock& clock_;
  VirtualPorts& ports_;
  VirtualRun& run_;
  InstantGuard instant_;
  std::pmr::monotonic_buffer_resource tables_;  // of the cores, until all of them end
  std::vector<std::unique_ptr<Core>> cores_;
  // By the core it is for, and the one it comes from, as each two have a ring of their own.
  std::vector<std::map<int32_t, std::deque<HandedOver>>> handed_;  // empty: no port's queues share addresses
  int32_t turning_ = -1;  // whose turn it is
  std::vector<size_t> told_;  // records of a core that are in the run's
  size_t finished_ = 0;       // cores, from the first
  bool asked_ = false;        // whether there was a probe
};

}  // namespace etloop
