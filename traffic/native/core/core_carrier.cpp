// Queue pairs of a network card in a port's core, at this end or at the peer's: who writes where, which number stands for
// which message, and probing by writes of a path MTU each, because a card sends nothing beside its queue pairs.
#include <algorithm>

#include "core/core.h"

namespace etloop {

namespace {

// Where ends of ours let grants be written to. Nothing is stored there; the addresses are as NCCL would have them.
constexpr uint64_t kFifoBase = 0x7E00'0000'0000'0000;
constexpr uint64_t kFifoSlots = 256;
constexpr uint64_t kFifoSlotBytes = 512;
// Grants that one connection may have under way towards a card, or from one.
constexpr uint64_t kNumberedGrants = kCardRingSlots;

uint32_t grant_key(uint32_t qpn) { return (qpn << 8) | 0xF1; }

}  // namespace

bool Core::open_carried(size_t row, std::string& error) {
  const PlannedConnection& c = plan_.connections[row];
  ConnectionEnds& ends = ends_[row];
  const std::vector<IpAddress>& addresses = plan_.ports[static_cast<size_t>(port_)].addresses;
  ends.data_rkey = (plan_.qps[static_cast<size_t>(c.first_qp)].dst_qpn << 8) | 0x01;
  for (int32_t q = 0; q < c.qp_count; ++q) {
    const PlannedQp& planned = plan_.qps[static_cast<size_t>(c.first_qp + q)];
    for (const bool sends : {true, false}) {
      if ((sends ? ends.src_index : ends.dst_index) == kNone) continue;
      const IpAddress& own_ip = sends ? c.src_ip : c.dst_ip;
      const IpAddress& peer_ip = sends ? c.dst_ip : c.src_ip;
      const auto own = std::find(addresses.begin(), addresses.end(), own_ip);
      if (own == addresses.end()) {
        error = connection_text(static_cast<int32_t>(row)) + ": its address is not of this port";
        return false;
      }
      const auto address = static_cast<uint16_t>(own - addresses.begin());
      const uint8_t traffic_class = ranks_[sends ? ends.src_index : ends.dst_index].traffic_class;
      const auto added = carrier_->add_end({static_cast<int32_t>(row), q, sends, address, peer_ip, traffic_class});
      if (!added) {
        error = added.error().text;
        return false;
      }
      const auto index = static_cast<uint32_t>(qps_.size());
      const uint32_t remote = sends ? planned.dst_qpn : planned.src_qpn;
      // Records name an end by its number in the plan; the card's own is in `endpoints`.
      const uint32_t local = sends ? planned.src_qpn : planned.dst_qpn;
      qps_.emplace_back(local, remote, 0, plan_.transport, QpResources{});
      qps_.back().counters.connection = static_cast<int32_t>(row);
      qps_.back().counters.sends_data = sends ? 1 : 0;
      places_.push_back({static_cast<int32_t>(row), sends, peer_ip, address, static_cast<uint32_t>(q), traffic_class});
      (sends ? ends.send_qps : ends.recv_qps).push_back(index);
      if (sends) prober_.add(static_cast<int32_t>(row), q, index);
    }
  }
  if (!ends.recv_qps.empty()) ends.numbered.resize(kNumberedGrants);
  return true;
}

std::vector<Endpoint> Core::endpoints() const {
  std::vector<Endpoint> own;
  for (uint32_t i = 0; carrier_ != nullptr && i < qps_.size(); ++i) own.push_back(carrier_->endpoint(i));
  return own;
}

void Core::set_peer_endpoints(const std::vector<Endpoint>& peers) {
  for (const Endpoint& peer : peers) {
    ConnectionEnds& ends = ends_[static_cast<size_t>(peer.connection)];
    const std::vector<uint32_t>& mine = peer.sends_data ? ends.recv_qps : ends.send_qps;
    if (peer.ordinal < 0 || static_cast<size_t>(peer.ordinal) >= mine.size()) continue;
    qps_[mine[static_cast<size_t>(peer.ordinal)]].set_remote_qpn(peer.qpn);
    // Grants travel on the first queue pair of a connection, whose receiving end also tells where the others write to.
    if (peer.ordinal == 0) (peer.sends_data ? ends.grant_ring : ends.landing) = peer;
  }
  for (uint32_t i = 0; carrier_ != nullptr && i < qps_.size(); ++i) {
    Endpoint peer;
    peer.qpn = qps_[i].remote_qpn();
    if (const auto connected = carrier_->connect(i, peer); !connected) {
      fail(places_[i].connection, connection_text(places_[i].connection) + ": " + connected.error().text);
      return;
    }
  }
}

// Where a grant is written to, and what it says of where its message goes. False: the run has failed.
bool Core::place_grant(uint32_t qp, ConnectionEnds& ends, WorkRequest& request, uint32_t index) {
  const uint64_t slot = request.index - 1;
  if (ends.grant_ring.rkey != 0) {
    request.va = ends.grant_ring.va + (slot % kCardRingSlots) * kGrantWireBytes;
    request.rkey = ends.grant_ring.rkey;
  } else {
    request.va = kFifoBase + (slot % kFifoSlots) * kFifoSlotBytes;
    request.rkey = grant_key(qps_[qp].remote_qpn());
  }
  request.grant_va = buffer_address(request.grant_tag, index);
  request.grant_rkey = ends.data_rkey;
  if (carrier_ == nullptr) return true;
  const int32_t connection = places_[qp].connection;
  GrantedMessage& granted = ends.numbered[request.index % ends.numbered.size()];
  if (granted.number != 0) {
    fail(connection, connection_text(connection) + ": more than " + std::to_string(kNumberedGrants) +
                         " messages are granted at a time; honour the order of a communicator (dependencies.policy)");
    return false;
  }
  granted = {request.index, request.grant_tag, index, parts_of(connection, false)};
  request.grant_va = carrier_->room(qp, request.grant_bytes, request.grant_rkey);
  if (request.grant_va != 0) return true;
  fail(connection, connection_text(connection) + ": a message of up to " + std::to_string(request.grant_bytes) +
                       " bytes does not fit the memory of the card's port; lower scale.bytes");
  return false;
}

void Core::post_carried(uint32_t qp, const WorkRequest& request, Nanos now) {
  carrier_->post(qp, request);
  if (!carries_data(request.kind)) return;
  FlowRecord& counters = qps_[qp].counters;
  ++counters.tx_messages;
  counters.tx_payload_bytes += request.bytes;
  // Handed to the card; when it left is the card's secret.
  OpRecord& record = runs_[lanes_[request.lane].op_run].record;
  if (record.first_tx_ns == 0) record.first_tx_ns = now;
  if (request.trigger_ns != 0) ++turnarounds_[turnaround_bucket(now - request.trigger_ns)];
}

void Core::on_grant(uint32_t end, const ClearToSend& grant, Nanos now) {
  if (!failure_.empty()) return;
  grant_arrived(places_[end].connection, grant.tag, {grant.va, grant.rkey, static_cast<uint32_t>(grant.number)}, now);
}

void Core::on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) {
  if (!failure_.empty()) return;
  const int32_t connection = places_[end].connection;
  std::vector<GrantedMessage>& numbered = ends_[static_cast<size_t>(connection)].numbered;
  FlowRecord& counters = qps_[end].counters;
  ++counters.rx_messages;
  counters.rx_payload_bytes += bytes;
  const size_t slot = numbered.empty() ? 0 : number % numbered.size();
  if (numbered.empty() || static_cast<uint32_t>(numbered[slot].number) != number || numbered[slot].number == 0) {
    fail(connection, connection_text(connection) + ": a message of " + std::to_string(bytes) +
                         " bytes says that it is of grant " + std::to_string(number) + ", which is not under way");
    return;
  }
  const GrantedMessage granted = numbered[slot];
  if (--numbered[slot].missing_parts == 0) numbered[slot].number = 0;
  const uint32_t lane = ends_[static_cast<size_t>(connection)].receiving.find(granted.tag);
  const uint32_t parts = parts_of(connection, false);
  int64_t whole = bytes;
  if (parts > 1 && lane != ActiveLanes::kNone) {
    // The card tells the bytes of the part; that they are right shows that the whole is.
    const int64_t expected = lanes_[lane].expected_bytes[granted.index % kMaxSlots];
    if (message_part(expected, places_[end].ordinal, parts).bytes == bytes) whole = expected;
  }
  message_arrived(connection, granted.tag, granted.index, whole, bytes, true, now);
}

void Core::on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) {
  if (!failure_.empty()) return;
  const int32_t connection = places_[end].connection;
  const ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const uint32_t lane = ends.receiving.find(tag);
  const uint64_t messages = ~added;  // -(n + 1) was added
  int64_t bytes = 0;
  if (lane == ActiveLanes::kNone || !lanes_[lane].arrive_unseen(messages, bytes)) {
    fail(connection, connection_text(connection) + ": op #" + std::to_string(tag) + " was closed as one of " +
                         std::to_string(messages) + " messages, which is not what its schedule says");
    return;
  }
  FlowRecord& counters = qps_[ends.recv_qps[tag % ends.recv_qps.size()]].counters;
  counters.rx_messages += static_cast<int64_t>(messages);
  counters.rx_payload_bytes += bytes;
  runs_[lanes_[lane].op_run].record.rx_messages += static_cast<int32_t>(messages);
  count_arrival(lane, bytes, false, true, now);
}

void Core::on_carried(uint32_t end, const WorkRequest& request, Nanos now) {
  if (!failure_.empty()) return;
  if (request.kind == WorkKind::clear_to_send) return;
  if (request.kind == WorkKind::probe) {
    probe_answered(end, now);
  } else {
    message_acknowledged(request.lane, static_cast<uint32_t>(request.index), now);
  }
}

void Core::on_carrier_fault(uint32_t end, const std::string& reason) {
  if (probing()) {
    for (size_t target = 0; target < prober_.size(); ++target) {
      if (prober_.qp(target) == end) prober_.unreachable(target);
    }
    return;
  }
  fail(places_[end].connection, connection_text(places_[end].connection) + ": " + reason);
}

bool Core::probes_by_write(uint32_t qp) const {
  return carrier_ != nullptr || ends_[static_cast<size_t>(places_[qp].connection)].landing.rkey != 0;
}

void Core::send_probes(Nanos now) {
  if (!prober_.running() || prober_.over()) return;
  for (int64_t target = prober_.next(now); target >= 0; target = prober_.next(now)) {
    probe_by_write(static_cast<size_t>(target), now);
  }
}

// One write; the transport repeats it as it repeats any other.
void Core::probe_by_write(size_t target, Nanos now) {
  const bool fresh = prober_.fresh(target);
  prober_.sent(target, now, kWriteProbeTimeoutNs);
  if (!fresh) return;
  const uint32_t qp = prober_.qp(target);
  const ConnectionEnds& ends = ends_[static_cast<size_t>(places_[qp].connection)];
  WorkRequest request;
  request.kind = WorkKind::probe;
  request.bytes = plan_.transport.path_mtu;
  const bool card = ends.landing.rkey != 0;
  request.va = card ? ends.landing.va : buffer_address(0, kProbeIndex);
  request.rkey = card ? ends.landing.rkey : ends.data_rkey;
  post(qp, request, now);
}

void Core::probe_answered(uint32_t qp, Nanos now) {
  for (uint32_t target = 0; target < prober_.size(); ++target) {
    if (prober_.qp(target) == qp) prober_.on_reply(target, plan_.transport.traffic_class, plan_.transport.traffic_class, now);
  }
}

}  // namespace etloop
