// A core's share of a multi-queue port: it carries queue pairs of other queues' ranks, and they carry some for the local ranks.
// Inactive on a port with one queue.
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
  // Collaborators; all of them outlive this.
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

  // Call before the start. `requests` carries the messages of queue pairs instead of RoCEv2; nullptr: RoCEv2 does.
  void join(QueueLinks& links, RequestSink* requests);
  // Handle a message from another queue.
  void take(const QueueMessage& message);
  // Note that the local ranks have finished; reported once to the queues that carry queue pairs for them.
  void note_finished() {
    if (owes_over_) report_over();
  }
  // Whether the ranks of other queues with queue pairs here have finished.
  bool others_finished() const { return finished_homes_ == parts_.connections.homes(); }
  // Append the progress of queue pairs of other queues' ranks, as rows for `settle_waits`.
  void add_waits(std::vector<WaitRecord>& out) const;

  // Datagrams for other queues that were passed on.
  int64_t misdirected() const { return strays_ == nullptr ? 0 : strays_->passed(); }
  // Bytes that this core sent or received for ranks of other queues, less those that other queues sent or received for its ranks.
  int64_t carried_tx_bytes() const { return parts_.departures.carried_tx_bytes() - parts_.queue_pairs.far().given_tx_bytes(); }
  int64_t carried_rx_bytes() const { return parts_.lanes.carried_rx_bytes(); }

 private:
  void post(const QueueRequest& posted);
  void report_over();

  Parts parts_;
  RequestSink* requests_ = nullptr;
  std::unique_ptr<StrayDatagrams> strays_;  // nullptr: the port has one queue
  size_t finished_homes_ = 0;                   // other queues that have finished
  bool owes_over_ = false;                  // must still report to queues that carry for the local ranks
};

}  // namespace etloop
