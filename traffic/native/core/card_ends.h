// Ends of connections on a network card that carries whole messages, at this end or at the peer: who writes where, and which
// number stands for which message. Ends of ours know all of that from the plan.
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

  // This end's queue pairs are the card's; once they are open. `carrier` outlives this.
  void attach(Carrier& carrier);
  bool attached() const { return carrier_ != nullptr; }

  // What peers must know of ends that were not ours to number; empty over packets.
  std::vector<Endpoint> endpoints() const;
  // What peers told of theirs, before the first packet. Ends that nothing is told of are as the plan has them.
  void set_peer_endpoints(const std::vector<Endpoint>& peers);

  // Where the sender of a connection writes to at a receiver on a card; rkey 0: the receiver is ours.
  const Endpoint& landing(int32_t connection) const {
    return peers_.empty() ? kOurs : peers_[connections_.place(connection)].landing;
  }
  // Says where a grant is written to, and in it where message `index` of its op goes. False: the run has failed.
  bool place_grant(int32_t connection, uint32_t qp, WorkRequest& request, uint32_t index);
  // Whether the peer answers no probe beside its queue pairs, as cards do not.
  bool probed_by_write(uint32_t qp) const { return attached() || landing(queue_pairs_.place(qp).connection).rkey != 0; }
  WorkRequest probe_request(uint32_t qp) const;
  // The card tells when the closing atomic of an op has come to the receiving end of a connection.
  void watch(int32_t connection, uint32_t tag) { carrier_->watch(connections_[connection].recv_qps.front(), tag); }

  // Hands a request to the card.
  void post(uint32_t qp, const WorkRequest& request, Nanos now);

  // Which message, or part of one, the number of a grant stands for that came to an end. False: the run has failed.
  struct Granted {
    uint32_t tag = 0;
    uint32_t index = 0;
  };
  bool take_granted(uint32_t end, uint32_t number, uint32_t bytes, Granted& granted);

 private:
  void set_remote_qpn(const Endpoint& peer);

  // A message that a card at this end will only know by the number of its grant.
  struct NumberedMessage {
    uint64_t number = 0;  // 0: none is under way
    uint32_t tag = 0;
    uint32_t index = 0;
    uint32_t missing_parts = 0;
  };
  struct Peer {
    Endpoint grant_ring{};  // of a sender on a card; rkey 0: the sender is ours
    Endpoint landing{};     // of a receiver on a card
    std::vector<NumberedMessage> numbered;  // by number % its size; of a receiver on the card here
  };
  static constexpr Endpoint kOurs{};

  const EnginePlan& plan_;
  Connections& connections_;
  QueuePairs& queue_pairs_;
  OpRecords& records_;
  Failure& failure_;
  Carrier* carrier_ = nullptr;  // nullptr: queue pairs of ours over packets
  std::vector<Peer> peers_;     // by place of the connection; empty: there is no card
};

}  // namespace etloop
