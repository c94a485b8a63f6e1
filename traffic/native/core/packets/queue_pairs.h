// The queue pairs of a port: their state, the windows that receiving ends offer, and their timers. For a card's queue pairs, only
// the counters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/fixed_row.h"
#include "base/ip_address.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "base/time.h"
#include "core/carrier.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/local_ranks.h"
#include "core/queues/far_ends.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/qp.h"

namespace etloop {

// Opens the five-tuple (local address index, peer, UDP source port) with its traffic class at the port. On a card of several
// planes all addresses are numbered (plan/planes.h), and flows opened consecutively have consecutive numbers.
using FlowOpener =
    std::function<Result<FlowId>(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class)>;

// Most packets of a queue pair in flight, whatever its peer offers.
inline constexpr uint32_t kMostWindow = 256;

// Constant properties of a queue pair.
struct QpPlace {
  int32_t connection;
  bool sends_data;
  IpAddress peer_ip;
  uint16_t address;  // index of the port's address
  uint32_t ordinal;  // index in its connection
  uint8_t traffic_class;
  int16_t home = -1;  // port (queue) of its rank, if that is another
};
// Two fit a cache line: every packet reads one.
static_assert(sizeof(QpPlace) == 32);

class QueuePairs {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // `memory` outlives this.
  QueuePairs(const EnginePlan& plan, int32_t port, Connections& connections, EventHeap& events, std::pmr::memory_resource& memory)
      : qps_(memory), places_(&memory), events_(events), plan_(plan), port_(port), connections_(connections) {}

  // Open the queue pairs of all connections with an end here, over packets.
  Result<void> open(const LocalRanks& ranks, const FlowOpener& open_flow);
  // Open them over a card.
  Result<void> open(const LocalRanks& ranks, Carrier& carrier);
  // Divide the receive buffers of the port (the minimum over its addresses) among its receiving ends.
  void offer_windows(int64_t receive_buffer_bytes);

  // Reset the counters: probes are not part of the run.
  void count_anew();

  // Queue pairs of local ranks on other queues of the port.
  FarEnds& far() { return far_; }
  const FarEnds& far() const { return far_; }

  size_t size() const { return qps_.size(); }
  Qp& operator[](uint32_t index) { return qps_[index]; }
  const Qp& operator[](uint32_t index) const { return qps_[index]; }
  const QpPlace& place(uint32_t index) const { return places_[index]; }
  // Find a queue pair by its number in packets; kNone: not here.
  uint32_t find(uint32_t qpn) const {
    const uint32_t offset = qpn - first_number_;
    return offset < by_number_.size() ? by_number_[offset] : kNone;
  }
  // Whether a queue pair here has its other end at this address.
  bool has_peer(const IpAddress& ip) const {
    return std::ranges::any_of(places_, [&ip](const QpPlace& place) { return place.peer_ip == ip; });
  }
  // Prefetch the state of the queue pair that the next packet is for.
  void expect_packet(uint32_t qpn) const {
    const uint32_t index = find(qpn);
    if (index == kNone) return;
    prefetch(&places_[index]);
    qps_[index].expect_packet();
  }

  // Window offered to the peer of a receiving end: in packets, and unrounded as parts of a packet.
  uint32_t offered_window(uint32_t index) const { return offered_window_[places_[index].address]; }
  uint32_t offered_share(uint32_t index) const { return offered_share_[places_[index].address]; }

  void arm_timer(uint32_t index) {
    Qp& qp = qps_[index];
    const Nanos deadline = qp.deadline();
    if (deadline >= qp.timer_due_ns) return;  // a timer that fires early arms the next
    qp.timer_due_ns = deadline;
    events_.push(deadline, EventKind::qp_timer, index);
  }

  std::vector<FlowRecord> records() const;

 private:
  // Opens one end, and adds it.
  using EndOpener = std::function<Result<void>(const EndSettings& end, const PlannedQp& planned)>;
  Result<void> open_all(const LocalRanks& ranks, const EndOpener& open_end);
  Result<void> open_end_at_port(const EndSettings& end, const PlannedQp& planned, const FlowOpener& open_flow);
  Result<void> open_other_planes(const EndSettings& end, uint16_t src_port, FlowId first, const FlowOpener& open_flow);
  void add(const EndSettings& end, const PlannedQp& planned, FlowId flow, const QpResources& resources);
  Error wrong_port(const EndSettings& end) const;
  size_t count_here() const;
  bool counts_receives(int32_t connection) const;
  // Visit the queue pair ends of local ranks and of guests: calls `visit(row, queue pair, sends data, carrying port)`.
  template <typename Visit>
  Result<void> for_ends(Visit visit) const;

  // Members used for every packet are adjacent.
  uint32_t first_number_ = 0;
  std::vector<uint32_t> by_number_;  // qpn - first_number_ -> index
  FixedRow<Qp> qps_;
  std::pmr::vector<QpPlace> places_;
  EventHeap& events_;
  const EnginePlan& plan_;
  int32_t port_;
  Connections& connections_;
  FarEnds far_;
  std::vector<uint32_t> offered_window_;  // by local address
  std::vector<uint32_t> offered_share_;
};

}  // namespace etloop
