// From a plan to the state of a run: ranks, connection ends, queue pairs and the windows offered to peers.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/core.h"

namespace etloop {

namespace {

// Kernel memory that one received full-size packet occupies beside its payload (socket buffer overhead), as a factor.
constexpr int64_t kBufferPerPayload = 2;
constexpr uint32_t kLeastWindow = 2;
// What all senders to a port together may have under way. More would only stand in its receive buffers, and wait there
// longer than a retransmission timeout when the host is busy.
constexpr int64_t kMostInFlightBytes = 8 << 20;

bool queues_of_one(const EnginePlan& plan, int32_t port, int32_t other) {
  const PlannedPort& a = plan.ports[static_cast<size_t>(port)];
  const PlannedPort& b = plan.ports[static_cast<size_t>(other)];
  return a.queues > 1 && a.queues == b.queues && a.qpn_base == b.qpn_base;
}

}  // namespace

std::unique_ptr<Core> Core::make(const EnginePlan& plan, int32_t port, int64_t receive_buffer_bytes,
                                 const FlowOpener& open_flow, std::string& error, std::pmr::memory_resource& memory) {
  std::unique_ptr<Core> core(new Core(plan, port, memory));
  if (!core->load(receive_buffer_bytes, open_flow, error)) return nullptr;
  return core;
}

std::unique_ptr<Core> Core::make(const EnginePlan& plan, int32_t port, Carrier& carrier, std::string& error) {
  std::unique_ptr<Core> core(new Core(plan, port));
  core->carrier_ = &carrier;
  if (!core->load(0, {}, error)) return nullptr;
  return core;
}

Core::Core(const EnginePlan& plan, int32_t port, std::pmr::memory_resource& memory)
    : plan_(plan), port_(port), qps_(memory), places_(&memory), flow_controls_(memory), turnarounds_(kTurnaroundBuckets, 0) {}

bool Core::load(int64_t receive_buffer_bytes, const FlowOpener& open_flow, std::string& error) {
  if (!load_ranks(error) || !load_connections(open_flow, error)) return false;
  load_windows(receive_buffer_bytes);
  load_flow_controls();
  load_faults();
  data_ring_.resize(qps_.size());
  grant_ring_.resize(qps_.size());
  ack_queue_.reserve(qps_.size());
  patient_queue_.reserve(qps_.size());
  return true;
}

void Core::ConnectionIndex::finish() {
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.key < b.key; });
}

int32_t Core::ConnectionIndex::find(int32_t channel, int32_t position) const {
  const uint64_t wanted = key(channel, position);
  const auto at = std::lower_bound(items_.begin(), items_.end(), wanted,
                                   [](const Item& item, uint64_t value) { return item.key < value; });
  return at == items_.end() || at->key != wanted ? kNoConnection : at->connection;
}

bool Core::load_ranks(std::string& error) {
  int64_t records = 0;
  for (const PlannedRank& planned : plan_.ranks) {
    if (port_ != kEveryPort && planned.port != port_) continue;
    const auto index = static_cast<uint32_t>(ranks_.size());
    const Program& program = plan_.programs[planned.program];
    LocalRank rank{planned.rank, RankRun(index, program, planned.background ? 1 : plan_.iterations), {}, {}, {}, {}, 0};
    for (const int32_t c : planned.communicators) {
      const auto first = plan_.communicator_members.begin() + plan_.communicator_offsets[c];
      const auto last = plan_.communicator_members.begin() + plan_.communicator_offsets[c + 1];
      rank.communicators.push_back({c, static_cast<int32_t>(std::find(first, last, planned.rank) - first), 0, {}, {}});
    }
    for (const int32_t peer : planned.peers) rank.peers.push_back({peer, 0, 0, {}, {}});
    std::map<uint32_t, std::vector<std::pair<int32_t, int32_t>>> receives;  // slot -> (sequence, op)
    for (size_t op = 0; op < program.size(); ++op) {
      const auto slot = static_cast<size_t>(program.slot[op]);
      switch (program.kind[op]) {
        case OpKind::delay: break;
        case OpKind::collective: ++rank.communicators[slot].ops; break;
        case OpKind::send: ++rank.peers[slot].sends; break;
        case OpKind::recv:
          ++rank.peers[slot].recvs;
          receives[static_cast<uint32_t>(slot)].emplace_back(program.sequence[op], static_cast<int32_t>(op));
          break;
      }
    }
    for (auto& [slot, ops] : receives) {
      std::sort(ops.begin(), ops.end());
      EagerQueue queue{slot, {}, 0};
      for (const auto& [sequence, op] : ops) queue.ops.push_back(op);
      rank.eager.push_back(std::move(queue));
    }
    rank.receive_run.assign(program.size(), kNone);
    rank.awaited = !planned.background;
    rank.traffic_class = planned.traffic_class < 0 ? plan_.transport.traffic_class : static_cast<uint8_t>(planned.traffic_class);
    ranks_awaited_ += rank.awaited ? 1 : 0;
    total_ops_ += rank.awaited ? program.network_ops * plan_.iterations : 0;
    records += program.network_ops * (rank.awaited ? plan_.iterations : 1);
    ranks_.push_back(std::move(rank));
  }
  constexpr int64_t kMostRecords = 1LL << 26;
  if (records > kMostRecords) {
    error = "a port would record " + std::to_string(records) + " ops, more than 2^26; run fewer iterations";
    return false;
  }
  records_.reserve(static_cast<size_t>(records));
  return index_connections(error);
}

// Tells every rank of this port its connections by channel and by the position of the peer.
bool Core::index_connections(std::string& error) {
  load_ends();
  // Those of other ports are theirs to look at.
  std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> keys;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    if (ends_[row].src_index == kNone && ends_[row].dst_index == kNone) continue;
    keys.emplace_back(c.communicator, c.channel, c.src_rank, c.dst_rank);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    error = "connections: rank " + std::to_string(std::get<2>(*twice)) + " -> rank " + std::to_string(std::get<3>(*twice)) +
            " of one channel twice";
    return false;
  }
  std::map<int32_t, std::map<int32_t, int32_t>> positions;  // communicator -> rank -> position
  for (const LocalRank& rank : ranks_) {
    for (const CommunicatorSlot& slot : rank.communicators) {
      const auto [at, is_new] = positions.try_emplace(slot.communicator);
      const int32_t first = plan_.communicator_offsets[static_cast<size_t>(slot.communicator)];
      const int32_t last = plan_.communicator_offsets[static_cast<size_t>(slot.communicator) + 1];
      for (int32_t m = first; is_new && m < last; ++m) at->second[plan_.communicator_members[static_cast<size_t>(m)]] = m - first;
    }
  }
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    for (const bool sends : {true, false}) {
      const uint32_t here = sends ? ends_[row].src_index : ends_[row].dst_index;
      if (here == kNone) continue;
      const int32_t peer = sends ? c.dst_rank : c.src_rank;
      for (PeerSlot& slot : ranks_[here].peers) {
        if (c.communicator < 0 && slot.peer == peer) {
          (sends ? slot.send_to : slot.recv_from).add(c.channel, 0, static_cast<int32_t>(row));
        }
      }
      for (CommunicatorSlot& slot : ranks_[here].communicators) {
        if (slot.communicator != c.communicator) continue;
        const auto& members = positions[c.communicator];
        if (const auto position = members.find(peer); position != members.end()) {
          (sends ? slot.send_to : slot.recv_from).add(c.channel, position->second, static_cast<int32_t>(row));
        }
      }
    }
  }
  for (LocalRank& rank : ranks_) {
    for (CommunicatorSlot& slot : rank.communicators) slot.send_to.finish(), slot.recv_from.finish();
    for (PeerSlot& slot : rank.peers) slot.send_to.finish(), slot.recv_from.finish();
  }
  return true;
}

// Which ends of the connections are here.
void Core::load_ends() {
  ends_.resize(plan_.connections.size());
  std::map<int32_t, uint32_t> local;
  for (uint32_t i = 0; i < ranks_.size(); ++i) local[ranks_[i].rank] = i;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    if (const auto it = local.find(c.src_rank); it != local.end()) ends_.make(row).src_index = it->second;
    if (const auto it = local.find(c.dst_rank); it != local.end()) ends_.make(row).dst_index = it->second;
  }
}

size_t Core::queue_pairs_here() const {
  size_t count = 0;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    if (plan_.connections[row].path != Path::wire) continue;
    const size_t ends = (ends_[row].src_index != kNone ? 1U : 0U) + (ends_[row].dst_index != kNone ? 1U : 0U);
    count += ends * static_cast<size_t>(plan_.connections[row].qp_count);
  }
  return count;
}

bool Core::load_connections(const FlowOpener& open_flow, std::string& error) {
  std::map<int32_t, int32_t> port_of;
  for (const PlannedRank& rank : plan_.ranks) port_of[rank.rank] = rank.port;
  qp_by_number_.assign(plan_.ports[port_].qpn_count, kNone);
  const size_t queue_pairs = queue_pairs_here();
  qps_.reserve(queue_pairs);
  places_.reserve(queue_pairs);
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    ConnectionEnds& ends = ends_[row];
    if (ends.src_index == kNone && ends.dst_index == kNone) continue;
    if (c.path != Path::wire) {
      if (ends.src_index != kNone && ends.dst_index != kNone) continue;
      const auto other = port_of.find(ends.src_index == kNone ? c.src_rank : c.dst_rank);
      if (other == port_of.end() || (c.path == Path::hairpin && !queues_of_one(plan_, port_, other->second))) {
        error = connection_text(static_cast<int32_t>(row)) + ": does not cross the wire, but its ranks are on different " +
                (other == port_of.end() ? "agents" : "ports");
        return false;
      }
      ends.other_port = other->second;
      continue;
    }
    if (carrier_ != nullptr ? !open_carried(row, error) : !open_qps(row, open_flow, error)) return false;
  }
  return true;
}

bool Core::open_qps(size_t row, const FlowOpener& open_flow, std::string& error) {
  const PlannedConnection& c = plan_.connections[row];
  ConnectionEnds& ends = ends_[row];
  const PlannedPort& port = plan_.ports[port_];
  const auto address_of = [&](const IpAddress& ip) {
    const auto it = std::find(port.addresses.begin(), port.addresses.end(), ip);
    return it == port.addresses.end() ? -1 : static_cast<int>(it - port.addresses.begin());
  };
  ends.data_rkey = (plan_.qps[static_cast<size_t>(c.first_qp)].dst_qpn << 8) | 0x01;
  for (int32_t q = 0; q < c.qp_count; ++q) {
    const PlannedQp& qp = plan_.qps[static_cast<size_t>(c.first_qp + q)];
    for (const bool sends : {true, false}) {
      if ((sends ? ends.src_index : ends.dst_index) == kNone) continue;
      const uint32_t local = sends ? qp.src_qpn : qp.dst_qpn;
      const uint32_t remote = sends ? qp.dst_qpn : qp.src_qpn;
      const IpAddress peer_ip = sends ? c.dst_ip : c.src_ip;
      const int address = address_of(sends ? c.src_ip : c.dst_ip);
      if (address < 0 || local < port.qpn_base || local - port.qpn_base >= port.qpn_count) {
        error = connection_text(static_cast<int32_t>(row)) + ": its address or queue pair number is not of port " + port.name;
        return false;
      }
      FlowId flow = 0;
      const uint8_t traffic_class = ranks_[sends ? ends.src_index : ends.dst_index].traffic_class;
      if (!open_flow(static_cast<uint16_t>(address), peer_ip, sends ? qp.src_udp_port : qp.dst_udp_port, traffic_class, flow,
                     error)) {
        return false;
      }
      const auto index = static_cast<uint32_t>(qps_.size());
      // The sending end accepts clear-to-send writes, the receiving end data.
      const uint32_t accepts = sends ? (qp.src_qpn << 8) | 0xF1 : ends.data_rkey;
      if (!sends && ends.receives == nullptr) ends.receives = std::make_unique<ReceiveQueue>();
      const QpResources resources{accepts, nullptr, sends ? nullptr : ends.receives.get()};
      qps_.emplace_back(local, remote, flow, plan_.transport, resources, *places_.get_allocator().resource());
      qps_.back().counters.connection = static_cast<int32_t>(row);
      qps_.back().counters.sends_data = sends ? 1 : 0;
      places_.push_back({static_cast<int32_t>(row), sends, peer_ip, static_cast<uint16_t>(address), static_cast<uint32_t>(q),
                         traffic_class});
      uint32_t& slot = qp_by_number_[local - port.qpn_base];
      if (slot != kNone) {
        error = connection_text(static_cast<int32_t>(row)) + ": queue pair number " + std::to_string(local) + " is used twice";
        return false;
      }
      slot = index;
      (sends ? ends.send_qps : ends.recv_qps).push_back(index);
      if (!sends) continue;
      prober_.add(static_cast<int32_t>(row), q, index);
      if (plan_.transport.window_packets == 0) pools_.add(index, peer_ip);
    }
  }
  return true;
}

void Core::load_faults() {
  if (plan_.transport.faults.empty()) return;
  faults_ = std::make_unique<FaultInjector>(plan_.transport.faults);
  for (uint32_t i = 0; i < qps_.size(); ++i) {
    const PlannedConnection& c = plan_.connections[static_cast<size_t>(places_[i].connection)];
    const ConnectionEnds& ends = ends_[static_cast<size_t>(places_[i].connection)];
    const std::vector<uint32_t>& mine = places_[i].sends_data ? ends.send_qps : ends.recv_qps;
    const auto number = std::find(mine.begin(), mine.end(), i) - mine.begin();
    const Qp& qp = qps_[i];
    faults_->add_end({c.src_rank, c.dst_rank, static_cast<int32_t>(number), qp.local_qpn(), qp.remote_qpn(), qp.flow(),
                      places_[i].traffic_class, c.communicator, c.channel});
  }
}

void Core::load_windows(int64_t receive_buffer_bytes) {
  const PlannedPort& port = plan_.ports[port_];
  std::vector<int64_t> inbound(port.addresses.size(), 0);
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    if (ends_[row].recv_qps.empty()) continue;
    const auto it = std::find(port.addresses.begin(), port.addresses.end(), plan_.connections[row].dst_ip);
    inbound[static_cast<size_t>(it - port.addresses.begin())] += static_cast<int64_t>(ends_[row].recv_qps.size());
  }
  const int64_t per_packet = kBufferPerPayload * (plan_.transport.path_mtu + 256);
  const int64_t all_qps = std::max<int64_t>(std::accumulate(inbound.begin(), inbound.end(), int64_t{0}), 1);
  const int64_t most_packets = kMostInFlightBytes / port.queues / plan_.transport.path_mtu;
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

}  // namespace etloop
