// What leaves and what arrives at a port whose queue pairs speak MRC: queue pairs with something to send take turns, answers and
// probes go before them; each packet that comes finds its queue pair, and what that makes of it goes to whom it concerns.
// Stands where Transmission and PacketArrivals stand for RoCEv2.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/fixed_row.h"
#include "base/ip_address.h"
#include "base/time.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/op_records.h"
#include "core/packets/flows.h"
#include "core/packets/packet_arrivals.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmit_ring.h"
#include "core/port.h"
#include "core/request_sink.h"
#include "mrc/endpoint.h"
#include "plan/plan.h"

namespace etloop {

class MrcExchange final : public EndProgressSource, public RequestSink {
 public:
  // What it works with; all of it outlives it.
  struct Parts {
    const EnginePlan& plan;
    const Connections& connections;
    QueuePairs& queue_pairs;  // their places and counters; what carries their messages is here
    Flows& flows;
    Probing& probing;
    PacketArrivals& deliveries;
    Lanes& lanes;
    OpRecords& records;
    EventHeap& events;
    Failure& failure;
  };
  // Once the queue pairs are open. `memory` outlives it.
  MrcExchange(const Parts& parts, std::pmr::memory_resource& memory);

  void post(uint32_t index, const WorkRequest& request) override;
  // Sends at most `budget` packets of data. True: there is more that could be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget);
  void on_datagram(const Datagram& datagram, Nanos now);
  void on_timer(uint32_t index, Nanos now);
  // Congestion control lets a queue pair send again.
  void on_flow_timer(uint32_t index) {
    if (ends_[index].requester.has_run()) queue(index);
  }

  EndProgress progress(uint32_t index) const override;
  // Datagrams that are not of this run.
  int64_t foreign() const { return foreign_; }
  int64_t trimmed() const { return trimmed_; }

 private:
  static constexpr size_t kMostReplies = 4096;
  struct Reply {
    uint32_t qp = 0;  // one to the same peer
    uint16_t id = 0;
    uint16_t entropy = 0;
    uint16_t tx_timestamp = 0;
  };

  void queue(uint32_t index);
  void queue_answers(uint32_t index);
  TxResult send(TxPort& port, uint32_t index, const mrc::Outgoing& outgoing, const ClassMarks& marks, bool answers);
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  bool transmit_answers(TxPort& port, Clock& clock);
  bool transmit_probes(TxPort& port, Clock& clock);
  void fail_at(uint32_t index, TxPort& port);

  void on_trimmed(const Datagram& datagram, Nanos now);
  void on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now);
  void on_write(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now);
  void on_answer(uint32_t index, const AckOutcome& outcome, Nanos now);
  void on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram);
  void on_probed(uint32_t index, Nanos now);
  void retire(uint32_t index, Nanos now);
  void report_fault(uint32_t index);
  void arm_timer(uint32_t index);
  int64_t in_flight_bytes(uint32_t index) const {
    return int64_t{ends_[index].requester.in_flight_packets()} * plan_.transport.path_mtu;
  }

  const EnginePlan& plan_;
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  Flows& flows_;
  Probing& probing_;
  PacketArrivals& deliveries_;
  Lanes& lanes_;
  OpRecords& records_;
  EventHeap& events_;
  Failure& failure_;
  FixedRow<mrc::Endpoint> ends_;
  std::map<IpAddress, uint32_t> queue_pair_to_;  // one of those to each peer
  TransmitRing data_ring_;                       // of sending ends
  TransmitRing grant_ring_;                      // of receiving ends: clear-to-send writes
  std::vector<uint32_t> answers_;                // queue pairs with answers or probes to send
  std::vector<Reply> replies_;                   // to peers that ask whether a path is there
  int64_t foreign_ = 0;
  int64_t trimmed_ = 0;
};

}  // namespace etloop
