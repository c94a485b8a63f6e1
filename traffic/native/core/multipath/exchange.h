// Sends and completes for transports whose queue pairs choose a path per packet: queue pairs with data take turns, answers and
// probes go before them, and completions are dispatched. `End` is one endpoint of a transport; a derived class finds the endpoint
// of an arriving packet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/fixed_row.h"
#include "base/time.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/multipath/packet_exchange.h"
#include "core/multipath/peer_paths.h"
#include "core/op_records.h"
#include "core/packets/flows.h"
#include "core/packets/packet_arrivals.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmit_ring.h"
#include "plan/plan.h"

namespace etloop {

// Collaborators of an exchange; all of them outlive it.
struct ExchangeParts {
  const EnginePlan& plan;
  const Connections& connections;
  QueuePairs& queue_pairs;  // used for places and counters only; the exchange has the transport state
  Flows& flows;
  Probing& probing;
  PacketArrivals& deliveries;
  HomeLanes& lanes;
  MessageDepartures& departures;
  EventHeap& events;
  Failure& failure;
};

template <typename End>
class MultipathExchange : public PacketExchange {
 public:
  void post(uint32_t index, const WorkRequest& request) override;
  bool transmit(TxPort& port, Clock& clock, size_t budget) override;
  void on_timer(uint32_t index, Nanos now) override;
  void on_flow_timer(uint32_t index) override {
    if (ends_[index].has_run()) queue(index);
  }
  void on_credit_due(Nanos) override {}
  bool rest() override {
    for (End& end : ends_) end.stay_open();
    return std::ranges::any_of(ends_, [](const End& end) { return end.awaits_answer(); });
  }
  EndProgress progress(uint32_t index) const override;
  const DiscardCounts& discards() const override { return discards_; }
  void forget_late() override { discards_.forget_late(); }
  int64_t trimmed() const override { return trimmed_; }

 protected:
  using Outgoing = typename End::Outgoing;

  // Call after the queue pairs are open. `memory` outlives this.
  MultipathExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory);

  // Send packets that belong to no queue pair, before everything else. False: no more can leave now.
  virtual bool transmit_strays(TxPort& port, Clock& clock) = 0;

  // Pass on or discard a datagram for no queue pair here, or from another address than its peer's.
  void refuse(const Datagram& datagram, uint32_t index, uint32_t dest_qpn, Nanos now) {
    if (deliveries_.pass_on(datagram, dest_qpn, now)) return;
    discards_.note(index == QueuePairs::kNone ? Discard::unknown_qp : Discard::wrong_peer);
  }
  // The rkey that the endpoint accepts in writes.
  uint32_t accepts(uint32_t index) const;
  void queue(uint32_t index);
  void queue_answers(uint32_t index);
  TxResult send(TxPort& port, Clock& clock, uint32_t index, const Outgoing& outgoing, const ClassMarks& marks, bool answers);
  // Index of an entropy value among those of this endpoint or its peer; -1: not one of them.
  int32_t value_number(uint32_t index, uint16_t value) const;
  // Deliver arrived messages, and queue the answers.
  void deliver(uint32_t index, Nanos now);
  void on_answer(uint32_t index, const AckOutcome& outcome, Nanos now);
  void arm_timer(uint32_t index);
  // Whether a datagram is from the endpoint's peer: on a card, from the peer's address on the arrival plane.
  bool is_peer(uint32_t index, const Datagram& datagram) const {
    if (planes_ == 1) return queue_pairs_.place(index).peer_ip == datagram.src_ip;
    return peer_planes_[index * planes_ + plane_of(datagram)] == datagram.src_ip;
  }
  uint32_t plane_of(const Datagram& datagram) const { return datagram.address / addresses_; }
  // Call `take` with the index of a local address and the peer's address, for each plane of an endpoint.
  template <typename Take>
  void at_each_plane(uint32_t index, Take take) const {
    const QpPlace& place = queue_pairs_.place(index);
    take(place.address, place.peer_ip);
    for (uint32_t k = 1; k < planes_; ++k) {
      take(static_cast<uint16_t>(place.address + k * addresses_), peer_planes_[index * planes_ + k]);
    }
  }
  // The arrival plane as a bit mask, for choosing the path of an answer.
  uint32_t came_by(const Datagram& datagram) const { return planes_ == 1 ? multipath::kAllPlanes : 1U << plane_of(datagram); }
  // Remember the arrival plane: answers and grants return on it.
  void note_plane(uint32_t index, const Datagram& datagram) {
    if (planes_ == 1) return;
    last_planes_[index] = static_cast<uint8_t>(plane_of(datagram));
    peers_listen_ = true;
  }

  // The set of planes that are up changed.
  virtual void on_planes_changed(uint32_t up, Nanos now) = 0;

  // The round trip to a peer is known; for transports that use it.
  virtual void on_path_measured(uint32_t, Nanos) {}

  const EnginePlan& plan_;
  uint32_t planes_;     // planes of the card; 1: a single port
  uint32_t addresses_;  // addresses per plane
  QueuePairs& queue_pairs_;
  PeerPaths paths_;
  FixedRow<End> ends_;
  Flows& flows_;
  EventHeap& events_;
  DiscardCounts discards_;
  int64_t trimmed_ = 0;

 private:
  // Probes per queue pair before the run.
  static constexpr uint8_t kMostProbes = 8;
  static constexpr uint8_t kNoPlane = UINT8_MAX;
  // Queue pairs passed in a row before the port is left alone for a while.
  static constexpr size_t kMostPassed = 64;

  // The plane of the last arrival; kAllPlanes for a single port, and before any arrival.
  uint32_t last_plane(uint32_t index) const {
    return planes_ == 1 || last_planes_[index] == kNoPlane ? multipath::kAllPlanes : 1U << last_planes_[index];
  }
  // Planes that the next packet may use: a grant goes where the peer was last heard, until it is lost there.
  uint32_t planes_for(uint32_t index, bool grants, uint32_t open) const {
    if (grants) return ends_[index].repeats() ? multipath::kAllPlanes : last_plane(index);
    return keeps_planes_ ? multipath::kAllPlanes : open;
  }
  bool pass_turn(TransmitRing& ring, TxResult result, size_t& passed) const;
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  bool transmit_held(TxPort& port, Clock& clock);
  bool transmit_answers(TxPort& port, Clock& clock);
  void check_planes(TxPort& port, Clock& clock);
  void fail_at(uint32_t index, TxPort& port);
  void on_probed(uint32_t index, const WorkRequest& probe, Nanos now);
  void retire(uint32_t index, Nanos now);
  void report_fault(uint32_t index);
  int64_t in_flight_bytes(uint32_t index) const {
    return int64_t{ends_[index].in_flight_packets()} * plan_.transport.path_mtu_bytes;
  }

  bool keeps_planes_;             // each queue pair uses one plane: a packet blocked there does not go elsewhere
  uint32_t planes_up_;            // planes of the card that are up, as bits
  bool peers_listen_ = false;  // something was posted or has arrived: before that, no peer listens to plane reports
  std::vector<IpAddress> peer_planes_;  // by queue pair and plane; empty: a single port
  const Connections& connections_;
  Probing& probing_;
  PacketArrivals& deliveries_;
  HomeLanes& lanes_;
  MessageDepartures& departures_;
  Failure& failure_;
  TransmitRing data_ring_;         // sending ends
  TransmitRing grant_ring_;        // receiving ends: clear-to-send writes
  std::vector<uint32_t> answers_;  // queue pairs with answers or probes to send
  std::vector<uint8_t> probes_;    // by queue pair: probes that were acknowledged
  std::vector<uint8_t> last_planes_;   // by queue pair: plane of its last arrival, or kNoPlane; empty: a single port
};

// Trim a datagram as a switch would.
inline Datagram cut_down(Datagram datagram) {
  constexpr size_t kLeftBytes = 64;
  datagram.trimmed = true;
  datagram.bytes = datagram.bytes.first(std::min(datagram.bytes.size(), kLeftBytes));
  return datagram;
}

// Whether the datagram is marked Congestion Experienced.
constexpr bool is_marked(const Datagram& datagram) { return (datagram.traffic_class & 0x03) == 0x03; }

}  // namespace etloop
