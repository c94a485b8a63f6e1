// How what a lane sends travels - grants, messages, and what closes a one-sided lane: as requests of queue pairs, ours or a
// card's, inside the host by the models of its links, or whole through a network that makes no packets.
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

class MessagePaths {
 public:
  // What it works with; all of it outlives it.
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

  // Once the connections are known: `ranks` are here.
  void load(size_t ranks);
  // The way to ranks of the same host on other ports; outlives this.
  void set_links(ScaleUpLinks& links) { links_ = &links; }
  // Carries the messages of queue pairs instead of RoCEv2; outlives this.
  void set_requests(RequestSink& requests) { requests_ = &requests; }
  // Has the queue pairs of ranks here that other queues of the port carry; outlives this.
  void set_far(FarEnds& far) { far_ = &far; }
  // Takes every message instead of queue pairs and the host; outlives this.
  void set_network(MessageCarrier& network) { network_ = &network; }

  // Whether an op may have a message of this index and size on a connection. False: the run has failed.
  bool accepts(int32_t connection, uint32_t index, int64_t bytes);
  // Grants message `index` of a lane that receives. During the call the lane, and others, may come to move.
  void grant(const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  // Sends message `index` of the lane of this number.
  void send(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  // Says that a one-sided lane has sent all: DeepEP's atomic of minus the number of messages and one more, behind the last.
  void close(uint32_t number, const LaneRun& lane, Nanos now);
  // A one-sided lane waits for what closes it, which a card tells only when it was asked to.
  void expect_closing(int32_t connection, uint32_t tag) {
    if (cards_.attached() && connections_.on_wire(connection)) cards_.watch(connection, tag);
  }

  // The message index that an arrival inside the host brings, and whether it is of a one-sided lane.
  static constexpr uint32_t kOneSidedMark = 1U << 31;

 private:
  // Of a connection.
  struct Counts {
    uint32_t messages = 0;  // sent, not one-sided
    uint64_t grants = 0;
  };

  void grant_inside(const LaneRun& lane, uint32_t index, Nanos now);
  void send_inside(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  void send_request(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
  void send_whole(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now);
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
  FarEnds* far_ = nullptr;            // nullptr: there is none
  RequestSink* requests_ = nullptr;   // nullptr: queue pairs of RoCEv2 or a card's
  MessageCarrier* network_ = nullptr;  // nullptr: messages become packets, or stay in the host
  std::vector<Counts> counts_;         // by place of the connection
  std::vector<LineClock> rank_links_;  // a rank's side of the scale-up model, by local rank
  LineClock port_link_;                // the link of the port, which hairpins take
};

}  // namespace etloop
