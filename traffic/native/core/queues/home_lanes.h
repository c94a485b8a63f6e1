// Routes what queue pairs report per message to the lanes of its rank: directly, or to the queue that is the rank's home. Packets
// are never forwarded here.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "core/lanes.h"
#include "core/op_records.h"
#include "core/packets/queue_pairs.h"
#include "core/queues/queue_links.h"

namespace etloop {

class HomeLanes {
 public:
  // `lanes` and `records` of the local ranks.
  HomeLanes(Lanes& lanes, OpRecords& records) : lanes_(lanes), records_(records) {}
  void join(QueueLinks& links) { links_ = &links; }

  void on_grant(const QpPlace& place, uint32_t tag, const Grant& grant, Nanos now) {
    if (place.home < 0) return lanes_.on_grant(place.connection, tag, grant, now);
    report(place, {QueueReportKind::grant, place.connection, tag, 0, 0, 0, grant, now});
  }
  void on_message(const QpPlace& place, const ArrivedMessage& message, Nanos now) {
    if (place.home < 0) return lanes_.on_message(message, now);
    carried_rx_bytes_ += message.part_bytes;
    report(place, {QueueReportKind::message, message.connection, message.tag, message.index, message.bytes, message.part_bytes,
                   {}, now});
  }
  // See `Lanes::may_go_unanswered`; none if the lane is on another queue.
  HeldAnswers may_go_unanswered(const QpPlace& place, uint32_t tag) const {
    return place.home < 0 ? lanes_.may_go_unanswered(place.connection, tag) : HeldAnswers{};
  }
  void on_one_sided(const QpPlace& place, uint32_t tag, uint32_t index, int64_t bytes, Nanos now) {
    if (place.home < 0) return lanes_.on_one_sided(place.connection, tag, index, bytes, now);
    carried_rx_bytes_ += bytes;
    report(place, {QueueReportKind::one_sided, place.connection, tag, index, bytes, bytes, {}, now});
  }
  void on_acknowledged(const QpPlace& place, const WorkRequest& done, Nanos now) {
    const auto index = static_cast<uint32_t>(done.index);
    if (place.home < 0) return lanes_.on_acknowledged(done.lane, index, now);
    report(place, {QueueReportKind::acknowledged, place.connection, done.lane, index, 0, 0, {}, now});
  }
  // Handle the report of a local rank's queue pair on another queue.
  void take(const QueueReport& report);
  // Bytes received here for ranks of other queues, less bytes received by other queues for local ranks.
  int64_t carried_rx_bytes() const { return carried_rx_bytes_; }

 private:
  void report(const QpPlace& place, const QueueReport& report) { links_->post(place.home, report); }

  Lanes& lanes_;
  OpRecords& records_;
  QueueLinks* links_ = nullptr;
  int64_t carried_rx_bytes_ = 0;
};

}  // namespace etloop
