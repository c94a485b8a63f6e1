// One port's share of a run, without I/O: the ranks on it, their lanes, queue pairs and timers. Packets and time come in
// as arguments; packets go out through a TxPort; the same code runs on sockets and in virtual time.
//
// It joins its parts, each of which calls only those above it here, and hands out what is due:
//   packets   QueuePairs, Flows (congestion control), Transmission, Probing
//   carriers  CardEnds
//   lanes     MessagePaths, Lanes
//   ops       Ops
//   arrivals  PacketArrivals, CarrierArrivals; PacketExchange, which sends too
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/instant_guard.h"
#include "base/result.h"
#include "base/time.h"
#include "core/card_ends.h"
#include "core/carrier.h"
#include "core/carrier_arrivals.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/packets/faults.h"
#include "core/lanes.h"
#include "core/local_ranks.h"
#include "core/message_carrier.h"
#include "core/message_paths.h"
#include "core/multipath/packet_exchange.h"
#include "core/op_records.h"
#include "core/ops.h"
#include "core/packets/flows.h"
#include "core/packets/packet_arrivals.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmission.h"
#include "core/port.h"
#include "core/packets/probe.h"
#include "core/queues/home_lanes.h"
#include "core/queues/message_departures.h"
#include "core/queues/queue_links.h"
#include "core/queues/queue_share.h"
#include "core/scale_up.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "plan/discards.h"

namespace etloop {

// Datagrams that were not taken as they came.
struct ArrivalCounts {
  DiscardCounts discards;  // without an effect
  int64_t trimmed = 0;     // cut down by a switch
};

// Where a run is over: at this port, or at all of them.
enum class RunOver : uint8_t { here, everywhere };

class Core final : public PortSink {
 public:
  // `receive_buffer_bytes` (least over the port's addresses) sizes the windows offered to peers.
  // What the queue pairs are made of comes from `memory`, which outlives the core.
  static Result<std::unique_ptr<Core>> make(const EnginePlan& plan, int32_t port, int64_t receive_buffer_bytes,
                                            const FlowOpener& open_flow,
                                            std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  // The same over a network card that carries whole messages; `carrier` outlives the core.
  static Result<std::unique_ptr<Core>> make(const EnginePlan& plan, int32_t port, Carrier& carrier);
  // All ranks of the plan, on whatever port, without packets: `network` takes their messages and outlives the core.
  static Result<std::unique_ptr<Core>> make_carried(const EnginePlan& plan, MessageCarrier& network);

  // What peers must know of ends that were not ours to number; empty over packets.
  std::vector<Endpoint> endpoints() const { return cards_.endpoints(); }
  // What peers told of theirs, before the first packet. Ends that nothing is told of are as the plan has them.
  void set_peer_endpoints(const std::vector<Endpoint>& peers) { cards_.set_peer_endpoints(peers); }

  // Before the start: acknowledgements of grants, for which nobody waits, may stay so long. Far less than the peer waits
  // before it repeats them.
  void set_answer_patience(Nanos patience_ns) {
    const Nanos peer_waits_ns = std::min(plan_.transport.recovery.timeout_floor_ns, plan_.transport.timeout_ns);
    transmission_.set_answer_patience(faults_ == nullptr ? std::min(patience_ns, peer_waits_ns / 16) : 0);
  }

  void start_probe(ProbeRounds rounds = ProbeRounds::one) { probing_.start(rounds); }
  const Probing& probing() const { return probing_; }
  void start(Nanos start_ns);
  // Before the start: the way to ranks of the same host on other ports.
  // And to the other queues of the port, where they deal queue pairs among themselves.
  void join(ScaleUpLinks& links, QueueLinks& queues) {
    paths_.set_links(links);
    queues_.join(queues, exchange_.get());
  }

  void on_datagram(const Datagram& datagram, Nanos now) override {
    if (exchange_ != nullptr) return exchange_->on_datagram(datagram, now);
    packets_.on_datagram(datagram, now);
  }
  // A datagram for the queue pair of this number comes next.
  void expect_datagram(uint32_t dest_qpn) const { queue_pairs_.expect_packet(dest_qpn); }
  // Where a card, or the network of `make_carried`, hands in what it has brought.
  CarrierArrivals& carried() { return carried_; }
  // Another port of the host hands something over; it takes effect when it is due.
  void on_scale_up(const ScaleUpMessage& message);

  // Another queue of the port hands something over.
  void on_queue_message(const QueueMessage& message) {
    if (failure_.none()) queues_.take(message);
  }

  // Timers that are due, and the beginning of the run.
  void on_time(Nanos now) {
    const bool holds = faults_ != nullptr || path_faults_ != nullptr;
    if (holds || now >= std::min(start_ns_, events_.next_due())) on_due(now);
  }
  // Begins every op whose dependencies are met.
  void issue(Nanos now) {
    ops_.issue(now);
    if (is_shared_ && ops_.finished()) queues_.note_finished();
  }
  // Sends at most `budget` runs. True: there is more that could be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget) {
    return exchange_ != nullptr ? exchange_->transmit(port, clock, budget) : transmission_.transmit(port, clock, budget);
  }
  // Over a card: probes; everything else went to it when it came up.
  void send_probes(Nanos now);
  // `with_answers`: those that were put off, too. Once due, they wait for the port.
  Nanos next_deadline(bool with_answers = true) const;
  // End the run, whose `guard` found that time does not advance, by the name of what is due now.
  void stall(const InstantGuard& guard, const std::string& owner, Nanos now);

  // All ranks that the run waits for, and those of other queues whose queue pairs are here.
  bool finished() const { return ops_.finished() && queues_.others_finished(); }
  // From now on peers are answered, and nothing is begun that they would have to answer. Once the run is over everywhere, what
  // goes on beside it ends where it stands, in the middle of a message, and is not repeated. True: something of before may be
  // under way.
  bool rest(RunOver over);
  const std::string& failure() const { return failure_.reason(); }
  int32_t failed_connection() const { return failure_.connection(); }
  const CoreStatus& status() const { return records_.status(); }
  // Completed ops in order of completion; only grows, never reallocates.
  RecordLog& records() { return records_.completed(); }
  int64_t total_ops() const { return ranks_.total_ops(); }
  std::vector<FlowRecord> flows() const;
  std::vector<WaitRecord> waits() const;
  const QueueShare& queues() const { return queues_; }
  ArrivalCounts arrivals() const {
    if (exchange_ != nullptr) return {exchange_->discards(), exchange_->trimmed()};
    return {packets_.discards(), packets_.trimmed()};
  }
  FaultCounts fault_counts() const {
    if (path_faults_ != nullptr) return path_faults_->counts();
    return faults_ == nullptr ? FaultCounts{} : faults_->counts();
  }
  const std::vector<uint64_t>& turnarounds() const { return records_.turnarounds(); }
  // Rates and windows over time; nullptr: they were not asked for.
  const RateSeries* series() const { return flows_.series(); }

 private:
  Core(const EnginePlan& plan, int32_t port, std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  Result<void> load_ranks();
  void load_faults();
  Result<void> load_exchange(std::pmr::memory_resource& memory);
  void on_due(Nanos now);

  const EnginePlan& plan_;
  int32_t port_;
  bool is_shared_;  // its queues share its addresses
  // What every packet and turn looks at is together: a host of many ports goes from one to the other.
  PacketArrivals packets_;
  Nanos start_ns_ = kNever;
  EventHeap events_;
  std::unique_ptr<PacketExchange> exchange_;  // nullptr: RoCEv2
  std::unique_ptr<FaultInjector> faults_;     // of RoCEv2; nullptr: no rule concerns this port
  const PathFaults* path_faults_ = nullptr;   // the exchange's
  Failure failure_;
  Transmission transmission_;
  QueuePairs queue_pairs_;
  Flows flows_;
  Ops ops_;
  Probing probing_;
  OpRecords records_;
  MessageDepartures departures_;
  Lanes lanes_;
  HomeLanes home_lanes_;
  MessagePaths paths_;
  LocalRanks ranks_;
  Connections connections_;
  CardEnds cards_;
  CarrierArrivals carried_;
  QueueShare queues_;
};

}  // namespace etloop
