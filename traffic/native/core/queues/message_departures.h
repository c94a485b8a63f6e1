// Records the departures of a message's first packet (the turnaround, and the op's first transmission) and of its last one, which
// an op may wait for. They are reported to the op's queue if that is another.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "core/op_records.h"
#include "core/packets/queue_pairs.h"
#include "core/queues/queue_links.h"

namespace etloop {

class MessageDepartures {
 public:
  explicit MessageDepartures(OpRecords& records) : records_(records) {}
  void join(QueueLinks& links) { links_ = &links; }

  // The last packet of a message of a lane has left, or leaves at `leaves_ns`.
  struct Left {
    uint32_t lane;
    uint32_t index;
    Nanos leaves_ns;
  };

  void note(const QpPlace& place, const SentRequest& sent, Nanos leaves_ns) {
    if (sent.begun != nullptr && carries_data(sent.begun->kind)) note_begun(place, *sent.begun, leaves_ns);
    if (sent.left != nullptr && sent.left->reports_departure) note_left(place, *sent.left, leaves_ns);
  }
  // The first packet of a message has left.
  void note_begun(const QpPlace& place, const WorkRequest& begun, Nanos leaves_ns) {
    records_.note_turnaround(begun.trigger_ns, leaves_ns);
    if (place.home < 0) return records_.note_departure(begun.op, leaves_ns);
    carried_tx_bytes_ += begun.bytes;
    links_->post(place.home,
                 QueueReport{QueueReportKind::departed, place.connection, begun.op, 0, 0, 0, {}, leaves_ns});
  }
  // The last packet of a message whose departure an op waits for has left.
  void note_left(const QpPlace& place, const WorkRequest& request, Nanos leaves_ns) {
    const auto index = static_cast<uint32_t>(request.index);
    if (place.home < 0) {
      left_.push_back({request.lane, index, leaves_ns});
    } else {
      links_->post(place.home, QueueReport{QueueReportKind::left, place.connection, request.lane, index, 0, 0, {}, leaves_ns});
    }
  }
  void note_part(TurnaroundPart part, Nanos duration_ns) { records_.note_part(part, duration_ns); }
  // Departures that the lanes have not been notified of. The owner clears them.
  std::vector<Left>& left() { return left_; }
  int64_t carried_tx_bytes() const { return carried_tx_bytes_; }

 private:
  OpRecords& records_;
  QueueLinks* links_ = nullptr;
  int64_t carried_tx_bytes_ = 0;  // for ranks on other queues
  std::vector<Left> left_;
};

}  // namespace etloop
