// The engine of one port, without I/O: its ranks, lanes, queue pairs and timers. Packets and time are arguments; packets leave
// through a TxPort. The same code runs over sockets and in virtual time.
//
// It owns these components and dispatches due events to them. Each calls only those listed above it:
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "base/instant_guard.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "base/time.h"
#include "base/turnarounds.h"
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

// Datagrams that were not processed as ordinary packets.
struct ArrivalCounts {
  DiscardCounts discards;  // ignored, by reason
  int64_t trimmed = 0;     // trimmed by a switch
};

// Scope of the end of a run: this port, or all ports.
enum class RunOver : uint8_t { here, everywhere };

class Core final : public PortSink {
 public:
  // `receive_buffer_bytes` (the minimum over the port's addresses) sizes the windows offered to peers. Queue pair state is
  // allocated from `memory`, which outlives the core.
  static Result<std::unique_ptr<Core>> make(const EnginePlan& plan, int32_t port, int64_t receive_buffer_bytes,
                                            const FlowOpener& open_flow,
                                            std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  // Make a core over a NIC that carries whole messages; `carrier` outlives the core.
  static Result<std::unique_ptr<Core>> make(const EnginePlan& plan, int32_t port, Carrier& carrier);
  // Make a core with all ranks of the plan, whatever their port, or with those in `rank_rows`, without packets: `network` carries
  // their messages and outlives the core.
  static Result<std::unique_ptr<Core>> make_carried(const EnginePlan& plan, MessageCarrier& network,
                                                    std::span<const uint32_t> rank_rows = {});

  // Endpoints that a card numbered and peers must be given; empty over packets.
  std::vector<Endpoint> endpoints() const { return cards_.endpoints(); }
  // Set the peers' endpoints, before the first packet. Endpoints not listed are as the plan has them.
  void set_peer_endpoints(const std::vector<Endpoint>& peers) { cards_.set_peer_endpoints(peers); }

  // Set how long acknowledgements may be delayed; call before the start. No operation waits for those of grants, which may be
  // delayed four times as long. The delays are below the peer's retransmission timeout, and 0 under fault injection.
  void set_answer_patience(Nanos patience_ns) {
    const Nanos peer_waits_ns = std::min(plan_.transport.recovery.timeout_floor_ns, plan_.transport.timeout_ns);
    const Nanos data_ns = faults_ == nullptr ? std::min(patience_ns, peer_waits_ns / 16) : 0;
    transmission_.set_answer_patience(4 * data_ns, data_ns);
  }

  void start_probe(ProbeRounds rounds = ProbeRounds::one) { probing_.start(rounds); }
  const Probing& probing() const { return probing_; }
  void start(Nanos start_ns);
  // Let the ops of a rank be posted (`Ops`), if it is here; call before the start.
  void expect_posts(int32_t rank);
  void post(int32_t rank, int32_t op, int64_t bytes, int32_t id, Nanos now) {
    ops_.post(posted_ranks_.at(rank), op, bytes, id, now);
  }
  void end_posts() { ops_.end_posts(); }
  // Connect the core to other ports of its host and to other queues of its port; call before the start.
  void join(ScaleUpLinks& links, QueueLinks& queues) {
    paths_.set_links(links);
    queues_.join(queues, exchange_.get());
  }

  void on_datagram(const Datagram& datagram, Nanos now) override {
    if (exchange_ != nullptr) return exchange_->on_datagram(datagram, now);
    packets_.on_datagram(datagram, now);
  }
  void on_read(Nanos now) override { records_.note_read(now); }
  // Keep the parts of turnarounds, too (base/turnarounds.h).
  void measure_turnaround_parts() {
    records_.measure_parts();
    transmission_.measure_parts();
  }
  const std::vector<uint64_t>& turnaround_part(TurnaroundPart part) const { return records_.turnaround_part(part); }
  // Prefetch the state of the queue pair that the next datagram is for.
  void expect_datagram(uint32_t dest_qpn) const { queue_pairs_.expect_packet(dest_qpn); }
  // Sink for the events of a card or of the network of `make_carried`.
  CarrierArrivals& carried() { return carried_; }
  // Accept a message from another port of the host; it takes effect at its `due_ns`.
  void on_scale_up(const ScaleUpMessage& message);

  // Accept a message from another queue of the port.
  void on_queue_message(const QueueMessage& message) {
    if (failure_.none()) queues_.take(message);
  }

  // Run the timers that have expired by `now`, and start the run at its start time.
  void on_time(Nanos now) {
    const bool holds = faults_ != nullptr || path_faults_ != nullptr;
    if (holds || now >= std::min(start_ns_, events_.next_due())) on_due(now);
  }
  // Begin every op whose dependencies are met.
  void issue(Nanos now) {
    ops_.issue(now);
    if (is_shared_ && ops_.finished()) queues_.note_finished();
  }
  // Send at most `budget` packet runs. True: more can be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget) {
    const bool more = transmit_queued(port, clock, budget);
    return departures_.left().empty() ? more : transmit_released(port, clock, budget, more);
  }
  // Send due probes over a card, which takes all other requests when they are posted.
  void send_probes(Nanos now);
  // `with_answers`: include delayed acknowledgements. Once these are overdue, they wait for the port.
  Nanos next_deadline(bool with_answers = true) const;
  // Fail the run because `guard` found that virtual time does not advance; name the component that acts now.
  void stall(const InstantGuard& guard, const std::string& owner, Nanos now);

  // True once all awaited ranks here, and those of other queues with queue pairs here, have finished.
  bool finished() const { return ops_.finished() && queues_.others_finished(); }
  // Start no more requests; keep answering peers. Once the run is over everywhere, background data stops immediately, even in the
  // middle of a message, and is not retransmitted. True: earlier requests may still be in flight.
  bool rest(RunOver over);
  const std::string& failure() const { return failure_.reason(); }
  int32_t failed_connection() const { return failure_.connection(); }
  const CoreStatus& status() const { return records_.status(); }
  // Completed ops in order of completion; append-only, records never move.
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
  // Rates and windows over time; nullptr: not recorded.
  const RateSeries* series() const { return flows_.series(); }

 private:
  Core(const EnginePlan& plan, int32_t port, std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  Result<void> load_ranks();
  Result<void> load_ends();
  void load_faults();
  Result<void> load_exchange(std::pmr::memory_resource& memory);
  void on_due(Nanos now);
  bool transmit_queued(TxPort& port, Clock& clock, size_t budget) {
    return exchange_ != nullptr ? exchange_->transmit(port, clock, budget) : transmission_.transmit(port, clock, budget);
  }
  bool transmit_released(TxPort& port, Clock& clock, size_t budget, bool more);
  void note_left(Nanos now);

  const EnginePlan& plan_;
  int32_t port_;
  bool is_shared_;  // the port has several queues that share its addresses
  // Members used for every packet and turn are adjacent: the thread of a host with many ports alternates between cores.
  PacketArrivals packets_;
  alignas(kLineBytes) Nanos start_ns_ = kNever;
  std::unique_ptr<PacketExchange> exchange_;  // nullptr: RoCEv2
  std::unique_ptr<FaultInjector> faults_;     // for RoCEv2; nullptr: no rule concerns this port
  const PathFaults* path_faults_ = nullptr;   // owned by exchange_
  EventHeap events_;
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
  std::map<int32_t, uint32_t> posted_ranks_;  // rank -> index
};

}  // namespace etloop
