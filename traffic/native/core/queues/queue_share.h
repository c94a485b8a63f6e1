// What a core has to do with the other queues of its port: it carries queue pairs for their ranks, and they carry some for the
// ranks here. Nothing of it is there on a port that is one queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/connections.h"
#include "core/message_paths.h"
#include "core/packets/packet_arrivals.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmission.h"
#include "core/queues/home_lanes.h"
#include "core/queues/message_departures.h"
#include "core/queues/queue_links.h"
#include "core/queues/stray_datagrams.h"
#include "core/request_sink.h"
#include "plan/plan.h"
#include "plan/records.h"

namespace etloop {

class QueueShare {
 public:
  // What it works with; all of it outlives it.
  struct Parts {
    const EnginePlan& plan;
    int32_t port;
    const Connections& connections;
    QueuePairs& queue_pairs;
    Transmission& transmission;
    MessageDepartures& departures;
    HomeLanes& lanes;
    MessagePaths& paths;
    PacketArrivals& packets;
  };
  explicit QueueShare(const Parts& parts) : parts_(parts) {}

  // Before the start. `requests` carries the messages of queue pairs instead of RoCEv2; nullptr: nothing does.
  void join(QueueLinks& links, RequestSink* requests);
  // Another queue hands something over.
  void take(const QueueMessage& message);
  // The ranks here have finished, which queues that carry for them are told once.
  void note_finished() {
    if (owes_over_) report_over();
  }
  // Whether the ranks of other queues whose queue pairs are here have.
  bool others_finished() const { return homes_over_ == parts_.connections.homes(); }
  // How far queue pairs of other queues' ranks are, as rows that `settle_waits` reads.
  void add_waits(std::vector<WaitRecord>& out) const;

  // Datagrams of other queues, which were handed over to them.
  int64_t misdirected() const { return strays_ == nullptr ? 0 : strays_->passed(); }
  // Data that this core sent or received for ranks of other queues, less what these did for its own.
  int64_t carried_tx_bytes() const { return parts_.departures.carried_tx_bytes() - parts_.queue_pairs.far().given_tx_bytes(); }
  int64_t carried_rx_bytes() const { return parts_.lanes.carried_rx_bytes(); }

 private:
  void post(const QueueRequest& posted);
  void report_over();

  Parts parts_;
  RequestSink* requests_ = nullptr;
  std::unique_ptr<StrayDatagrams> strays_;  // nullptr: the port is one queue
  size_t homes_over_ = 0;                   // of other queues
  bool owes_over_ = false;                  // to queues that carry for the ranks here
};

}  // namespace etloop
