// Endpoints of connections where a NIC's own transport carries whole messages, at this end or at the peer: the addresses that
// each end writes to, and which grant number belongs to which message. Endpoints of the engine's own transport take all of this
// from the plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/carrier.h"
#include "core/connections.h"
#include "core/failure.h"
#include "core/message.h"
#include "core/op_records.h"
#include "core/packets/queue_pairs.h"
#include "plan/plan.h"
#include "qp/work.h"

namespace etloop {

class CardEnds {
 public:
  CardEnds(const EnginePlan& plan, Connections& connections, QueuePairs& queue_pairs, OpRecords& records, Failure& failure)
      : plan_(plan), connections_(connections), queue_pairs_(queue_pairs), records_(records), failure_(failure) {}

  // From now on this end's queue pairs are the card's. Call after they are open. `carrier` outlives this.
  void attach(Carrier& carrier);
  bool attached() const { return carrier_ != nullptr; }

  // Endpoints that the card numbered and peers must be given; empty over packets.
  std::vector<Endpoint> endpoints() const;
  // Set the peers' endpoints, before the first packet. Endpoints not listed are as the plan has them.
  void set_peer_endpoints(const std::vector<Endpoint>& peers);

  // The address and key that the sender of a connection writes to at a receiver on a card; rkey 0: the receiver uses the engine's
  // own transport.
  const Endpoint& landing(int32_t connection) const {
    return peers_.empty() ? kNoCard : peers_[connections_.place(connection)].landing;
  }
  // Fill in the address that a grant is written to, and the address it grants for message `index` of its op. False: the run has
  // failed.
  bool place_grant(int32_t connection, uint32_t qp, WorkRequest& request, uint32_t index);
  // Whether the path must be probed by an RDMA write on the queue pair: cards do not answer probe packets.
  bool probed_by_write(uint32_t qp) const { return attached() || landing(queue_pairs_.place(qp).connection).rkey != 0; }
  WorkRequest probe_request(uint32_t qp) const;
  // Ask the card to report the closing atomic of an op at the receiving end of a connection.
  void watch(int32_t connection, uint32_t tag) { carrier_->watch(connections_[connection].recv_qps.front(), tag); }

  void post(uint32_t qp, const WorkRequest& request, Nanos now);

  // The message, or part of one, that completed under a grant's number. False: the run has failed.
  struct Granted {
    uint32_t tag = 0;
    uint32_t index = 0;
  };
  bool take_granted(uint32_t end, uint32_t number, uint32_t bytes, Granted& granted);

 private:
  void set_remote_qpn(const Endpoint& peer);

  // A granted message that the card at this end identifies by the grant's number only.
  struct NumberedMessage {
    uint64_t number = 0;  // 0: none in flight
    uint32_t tag = 0;
    uint32_t index = 0;
    uint32_t missing_parts = 0;
  };
  struct Peer {
    Endpoint grant_ring{};  // of a sender on a card; rkey 0: the sender uses the engine's own transport
    Endpoint landing{};     // of a receiver on a card
    std::vector<NumberedMessage> numbered;  // by number % its size; if the receiver is on the card here
  };
  static constexpr Endpoint kNoCard{};

  const EnginePlan& plan_;
  Connections& connections_;
  QueuePairs& queue_pairs_;
  OpRecords& records_;
  Failure& failure_;
  Carrier* carrier_ = nullptr;  // nullptr: the engine's own transport over packets
  std::vector<Peer> peers_;     // by place of the connection; empty: there is no card
};

}  // namespace etloop
