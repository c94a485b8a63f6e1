#include "core/queues/queue_share.h"

#include <cassert>
#include <variant>

#include "core/queues/settle_waits.h"
#include "plan/queue_deal.h"

namespace etloop {

void QueueShare::join(QueueLinks& links, RequestSink* requests) {
  if (!is_dealt(parts_.plan.ports[static_cast<size_t>(parts_.port)])) return;
  requests_ = requests;
  parts_.queue_pairs.far().join(links);
  parts_.departures.join(links);
  parts_.lanes.join(links);
  parts_.paths.set_far(parts_.queue_pairs.far());
  strays_ = std::make_unique<StrayDatagrams>(parts_.plan, parts_.port, links);
  parts_.packets.set_strays(strays_.get());
  owes_over_ = !parts_.queue_pairs.far().empty();
}

void QueueShare::take(const QueueMessage& message) {
  if (const auto* request = std::get_if<QueueRequest>(&message)) {
    post(*request);
  } else if (const auto* report = std::get_if<QueueReport>(&message)) {
    parts_.lanes.take(*report);
  } else {
    ++finished_homes_;
  }
}

// Post a request for a rank of another queue.
void QueueShare::post(const QueueRequest& posted) {
  const uint32_t index = parts_.queue_pairs.find(posted.qpn);
  assert(index != QueuePairs::kNone);
  if (posted.request.kind == WorkKind::clear_to_send) {
    // Post the receive for the message before the sender learns of the grant.
    const int32_t connection = parts_.queue_pairs.place(index).connection;
    ReceiveQueue* receives = parts_.connections[connection].receives.get();
    for (uint32_t part = parts_.connections.parts_of(connection, false); receives != nullptr && part > 0; --part) {
      receives->post({});
    }
  }
  if (requests_ != nullptr) requests_->post(index, posted.request);
  else parts_.transmission.post(index, posted.request);
}

void QueueShare::report_over() {
  owes_over_ = false;
  parts_.queue_pairs.far().report_over();
}

void QueueShare::add_waits(std::vector<WaitRecord>& out) const {
  for (uint32_t i = 0; parts_.connections.homes() > 0 && i < parts_.queue_pairs.size(); ++i) {
    const QpPlace& place = parts_.queue_pairs.place(i);
    const Qp& qp = parts_.queue_pairs[i];
    if (place.home < 0 || !place.sends_data || qp.deadline() == kNever) continue;
    out.push_back({kNoRank, -1, -1, WaitKind::acknowledgement, -1, -1, place.connection, 0, 0, qp.oldest_unacknowledged()});
  }
}

}  // namespace etloop
