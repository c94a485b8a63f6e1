// Sends the grants, messages and closing messages of lanes: as requests of queue pairs (the engine's or a card's), inside the
// host through the link models, or whole through a network without packets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/line_clock.h"
#include "base/time.h"
#include "core/card_ends.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/message.h"
#include "core/message_carrier.h"
#include "core/op_records.h"
#include "core/packets/transmission.h"
#include "core/request_sink.h"
#include "core/scale_up.h"
#include "plan/plan.h"
#include "qp/work.h"

namespace etloop {

// How the departure of messages of a connection is known: not apart from their acknowledgement, by reports, or as soon as they
// are posted, because a card reports none.
enum class Departures : uint8_t { unreported, reported, at_once };

class MessagePaths {
 public:
  // Collaborators; all of them outlive this.
  struct Parts {
    const EnginePlan& plan;
    int32_t port;
    Connections& connections;
    Transmission& transmission;
    CardEnds& cards;
    EventHeap& events;
    OpRecords& records;
    Failure& failure;
  };
  explicit MessagePaths(const Parts& parts)
      : plan_(parts.plan),
        port_(parts.port),
        connections_(parts.connections),
        transmission_(parts.transmission),
        cards_(parts.cards),
        events_(parts.events),
        records_(parts.records),
        failure_(parts.failure) {}

  // Call after the connections are loaded; `ranks`: number of local ranks.
  void load(size_t ranks);
  // Set the links to ranks of the same host on other ports; outlives this.
  void set_links(ScaleUpLinks& links) { links_ = &links; }
  // Set the transport that carries requests instead of RoCEv2; outlives this.
  void set_requests(RequestSink& requests) { requests_ = &requests; }
  // Set the queue pairs of local ranks that other queues of the port carry; outlives this.
  void set_far(FarEnds& far) { far_ = &far; }
  // Set the network that carries every message instead of queue pairs and host links; outlives this.
  void set_network(MessageCarrier& network) { network_ = &network; }

  // Whether an op may have a message of this index and size on a connection. False: the run has failed.
  bool accepts(int32_t connection, uint32_t index, int64_t bytes);
  // Grant message `index` of a receiving lane. The lane, and others, may advance during the call.
  void grant(const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  Departures departures(int32_t connection) const {
    if (network_ != nullptr) return Departures::reported;
    if (!connections_.on_wire(connection)) return Departures::unreported;
    return cards_.attached() ? Departures::at_once : Departures::reported;
  }
  // Send message `index` of lane `number`. `reports`: its departure is reported, see `departures`.
  void send(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports, Nanos now);
  // Announce that a one-sided lane has sent everything: DeepEP's atomic add of -(messages + 1), after the last message.
  void close(uint32_t number, const LaneRun& lane, bool reports, Nanos now);
  // Prepare for the closing message of a one-sided lane: a card reports it only on request.
  void expect_closing(int32_t connection, uint32_t tag) {
    if (cards_.attached() && connections_.on_wire(connection)) cards_.watch(connection, tag);
  }

  // Bit of the message index of an arrival inside the host: the lane is one-sided.
  static constexpr uint32_t kOneSidedMark = 1U << 31;

 private:
  // Counters of a connection.
  struct Counts {
    uint32_t messages = 0;  // sent, except one-sided ones
    uint64_t grants = 0;
  };

  void grant_inside(const LaneRun& lane, uint32_t index, Nanos now);
  void send_inside(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  void send_request(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports, Nanos now);
  void send_whole(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports, Nanos now);
  void post(uint32_t qp, const WorkRequest& request, Nanos now) {
    if (FarEnds::is_far(qp)) {
      far_->post(qp, request);
    } else if (cards_.attached()) {
      cards_.post(qp, request, now);
    } else if (requests_ != nullptr) {
      requests_->post(qp, request);
    } else {
      transmission_.post(qp, request);
    }
  }
  int64_t most_message_bytes(int32_t connection) const;
  Counts& counts(int32_t connection) { return counts_[connections_.place(connection)]; }

  const EnginePlan& plan_;
  int32_t port_;
  Connections& connections_;
  Transmission& transmission_;
  CardEnds& cards_;
  EventHeap& events_;
  OpRecords& records_;
  Failure& failure_;
  ScaleUpLinks* links_ = nullptr;
  FarEnds* far_ = nullptr;            // nullptr: none
  RequestSink* requests_ = nullptr;   // nullptr: RoCEv2 or a card
  MessageCarrier* network_ = nullptr;  // nullptr: messages become packets or stay in the host
  std::vector<Counts> counts_;         // by place of the connection
  std::vector<LineClock> rank_links_;  // each local rank's link in the scale-up model
  LineClock port_link_;                // the port's link, used by hairpins
};

}  // namespace etloop
