#include "core/card_ends.h"

namespace etloop {

namespace {

// Address range for grants to senders with the engine's own transport. No grant is stored there; the layout is NCCL's.
constexpr uint64_t kFifoBase = 0x7E00'0000'0000'0000;
constexpr uint64_t kFifoSlots = 256;
constexpr uint64_t kFifoSlotBytes = 512;
// Most grants of one connection in flight to or from a card.
constexpr uint64_t kNumberedGrants = kCardRingSlots;

uint32_t grant_key(uint32_t qpn) { return (qpn << 8) | 0xF1; }

}  // namespace

void CardEnds::attach(Carrier& carrier) {
  carrier_ = &carrier;
  peers_.resize(connections_.places());
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    const QpPlace& place = queue_pairs_.place(i);
    if (!place.sends_data) peers_[connections_.place(place.connection)].numbered.resize(kNumberedGrants);
  }
}

std::vector<Endpoint> CardEnds::endpoints() const {
  std::vector<Endpoint> endpoints;
  for (uint32_t i = 0; attached() && i < queue_pairs_.size(); ++i) endpoints.push_back(carrier_->endpoint(i));
  return endpoints;
}

void CardEnds::set_peer_endpoints(const std::vector<Endpoint>& peers) {
  if (!peers.empty()) peers_.resize(connections_.places());
  for (const Endpoint& peer : peers) {
    if (connections_.place(peer.connection) == 0) continue;  // no end on this port
    set_remote_qpn(peer);
    // Grants travel on the first queue pair of a connection; its receiving end also announces the address of data sent without
    // grants.
    Peer& known = peers_[connections_.place(peer.connection)];
    if (peer.ordinal == 0) (peer.sends_data ? known.grant_ring : known.landing) = peer;
  }
  for (uint32_t i = 0; attached() && i < queue_pairs_.size(); ++i) {
    Endpoint peer;
    peer.qpn = queue_pairs_[i].remote_qpn();
    if (const auto connected = carrier_->connect(i, peer); !connected) {
      const int32_t connection = queue_pairs_.place(i).connection;
      failure_.set(connection, connections_.text(connection) + ": " + connected.error().text);
      return;
    }
  }
}

// Set the remote number of the local queue pair connected to `peer`, on whichever queue that is.
void CardEnds::set_remote_qpn(const Endpoint& peer) {
  const ConnectionEnds& ends = connections_[peer.connection];
  const std::vector<uint32_t>& mine = peer.sends_data ? ends.recv_qps : ends.send_qps;
  for (size_t at = 0; at < mine.size(); ++at) {
    if (FarEnds::is_far(mine[at])) {  // a connection with far ends lists all its queue pairs in order
      if (static_cast<int32_t>(at) == peer.ordinal) queue_pairs_.far().set_remote_qpn(mine[at], peer.qpn);
    } else if (static_cast<int32_t>(queue_pairs_.place(mine[at]).ordinal) == peer.ordinal) {
      queue_pairs_[mine[at]].set_remote_qpn(peer.qpn);
    }
  }
}

bool CardEnds::place_grant(int32_t connection, uint32_t qp, WorkRequest& request, uint32_t index) {
  Peer* peer = peers_.empty() ? nullptr : &peers_[connections_.place(connection)];
  const uint64_t slot = request.index - 1;
  if (peer != nullptr && peer->grant_ring.rkey != 0) {
    request.va = peer->grant_ring.va + (slot % kCardRingSlots) * kGrantWireBytes;
    request.rkey = peer->grant_ring.rkey;
  } else {
    request.va = kFifoBase + (slot % kFifoSlots) * kFifoSlotBytes;
    request.rkey = grant_key(FarEnds::is_far(qp) ? queue_pairs_.far().remote_qpn(qp) : queue_pairs_[qp].remote_qpn());
  }
  request.grant_va = buffer_address(request.grant_tag, index);
  request.grant_rkey = connections_[connection].data_rkey;
  if (!attached()) return true;
  NumberedMessage& numbered = peer->numbered[request.index % peer->numbered.size()];
  if (numbered.number != 0) {
    failure_.set(connection, connections_.text(connection) + ": more than " + std::to_string(kNumberedGrants) +
                                 " messages are granted at a time; honour the order of a communicator (dependencies.policy)");
    return false;
  }
  numbered = {request.index, request.grant_tag, index, connections_.parts_of(connection, false)};
  request.grant_va = carrier_->room(qp, request.grant_bytes, request.grant_rkey);
  if (request.grant_va != 0) return true;
  failure_.set(connection, connections_.text(connection) + ": a message of up to " + std::to_string(request.grant_bytes) +
                               " bytes does not fit the memory of the card's port; lower scale.bytes");
  return false;
}

WorkRequest CardEnds::probe_request(uint32_t qp) const {
  const int32_t connection = queue_pairs_.place(qp).connection;
  const Endpoint& card = landing(connection);
  WorkRequest request;
  request.kind = WorkKind::probe;
  request.bytes = plan_.transport.path_mtu_bytes;
  request.va = card.rkey != 0 ? card.va : buffer_address(0, kProbeIndex);
  request.rkey = card.rkey != 0 ? card.rkey : connections_[connection].data_rkey;
  return request;
}

void CardEnds::post(uint32_t qp, const WorkRequest& request, Nanos now) {
  carrier_->post(qp, request);
  if (!carries_data(request.kind)) return;
  FlowRecord& counters = queue_pairs_[qp].counters;
  ++counters.tx_messages;
  counters.tx_payload_bytes += request.bytes;
  // Time of hand-over: a card does not report when a message departs.
  records_.note_departure(request.op, now);
  records_.note_turnaround(request.trigger_ns, now);
}

bool CardEnds::take_granted(uint32_t end, uint32_t number, uint32_t bytes, Granted& granted) {
  const int32_t connection = queue_pairs_.place(end).connection;
  FlowRecord& counters = queue_pairs_[end].counters;
  ++counters.rx_messages;
  counters.rx_payload_bytes += bytes;
  std::vector<NumberedMessage>& numbered = peers_[connections_.place(connection)].numbered;
  NumberedMessage* message = numbered.empty() ? nullptr : &numbered[number % numbered.size()];
  if (message == nullptr || message->number == 0 || static_cast<uint32_t>(message->number) != number) {
    failure_.set(connection, connections_.text(connection) + ": a message of " + std::to_string(bytes) +
                                 " bytes names grant " + std::to_string(number) + ", which is not under way");
    return false;
  }
  granted = {message->tag, message->index};
  if (--message->missing_parts == 0) message->number = 0;
  return true;
}

}  // namespace etloop
