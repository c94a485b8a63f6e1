#include "core/message_paths.h"

#include <algorithm>
#include <string>

#include "plan/planes.h"

namespace etloop {

void MessagePaths::load(size_t ranks) {
  counts_.resize(connections_.places());
  rank_links_.assign(ranks, {});
}

// On the wire a message is one request; its packets must be fewer than the PSNs that a queue pair can distinguish.
int64_t MessagePaths::most_message_bytes(int32_t connection) const {
  if (!connections_.on_wire(connection)) return kMaxMessageBytes;
  return std::min(kMaxMessageBytes, static_cast<int64_t>(kMostPacketsPerRequest) * plan_.transport.path_mtu_bytes);
}

bool MessagePaths::accepts(int32_t connection, uint32_t index, int64_t bytes) {
  const int64_t most_bytes = most_message_bytes(connection);
  if (index < kMaxMessagesPerLane && bytes <= most_bytes) return true;
  failure_.set(connection, connections_.text(connection) + ": an op has 2^23 messages or one of more than " +
                               std::to_string(most_bytes >> 20) + " MiB; lower scale.bytes" +
                               (most_bytes < kMaxMessageBytes ? " or raise transport.path_mtu" : ""));
  return false;
}

void MessagePaths::grant(const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now) {
  const int32_t connection = lane.recv_connection;
  if (network_ != nullptr) {
    network_->carry_grant(connection, lane.tag, index, now);
    return;
  }
  if (!connections_.on_wire(connection)) {
    grant_inside(lane, index, now);
    return;
  }
  ConnectionEnds& ends = connections_[connection];
  // Post the receive for the message before the sender learns of the grant.
  for (uint32_t part = connections_.parts_of(connection, false); ends.receives != nullptr && part > 0; --part) {
    ends.receives->post({buffer_address(lane.tag, index)});
  }
  // NCCL writes its clear-to-send on the first queue pair of the connection, against the direction of the data.
  const uint32_t qp = ends.recv_qps.front();
  WorkRequest request;
  request.kind = WorkKind::clear_to_send;
  request.bytes = kClearToSendBytes;
  request.grant_tag = lane.tag;
  request.grant_bytes = std::max(lane.slot_bytes, static_cast<uint32_t>(bytes));
  request.index = ++counts(connection).grants;
  if (cards_.place_grant(connection, qp, request, index)) post(qp, request, now);
}

void MessagePaths::grant_inside(const LaneRun& lane, uint32_t index, Nanos now) {
  const int32_t connection = lane.recv_connection;
  const bool scale_up = connections_.planned(connection).path == Path::scale_up;
  const Nanos due_ns = now + (scale_up ? plan_.scale_up_latency_ns : 0);
  if (const int32_t other_port = connections_[connection].other_port; other_port >= 0) {
    links_->post(other_port, {due_ns, 0, connection, lane.tag, index, ScaleUpKind::grant});
  } else {
    events_.push(due_ns, EventKind::local_grant, static_cast<uint32_t>(connection), lane.tag, index);
  }
}

void MessagePaths::send(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports, Nanos now) {
  // A grant inside the host takes effect at its due time, which may be before the issue of the op that it was given ahead of.
  now = std::max(now, records_[lane.op_run].issued_ns);
  const bool on_wire = connections_.on_wire(lane.send_connection);
  records_.note_sent(lane.op_run, bytes, on_wire);
  if (network_ != nullptr) {
    records_.note_departure(lane.op_run, now);
    send_whole(number, lane, index, bytes, reports, now);
  } else if (on_wire) {
    send_request(number, lane, index, bytes, reports, now);
  } else {
    records_.note_departure(lane.op_run, now);
    send_inside(number, lane, index, bytes, now);
  }
}

void MessagePaths::send_request(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports,
                                Nanos now) {
  const ConnectionEnds& ends = connections_[lane.send_connection];
  const Endpoint& card = cards_.landing(lane.send_connection);
  WorkRequest request;
  request.kind = lane.one_sided ? WorkKind::write : ends.is_sent ? WorkKind::send_imm : WorkKind::write_imm;
  request.lane = number;
  request.op = lane.op_run;
  request.index = index;
  request.reports_departure = reports;
  request.imm = static_cast<uint32_t>(bytes);
  const Trigger trigger = records_.trigger();
  request.trigger_ns = trigger.arrived_ns;
  request.queued_ns = trigger.queued_ns;
  request.turn = transmission_.next_turn();
  Grant target{buffer_address(lane.tag, index), ends.data_rkey, 0};
  if (!lane.one_sided) {
    target = lane.sending.grants[index % kMaxSlots];
    if (card.rkey != 0) request.imm = target.number;  // a card does not report the address of a message
  } else if (card.rkey != 0) {
    target = {card.va, card.rkey, 0};
  }
  request.rkey = target.rkey;
  const uint32_t parts = connections_.parts_of(lane.send_connection, lane.one_sided);
  for (uint32_t part = 0; part < parts; ++part) {
    const MessagePart piece = message_part(bytes, part, parts);
    uint32_t qp = ends.send_qps[part];
    if (lane.one_sided) {
      qp = ends.send_qps[lane.tag % ends.send_qps.size()];  // one queue pair per op: the closing message must arrive last
    } else if (parts == 1) {
      qp = ends.send_qps[counts(lane.send_connection).messages++ % ends.send_qps.size()];
    }
    request.bytes = parts == 1 ? static_cast<uint32_t>(bytes) : piece.bytes;
    request.va = target.va + (parts == 1 ? 0 : piece.offset);
    post(qp, request, now);
  }
}

void MessagePaths::close(uint32_t number, const LaneRun& lane, bool reports, Nanos now) {
  if (network_ != nullptr) {
    send_whole(number, lane, kClosingIndex, 0, reports, now);
    return;
  }
  const int32_t connection = lane.send_connection;
  if (!connections_.on_wire(connection)) {
    send_inside(number, lane, kClosingIndex, 0, now);
    return;
  }
  const ConnectionEnds& ends = connections_[connection];
  const Endpoint& card = cards_.landing(connection);
  const uint32_t qp = ends.send_qps[lane.tag % ends.send_qps.size()];
  WorkRequest request;
  request.kind = WorkKind::fetch_add;
  request.bytes = kAtomicOperandBytes;
  request.swap_add = ~static_cast<uint64_t>(lane.sending.written);  // -(n + 1)
  request.va = card.rkey != 0 ? card.closing_va + (lane.tag % kCardClosings) * kAtomicOperandBytes
                              : buffer_address(lane.tag, kClosingIndex);
  request.rkey = card.rkey != 0 ? card.rkey : ends.data_rkey;
  request.lane = number;
  request.op = lane.op_run;
  request.index = kClosingIndex;
  request.reports_departure = reports;
  post(qp, request, now);
}

void MessagePaths::send_inside(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, Nanos now) {
  const int32_t connection = lane.send_connection;
  const ConnectionEnds& ends = connections_[connection];
  const bool scale_up = connections_.planned(connection).path == Path::scale_up;
  LineClock& link = scale_up ? rank_links_[ends.src_index] : port_link_;
  const PlannedPort& port = plan_.ports[static_cast<size_t>(port_)];
  const int64_t link_bps = scale_up ? plan_.scale_up_bps : card_bps(plan_, port_) / port.queues;
  const Nanos free_ns = link_bps > 0 ? link.take(bytes, link_bps, now) : link.take(LineSpan{}, 1, now);
  const Nanos due_ns = free_ns + (scale_up ? plan_.scale_up_latency_ns : 0);
  events_.push(free_ns, EventKind::local_sent, number, index);
  const uint32_t marked_index = lane.one_sided ? index | kOneSidedMark : index;
  if (ends.other_port >= 0) {
    links_->post(ends.other_port, {due_ns, bytes, connection, lane.tag, marked_index, ScaleUpKind::arrival});
  } else {
    events_.push(due_ns, EventKind::local_arrival, static_cast<uint32_t>(connection), lane.tag, marked_index, bytes);
  }
}

// Use the same parts and queue pairs as `send_request`.
void MessagePaths::send_whole(uint32_t number, const LaneRun& lane, uint32_t index, int64_t bytes, bool reports,
                              Nanos now) {
  // Copy the lane's fields: deliveries during the call may open lanes, which moves this one.
  const int32_t connection = lane.send_connection;
  const bool one_sided = lane.one_sided;
  const uint32_t tag = lane.tag;
  const auto queue_pairs = static_cast<uint32_t>(connections_.planned(connection).qp_count);
  const uint32_t parts = connections_.parts_of(connection, one_sided);
  for (uint32_t part = 0; part < parts; ++part) {
    uint32_t queue_pair = part;
    if (queue_pairs == 0) {
      queue_pair = 0;
    } else if (one_sided) {
      queue_pair = tag % queue_pairs;
    } else if (parts == 1) {
      queue_pair = counts(connection).messages++ % queue_pairs;
    }
    const int64_t part_bytes = parts == 1 ? bytes : message_part(bytes, part, parts).bytes;
    network_->carry({part_bytes, bytes, connection, number, tag, index, one_sided, reports}, queue_pair, now);
  }
}

}  // namespace etloop
