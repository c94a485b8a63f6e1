// Received packets of a port: finds the queue pair of each packet, and dispatches the results (messages, grants, completions,
// notifications, probes). Queue pair timers are handled here too, because they complete requests.
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
  // Collaborators; all of them outlive this.
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

  // Set the fault injector that every arrival passes first; nullptr: none.
  void set_faults(FaultInjector* faults) { faults_ = faults; }
  void on_datagram(const Datagram& datagram, Nanos now) { accept(datagram, faults_ == nullptr, now); }
  // Process arrivals that fault rules held back until now.
  void release_held(Nanos now);
  void on_timer(uint32_t index, Nanos now);
  // Deliver a complete message of a queue pair, for any transport.
  void hand_over(uint32_t index, const Delivered& delivered, Nanos now);

  // Set where datagrams for other queues go; nullptr: the port has one queue.
  void set_strays(StrayDatagrams* strays) { strays_ = strays; }

  // Pass a datagram on if its queue pair is on another queue. False: it is not.
  bool pass_on(const Datagram& datagram, uint32_t dest_qpn, Nanos now) {
    return strays_ != nullptr && strays_->pass_on(datagram, dest_qpn, now);
  }

  // Datagrams that were ignored, by reason.
  const DiscardCounts& discards() const { return discards_; }
  void forget_late() { discards_.forget_late(); }
  int64_t trimmed() const { return trimmed_; }

 private:
  void accept(const Datagram& datagram, bool faultless, Nanos now);
  void accept_trimmed(const Datagram& datagram, Nanos now);
  // Pass on or discard a datagram without a queue pair here.
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
