// What leaves at a port whose queue pairs choose a path for every packet: those with something to send take turns, answers and
// probes go before them; what answers make of it goes to whom it concerns. `End` is an end of a queue pair of one transport; how
// its packets find their way in is of a class derived from this.
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

// What an exchange works with; all of it outlives it.
struct ExchangeParts {
  const EnginePlan& plan;
  const Connections& connections;
  QueuePairs& queue_pairs;  // their places and counters; what carries their messages is the exchange's
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

  // Once the queue pairs are open. `memory` outlives it.
  MultipathExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory);

  // What leaves for no queue pair; before everything else. False: nothing more leaves now.
  virtual bool transmit_strays(TxPort& port, Clock& clock) = 0;

  // A datagram for no queue pair here, or for one with another peer.
  void refuse(const Datagram& datagram, uint32_t index, uint32_t dest_qpn, Nanos now) {
    if (deliveries_.pass_on(datagram, dest_qpn, now)) return;
    discards_.note(index == QueuePairs::kNone ? Discard::unknown_qp : Discard::wrong_peer);
  }
  // The key under which the end takes writes.
  uint32_t accepts(uint32_t index) const;
  void queue(uint32_t index);
  void queue_answers(uint32_t index);
  TxResult send(TxPort& port, Clock& clock, uint32_t index, const Outgoing& outgoing, const ClassMarks& marks, bool answers);
  // The number of an entropy value that a packet of this end may take, or that its peer's may; -1: it is none.
  int32_t value_number(uint32_t index, uint16_t value) const;
  // What has come is handed over, and what is to be said of it waits for its turn.
  void deliver(uint32_t index, Nanos now);
  void on_answer(uint32_t index, const AckOutcome& outcome, Nanos now);
  void arm_timer(uint32_t index);
  // Of this run's peers: whose end it is. Of a card the peer's address on the plane that the datagram came by.
  bool is_peer(uint32_t index, const Datagram& datagram) const {
    if (planes_ == 1) return queue_pairs_.place(index).peer_ip == datagram.src_ip;
    return peer_planes_[index * planes_ + plane_of(datagram)] == datagram.src_ip;
  }
  uint32_t plane_of(const Datagram& datagram) const { return datagram.address / addresses_; }
  // Calls `take` with the number of a local address and the peer's that it meets, for each plane of an end.
  template <typename Take>
  void at_each_plane(uint32_t index, Take take) const {
    const QpPlace& place = queue_pairs_.place(index);
    take(place.address, place.peer_ip);
    for (uint32_t k = 1; k < planes_; ++k) {
      take(static_cast<uint16_t>(place.address + k * addresses_), peer_planes_[index * planes_ + k]);
    }
  }
  // As answers choose it, also of what is for no queue pair.
  uint32_t came_by(const Datagram& datagram) const { return planes_ == 1 ? multipath::kAllPlanes : 1U << plane_of(datagram); }
  // Something of an end's peer has come: what is said of it, and what it is granted, goes back the same way.
  void note_plane(uint32_t index, const Datagram& datagram) {
    if (planes_ == 1) return;
    came_by_[index] = static_cast<uint8_t>(plane_of(datagram));
    peers_are_there_ = true;
  }

  // Other planes of the card are up than before.
  virtual void on_planes_changed(uint32_t up, Nanos now) = 0;

  // What the path to a peer holds at a time is known. For transports that make something of it.
  virtual void on_path_measured(uint32_t, Nanos) {}

  const EnginePlan& plan_;
  uint32_t planes_;     // of the card; 1: a port by itself
  uint32_t addresses_;  // of a plane
  QueuePairs& queue_pairs_;
  PeerPaths paths_;
  FixedRow<End> ends_;
  Flows& flows_;
  EventHeap& events_;
  DiscardCounts discards_;
  int64_t trimmed_ = 0;

 private:
  // Of a queue pair, before the run.
  static constexpr uint8_t kMostProbes = 8;
  static constexpr uint8_t kNoPlane = UINT8_MAX;
  // In a row, before the port is left alone for a while.
  static constexpr size_t kMostPassed = 64;

  // kAllPlanes: of a port by itself, and before anything has come.
  uint32_t last_plane(uint32_t index) const {
    return planes_ == 1 || came_by_[index] == kNoPlane ? multipath::kAllPlanes : 1U << came_by_[index];
  }
  // The planes that its next packet may take: a grant goes where the peer was heard last, until it is lost there.
  uint32_t planes_for(uint32_t index, bool grants, uint32_t open) const {
    if (grants) return ends_[index].repeats() ? multipath::kAllPlanes : last_plane(index);
    return keeps_planes_ ? multipath::kAllPlanes : open;
  }
  bool pass_turn(TransmitRing& ring, TxResult result, size_t& passed) const;
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  bool transmit_held(TxPort& port, Clock& clock);
  bool transmit_answers(TxPort& port, Clock& clock);
  void look_at_planes(TxPort& port, Clock& clock);
  void fail_at(uint32_t index, TxPort& port);
  void on_probed(uint32_t index, const WorkRequest& probe, Nanos now);
  void retire(uint32_t index, Nanos now);
  void report_fault(uint32_t index);
  int64_t in_flight_bytes(uint32_t index) const {
    return int64_t{ends_[index].in_flight_packets()} * plan_.transport.path_mtu_bytes;
  }

  bool keeps_planes_;             // a queue pair keeps to one of several: what its plane has no room for is not for another
  uint32_t planes_up_;            // of the card, as bits
  bool peers_are_there_ = false;  // something was posted or has come: before, nobody listens to what is said of planes
  std::vector<IpAddress> peer_planes_;  // by queue pair and plane; empty: a port by itself
  const Connections& connections_;
  Probing& probing_;
  PacketArrivals& deliveries_;
  HomeLanes& lanes_;
  MessageDepartures& departures_;
  Failure& failure_;
  TransmitRing data_ring_;         // of sending ends
  TransmitRing grant_ring_;        // of receiving ends: clear-to-send writes
  std::vector<uint32_t> answers_;  // queue pairs with answers or probes to send
  std::vector<uint8_t> probes_;    // by queue pair: so many came through
  std::vector<uint8_t> came_by_;   // by queue pair the plane of its last packet, or kNoPlane; empty: a port by itself
};

// What a switch that trims would have left of a datagram.
inline Datagram cut_down(Datagram datagram) {
  constexpr size_t kLeftBytes = 64;
  datagram.trimmed = true;
  datagram.bytes = datagram.bytes.first(std::min(datagram.bytes.size(), kLeftBytes));
  return datagram;
}

// Congestion Experienced, of a datagram's traffic class.
constexpr bool is_marked(const Datagram& datagram) { return (datagram.traffic_class & 0x03) == 0x03; }

}  // namespace etloop
