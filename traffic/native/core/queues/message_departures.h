// Records the departure of a message's first packet: the turnaround, and the op's first transmission, reported to the op's queue
// if that is another.
#pragma once

#include "base/time.h"
#include "core/op_records.h"
#include "core/packets/queue_pairs.h"
#include "core/queues/queue_links.h"

namespace etloop {

class MessageDepartures {
 public:
  explicit MessageDepartures(OpRecords& records) : records_(records) {}
  void join(QueueLinks& links) { links_ = &links; }

  void note(const QpPlace& place, const WorkRequest& begun, Nanos leaves_ns) {
    records_.note_turnaround(begun.trigger_ns, leaves_ns);
    if (place.home < 0) return records_.note_departure(begun.op, leaves_ns);
    carried_tx_bytes_ += begun.bytes;
    links_->post(place.home,
                 QueueReport{QueueReportKind::departed, place.connection, begun.op, 0, 0, 0, {}, leaves_ns});
  }
  void note_part(TurnaroundPart part, Nanos duration_ns) { records_.note_part(part, duration_ns); }
  int64_t carried_tx_bytes() const { return carried_tx_bytes_; }

 private:
  OpRecords& records_;
  QueueLinks* links_ = nullptr;
  int64_t carried_tx_bytes_ = 0;  // for ranks on other queues
};

}  // namespace etloop
