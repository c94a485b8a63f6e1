#include "core/carrier_arrivals.h"

namespace etloop {

void CarrierArrivals::on_grant(uint32_t end, const ClearToSend& grant, Nanos now) {
  if (!failure_.none()) return;
  const Grant target{grant.va, grant.rkey, static_cast<uint32_t>(grant.number)};
  lanes_.on_grant(queue_pairs_.place(end).connection, grant.tag, target, now);
}

void CarrierArrivals::on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) {
  if (!failure_.none()) return;
  CardEnds::Granted granted;
  if (!cards_.take_granted(end, number, bytes, granted)) return;
  const QpPlace& place = queue_pairs_.place(end);
  const uint32_t parts = connections_.parts_of(place.connection, false);
  int64_t whole = bytes;
  if (parts > 1) {
    // The card reports the bytes of one part; if that part has the expected size, the whole message has.
    const int64_t expected = lanes_.granted_bytes(place.connection, granted.tag, granted.index);
    if (expected >= 0 && message_part(expected, place.ordinal, parts).bytes == bytes) whole = expected;
  }
  lanes_.on_message({place.connection, granted.tag, granted.index, whole, bytes}, now);
}

void CarrierArrivals::on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) {
  if (!failure_.none()) return;
  const int32_t connection = queue_pairs_.place(end).connection;
  const uint64_t messages = ~added;  // -(n + 1) was added
  const int64_t bytes = lanes_.on_unseen(connection, tag, messages, now);
  if (bytes < 0) return;
  const std::vector<uint32_t>& recv_qps = connections_[connection].recv_qps;
  FlowRecord& counters = queue_pairs_[recv_qps[tag % recv_qps.size()]].counters;
  counters.rx_messages += static_cast<int64_t>(messages);
  counters.rx_payload_bytes += bytes;
}

void CarrierArrivals::on_carried(uint32_t end, const WorkRequest& request, Nanos now) {
  if (!failure_.none() || request.kind == WorkKind::clear_to_send) return;
  if (request.kind == WorkKind::probe) {
    probing_.on_written(end, now);
  } else {
    lanes_.on_acknowledged(request.lane, static_cast<uint32_t>(request.index), now);
  }
}

void CarrierArrivals::on_carrier_fault(uint32_t end, const std::string& reason) {
  if (probing_.under_way()) {
    probing_.on_unreachable(end);
    return;
  }
  const int32_t connection = queue_pairs_.place(end).connection;
  failure_.set(connection, connections_.text(connection) + ": " + reason);
}

void CarrierArrivals::on_granted(int32_t connection, uint32_t tag, uint32_t index, Nanos now) {
  lanes_.on_grant(connection, tag, {buffer_address(tag, index), 0, 0}, now);
}

void CarrierArrivals::on_arrived(const CarriedMessage& message, Nanos now) {
  if (message.one_sided) {
    lanes_.on_one_sided(message.connection, message.tag, message.index, message.bytes, now);
  } else {
    lanes_.on_message({message.connection, message.tag, message.index, message.message_bytes, message.bytes}, now);
  }
}

void CarrierArrivals::on_left(const CarriedMessage& message, Nanos now) {
  if (message.reports_departure) lanes_.on_left(message.lane, message.index, now);
}

void CarrierArrivals::on_acknowledged(const CarriedMessage& message, Nanos now) {
  lanes_.on_acknowledged(message.lane, message.index, now);
}

}  // namespace etloop
