// What arrives at a port: each packet finds its queue pair, and what a queue pair makes of it - messages, grants,
// completions, notifications, probes - goes to whom it concerns. Timers of queue pairs come here too, as they end requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/time.h"
#include "core/connections.h"
#include "core/failure.h"
#include "core/packets/faults.h"
#include "core/packets/flows.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmission.h"
#include "core/queues/home_lanes.h"
#include "core/queues/stray_datagrams.h"
#include "core/port.h"
#include "plan/plan.h"
#include "plan/discards.h"
#include "wire/wire.h"

namespace etloop {

class PacketArrivals {
 public:
  // What it works with; all of it outlives it.
  struct Parts {
    const EnginePlan& plan;
    const Connections& connections;
    QueuePairs& queue_pairs;
    Transmission& transmission;
    Flows& flows;
    Probing& probing;
    HomeLanes& lanes;
    Failure& failure;
  };
  explicit PacketArrivals(const Parts& parts)
      : plan_(parts.plan),
        connections_(parts.connections),
        queue_pairs_(parts.queue_pairs),
        transmission_(parts.transmission),
        flows_(parts.flows),
        probing_(parts.probing),
        lanes_(parts.lanes),
        failure_(parts.failure) {}

  // What arrives passes here first; nullptr: nothing does.
  void set_faults(FaultInjector* faults) { faults_ = faults; }
  void on_datagram(const Datagram& datagram, Nanos now) { accept(datagram, faults_ == nullptr, now); }
  // Takes in what was held back on purpose and whose time has come.
  void release_held(Nanos now);
  void on_timer(uint32_t index, Nanos now);
  // A message that arrived whole at a queue pair, by whatever transport.
  void hand_over(uint32_t index, const Delivered& delivered, Nanos now);

  // What comes to a queue of a port that shares its addresses with others may be theirs; nullptr: nothing is.
  void set_strays(StrayDatagrams* strays) { strays_ = strays; }

  // Whether a datagram is of a queue pair on another queue, which then has it.
  bool pass_on(const Datagram& datagram, uint32_t dest_qpn, Nanos now) {
    return strays_ != nullptr && strays_->pass_on(datagram, dest_qpn, now);
  }

  // Datagrams that were not acted on.
  const DiscardCounts& discards() const { return discards_; }
  void forget_late() { discards_.forget_late(); }
  int64_t trimmed() const { return trimmed_; }

 private:
  void accept(const Datagram& datagram, bool faultless, Nanos now);
  void accept_trimmed(const Datagram& datagram, Nanos now);
  // Of a datagram of no queue pair of this run: its, or another queue's.
  void refuse(const Datagram& datagram, uint32_t index, uint32_t dest_qpn, Nanos now);
  void dispatch(uint32_t index, const wire::Packet& packet, const Datagram& datagram, Nanos now);
  void on_request(uint32_t index, const wire::Packet& packet, bool marked, Nanos now);
  void on_answer(uint32_t index, const wire::Packet& packet, std::span<const etloop_cc_hop> hops, Nanos now);
  void on_notification(uint32_t index, Nanos now);
  void on_probe(uint32_t index, const wire::Packet& packet, uint8_t traffic_class, Nanos now);
  void on_grant(const QpPlace& place, const Delivered& delivered, Nanos now);
  void on_data(const QpPlace& place, const Delivered& delivered, Nanos now);
  bool holds_answer(uint32_t index, const Delivered& delivered, Nanos now);
  void notify_congestion(uint32_t index, Nanos now);
  void retire(uint32_t index, Nanos now);
  void report_fault(uint32_t index, Nanos now);

  const EnginePlan& plan_;
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  Transmission& transmission_;
  Flows& flows_;
  Probing& probing_;
  HomeLanes& lanes_;
  Failure& failure_;
  FaultInjector* faults_ = nullptr;
  StrayDatagrams* strays_ = nullptr;
  Nanos cnp_after_ns_ = 0;  // of the whole port
  DiscardCounts discards_;
  int64_t trimmed_ = 0;
};

}  // namespace etloop
