#include "core/packets/queue_pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/planes.h"
#include "plan/queue_deal.h"
#include "qp/window_pools.h"

namespace etloop {

namespace {

// Kernel memory that one received full-size packet occupies beside its payload (socket buffer overhead), as a factor.
constexpr int64_t kBufferPerPayload = 2;
constexpr uint32_t kLeastWindow = 2;
// What all senders to a port together may have under way. More would only stand in its receive buffers, and wait there
// longer than a retransmission timeout when the host is busy.
constexpr int64_t kMostInFlightBytes = 8 << 20;

}  // namespace

Result<void> QueuePairs::open(const LocalRanks& ranks, const FlowOpener& open_flow) {
  first_number_ = plan_.ports[static_cast<size_t>(port_)].qpn_base;
  by_number_.assign(plan_.ports[static_cast<size_t>(port_)].qpn_count, kNone);
  return open_all(ranks, [&](const EndSettings& end, const PlannedQp& planned) {
    return open_end_at_port(end, planned, open_flow);
  });
}

Result<void> QueuePairs::open(const LocalRanks& ranks, Carrier& carrier) {
  return open_all(ranks, [&](const EndSettings& end, const PlannedQp& planned) {
    auto added = carrier.add_end(end);
    // Records name an end by its number in the plan; the card's own is in `Carrier::endpoint`.
    if (added) add(end, planned, 0, {});
    return added;
  });
}

// In the order of the plan. Of a port whose queues deal their queue pairs, those that others carry for ranks here, too.
template <typename Each>
Result<void> QueuePairs::for_ends(Each each) const {
  for (int32_t row = 0; row < static_cast<int32_t>(connections_.size()); ++row) {
    if (connections_.place(row) == 0 || !connections_.on_wire(row)) continue;
    const ConnectionEnds& ends = connections_[row];
    const PlannedConnection& c = connections_.planned(row);
    for (int32_t q = 0; q < c.qp_count; ++q) {
      const PlannedQp& planned = plan_.qps[static_cast<size_t>(c.first_qp + q)];
      for (const bool sends : {true, false}) {
        const bool is_home = (sends ? ends.src_index : ends.dst_index) != kNotHere;
        if (!is_home && (sends ? ends.src_home : ends.dst_home).port < 0) continue;
        const int32_t carrier = carrier_of(plan_, port_, sends ? planned.src_qpn : planned.dst_qpn);
        if (carrier != port_ && !is_home) continue;
        if (auto done = each(row, q, sends, carrier); !done) return done;
      }
    }
  }
  return {};
}

Result<void> QueuePairs::open_all(const LocalRanks& ranks, const EndOpener& open_end) {
  const size_t queue_pairs = count_here();
  qps_.reserve(queue_pairs);
  places_.reserve(queue_pairs);
  const std::vector<IpAddress>& addresses = plan_.ports[static_cast<size_t>(port_)].addresses;
  return for_ends([&](int32_t row, int32_t q, bool sends, int32_t carrier) -> Result<void> {
    const PlannedConnection& c = connections_.planned(row);
    const PlannedQp& planned = plan_.qps[static_cast<size_t>(c.first_qp + q)];
    ConnectionEnds& ends = connections_[row];
    ends.data_rkey = (plan_.qps[static_cast<size_t>(c.first_qp)].dst_qpn << 8) | 0x01;
    if (carrier != port_) {
      const auto [own, peer] = sends ? std::pair(planned.src_qpn, planned.dst_qpn) : std::pair(planned.dst_qpn, planned.src_qpn);
      (sends ? ends.send_qps : ends.recv_qps).push_back(far_.add(carrier, own, peer));
      return {};
    }
    const uint32_t rank = sends ? ends.src_index : ends.dst_index;
    const EndHome& home = sends ? ends.src_home : ends.dst_home;
    const auto own = std::find(addresses.begin(), addresses.end(), sends ? c.src_ip : c.dst_ip);
    const auto address = static_cast<uint16_t>(own - addresses.begin());
    const uint8_t traffic_class = rank != kNotHere ? ranks[rank].traffic_class : home.traffic_class;
    const EndSettings end{row, q, sends, address, sends ? c.dst_ip : c.src_ip, traffic_class};
    if (own == addresses.end()) return not_ours(end);
    return open_end(end, planned);
  });
}

Result<void> QueuePairs::open_end_at_port(const EndSettings& end, const PlannedQp& planned, const FlowOpener& open_flow) {
  const uint32_t offset = (end.sends_data ? planned.src_qpn : planned.dst_qpn) - first_number_;
  if (offset >= by_number_.size()) return not_ours(end);
  const uint16_t src_port = end.sends_data ? planned.src_udp_port : planned.dst_udp_port;
  const Result<FlowId> flow = open_flow(end.address, end.peer_ip, src_port, end.traffic_class);
  if (!flow) return flow.error();
  if (auto opened = open_other_planes(end, src_port, *flow, open_flow); !opened) return opened;
  ConnectionEnds& ends = connections_[end.connection];
  if (by_number_[offset] != kNone) {
    return Error{connections_.text(end.connection) + ": queue pair number " +
                 std::to_string(end.sends_data ? planned.src_qpn : planned.dst_qpn) + " is used twice"};
  }
  by_number_[offset] = static_cast<uint32_t>(qps_.size());
  if (!end.sends_data && ends.receives == nullptr && counts_receives(end.connection)) {
    ends.receives = std::make_unique<ReceiveQueue>();
  }
  // The sending end accepts clear-to-send writes, the receiving end data.
  const uint32_t accepts = end.sends_data ? (planned.src_qpn << 8) | 0xF1 : ends.data_rkey;
  add(end, planned, *flow, {accepts, nullptr, end.sends_data ? nullptr : ends.receives.get()});
  return {};
}

// A queue pair's flows on the planes of its card are numbered in a row.
Result<void> QueuePairs::open_other_planes(const EndSettings& end, uint16_t src_port, FlowId first, const FlowOpener& open_flow) {
  const PlannedPort& port = port_at(plan_, port_);
  for (uint32_t plane = 1; plane < port.planes; ++plane) {
    const auto address = static_cast<uint16_t>(end.address + plane * port.addresses.size());
    const Result<FlowId> flow = open_flow(address, on_plane(plan_, end.peer_ip, plane), src_port, end.traffic_class);
    if (!flow) return flow.error();
    if (*flow != first + plane) return Error{"port " + port.name + " does not number the flows of its planes in a row"};
  }
  return {};
}

// The receives of a connection are one queue, of one thread; where its queue pairs are dealt, there is always one.
bool QueuePairs::counts_receives(int32_t connection) const {
  const PlannedConnection& c = connections_.planned(connection);
  for (int32_t q = c.first_qp; q < c.first_qp + c.qp_count; ++q) {
    if (carrier_of(plan_, port_, plan_.qps[static_cast<size_t>(q)].dst_qpn) != port_) return false;
  }
  return true;
}

void QueuePairs::add(const EndSettings& end, const PlannedQp& planned, FlowId flow, const QpResources& resources) {
  const auto index = static_cast<uint32_t>(qps_.size());
  const uint32_t local = end.sends_data ? planned.src_qpn : planned.dst_qpn;
  const uint32_t remote = end.sends_data ? planned.dst_qpn : planned.src_qpn;
  Qp& qp = qps_.emplace_back(local, remote, flow, plan_.transport, resources, *places_.get_allocator().resource());
  qp.counters.connection = end.connection;
  qp.counters.sends_data = end.sends_data ? 1 : 0;
  ConnectionEnds& ends = connections_[end.connection];
  places_.push_back({end.connection, end.sends_data, end.peer_ip, end.address, static_cast<uint32_t>(end.ordinal),
                     end.traffic_class, static_cast<int16_t>((end.sends_data ? ends.src_home : ends.dst_home).port)});
  (end.sends_data ? ends.send_qps : ends.recv_qps).push_back(index);
}

Error QueuePairs::not_ours(const EndSettings& end) const {
  return {connections_.text(end.connection) + ": its address or queue pair number is not of port " +
          plan_.ports[static_cast<size_t>(port_)].name};
}

size_t QueuePairs::count_here() const {
  size_t count = 0;
  const auto counted = for_ends([&](int32_t, int32_t, bool, int32_t carrier) -> Result<void> {
    count += carrier == port_ ? 1 : 0;
    return {};
  });
  return counted ? count : 0;  // counting does not fail
}

void QueuePairs::offer_windows(int64_t receive_buffer_bytes) {
  const PlannedPort& port = plan_.ports[static_cast<size_t>(port_)];
  std::vector<int64_t> inbound(port.addresses.size(), 0);
  for (const QpPlace& place : places_) inbound[place.address] += place.sends_data ? 0 : 1;
  const int64_t per_packet = kBufferPerPayload * (plan_.transport.path_mtu_bytes + 256);
  const int64_t all_qps = std::max<int64_t>(std::accumulate(inbound.begin(), inbound.end(), int64_t{0}), 1);
  const int64_t most_packets = kMostInFlightBytes / port.queues / plan_.transport.path_mtu_bytes;
  const int64_t share_packets = most_packets / all_qps;
  for (const int64_t qps : inbound) {
    const int64_t held_packets = receive_buffer_bytes / per_packet / std::max<int64_t>(qps, 1);
    const int64_t packets = std::min(held_packets, share_packets);
    const int64_t share =
        std::min(receive_buffer_bytes / per_packet * WindowPools::kSharesPerPacket / std::max<int64_t>(qps, 1),
                 most_packets * WindowPools::kSharesPerPacket / all_qps);
    offered_window_.push_back(static_cast<uint32_t>(std::clamp<int64_t>(packets, kLeastWindow, kMostWindow)));
    offered_share_.push_back(static_cast<uint32_t>(std::clamp<int64_t>(share, 1, WindowPools::kMostShare)));
  }
}

void QueuePairs::count_anew() {
  for (size_t i = 0; i < qps_.size(); ++i) {
    FlowRecord& counters = qps_[i].counters;
    FlowRecord fresh{};
    fresh.local_qpn = counters.local_qpn;
    fresh.remote_qpn = counters.remote_qpn;
    fresh.connection = counters.connection;
    fresh.sends_data = counters.sends_data;
    counters = fresh;
  }
}

std::vector<FlowRecord> QueuePairs::records() const {
  std::vector<FlowRecord> records;
  records.reserve(qps_.size());
  for (const Qp& qp : qps_) records.push_back(qp.counters);
  return records;
}

}  // namespace etloop
