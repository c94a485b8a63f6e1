// Messages: grants, data and acknowledgements of lanes, over queue pairs or inside the host.
#include <algorithm>
#include <cassert>

#include "core/core.h"

namespace etloop {

namespace {

Nanos transfer_ns(int64_t bytes, int64_t link_bps) {
  if (link_bps <= 0) return 0;
  const auto bits_ns = static_cast<__int128>(bytes) * 8 * 1'000'000'000;
  return static_cast<Nanos>((bits_ns + link_bps - 1) / link_bps);  // rounded up: never faster than the link
}

}  // namespace

// Lets a lane do all it can, and with it every lane that it releases.
void Core::pump(uint32_t lane, Nanos now) {
  queue_lane(lane);
  move_lanes(now);
}

// Works off the lanes that may be able to move, those that this releases included. Within itself it only queues.
void Core::move_lanes(Nanos now) {
  if (is_moving_) return;
  is_moving_ = true;
  for (size_t next = 0; next < moving_.size(); ++next) {
    lanes_[moving_[next]].queued = false;
    if (lanes_[moving_[next]].in_use) move_lane(moving_[next], now);
  }
  moving_.clear();
  is_moving_ = false;
}

void Core::queue_lane(uint32_t lane) {
  if (lanes_[lane].queued) return;
  lanes_[lane].queued = true;
  moving_.push_back(lane);
}

void Core::move_lane(uint32_t lane, Nanos now) {
  bool executed = false;
  while (lanes_[lane].may_execute() && released(lanes_[lane])) {
    lanes_[lane].execute();
    executed = true;
  }
  while (may_grant(lanes_[lane])) send_grant(lane, now);
  while (lanes_[lane].may_post()) send_message(lane, now);
  if (lanes_[lane].may_close()) send_closing(lane, now);
  if (executed) wake_dependents(lanes_[lane].op_run, lanes_[lane].number);
  if (lanes_[lane].over()) lane_over(lane, now);
}

// Whether the other lane that the next entry waits for is far enough; requires that there is a next entry.
bool Core::released(const LaneRun& lane) const {
  const LaneStep step = lane.execution.step();
  if (step.after_lane < 0) return true;
  const uint32_t other = runs_[lane.op_run].lane_runs[static_cast<size_t>(step.after_lane)];
  if (other == kLaneOver) return true;
  if (other == kNone || step.after_entry < 0) return false;
  const LaneCursor& execution = lanes_[other].execution;
  return execution.done() || execution.taken() > execution.step_number(step.loop, step.after_entry, step.slice);
}

// Whether the next message may be granted; one that comes in its turn not before its entry is what the lane stands at.
bool Core::may_grant(const LaneRun& lane) const {
  if (!lane.may_grant()) return false;
  if ((lane.granting.step().kind & kEntryInTurn) == 0) return true;
  return lane.granting.taken() == lane.execution.taken() && released(lane);
}

void Core::wake_dependents(uint32_t run, int32_t lane_number) {
  if (runs_[run].lane_runs.empty()) return;
  const ScheduleSet& set = plan_.schedules;
  const auto row = static_cast<size_t>(runs_[run].first_lane + lane_number);
  for (int32_t d = set.dependent_offsets[row]; d < set.dependent_offsets[row + 1]; ++d) {
    const uint32_t lane = runs_[run].lane_runs[static_cast<size_t>(set.dependents[static_cast<size_t>(d)])];
    if (lane < kLaneOver) queue_lane(lane);
  }
}

// In how many parts the messages of a connection travel.
uint32_t Core::parts_of(int32_t connection, bool one_sided) const {
  const PlannedConnection& c = plan_.connections[static_cast<size_t>(connection)];
  const bool split = plan_.transport.split_data_on_qps && !one_sided && c.path == Path::wire;
  return split ? static_cast<uint32_t>(c.qp_count) : 1;
}

// On the wire one message is one request, whose packets are fewer than the sequence numbers that a queue pair tells apart.
int64_t Core::most_message_bytes(int32_t connection) const {
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) return kMaxMessageBytes;
  return std::min(kMaxMessageBytes, static_cast<int64_t>(kMostPacketsPerRequest) * plan_.transport.path_mtu);
}

void Core::refuse_size(int32_t connection) {
  fail(connection, connection_text(connection) + ": an op has 2^23 messages or one of more than " +
                       std::to_string(most_message_bytes(connection) >> 20) + " MiB; lower scale.bytes" +
                       (most_message_bytes(connection) < kMaxMessageBytes ? " or raise transport.path_mtu" : ""));
}

void Core::send_grant(uint32_t lane, Nanos now) {
  LaneRun& granting = lanes_[lane];
  int64_t bytes = 0;
  const uint32_t index = granting.grant(bytes);
  const int32_t connection = granting.recv_connection;
  if (index >= kMaxMessagesPerLane || bytes > most_message_bytes(connection)) {
    refuse_size(connection);
    return;
  }
  if (network_ != nullptr) {
    network_->carry_grant(connection, granting.tag, index, now);
    return;
  }
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) {
    const bool scale_up = plan_.connections[static_cast<size_t>(connection)].path == Path::scale_up;
    const Nanos latency = scale_up ? plan_.scale_up_latency_ns : 0;
    if (ends.other_port >= 0) {
      links_->post(ends.other_port, {now + latency, 0, connection, granting.tag, index, ScaleUpKind::grant});
    } else {
      events_.push(now + latency, EventKind::local_grant, static_cast<uint32_t>(connection), granting.tag, index);
    }
    return;
  }
  // The receive that the message takes is there before the sender hears of it.
  for (uint32_t part = parts_of(connection, false); ends.receives != nullptr && part > 0; --part) ends.receives->post({});
  // NCCL writes its clear-to-send on the first queue pair of the connection, against the direction of the data.
  const uint32_t qp = ends.recv_qps.front();
  WorkRequest request;
  request.kind = WorkKind::clear_to_send;
  request.bytes = kClearToSendBytes;
  request.grant_tag = granting.tag;
  request.grant_bytes = std::max(granting.slot_bytes, static_cast<uint32_t>(bytes));
  request.index = ++ends.grants;
  if (place_grant(qp, ends, request, index)) post(qp, request, now);
}

void Core::send_message(uint32_t lane, Nanos now) {
  LaneRun& sending = lanes_[lane];
  const int32_t connection = sending.send_connection;
  int64_t bytes = 0;
  const uint32_t index = sending.post(bytes, parts_of(connection, sending.one_sided));
  if (index >= kMaxMessagesPerLane || bytes > most_message_bytes(connection)) {
    refuse_size(connection);
    return;
  }
  if (sending.one_sided && bytes == 0) {
    sending.acknowledge(index);  // nothing to write; the closing message says the rest
    return;
  }
  ++sending.written;
  OpRecord& record = runs_[sending.op_run].record;
  ++record.tx_messages;
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) {
    record.local_tx_bytes += bytes;
    if (network_ != nullptr) {
      carry_message(lane, index, bytes, now);
      return;
    }
    if (record.first_tx_ns == 0) record.first_tx_ns = now;
    send_local(lane, index, bytes, now);
    return;
  }
  record.wire_tx_bytes += bytes;
  status_.wire_tx_bytes += bytes;
  if (network_ != nullptr) {
    carry_message(lane, index, bytes, now);
  } else {
    post_message(lane, index, bytes, now);
  }
}

void Core::post_message(uint32_t lane, uint32_t index, int64_t bytes, Nanos now) {
  const LaneRun& sending = lanes_[lane];
  ConnectionEnds& ends = ends_[static_cast<size_t>(sending.send_connection)];
  WorkRequest request;
  request.kind = sending.one_sided ? WorkKind::write : WorkKind::write_imm;
  request.lane = lane;
  request.index = index;
  request.imm = static_cast<uint32_t>(bytes);
  request.trigger_ns = trigger_ns_;
  Grant target{buffer_address(sending.tag, index), ends.data_rkey, 0};
  if (!sending.one_sided) {
    target = sending.grants[index % kMaxSlots];
    if (ends.landing.rkey != 0) request.imm = target.number;  // a card does not say where a message went
  } else if (ends.landing.rkey != 0) {
    target = {ends.landing.va, ends.landing.rkey, 0};
  }
  request.rkey = target.rkey;
  const uint32_t parts = parts_of(sending.send_connection, sending.one_sided);
  for (uint32_t part = 0; part < parts; ++part) {
    const MessagePart piece = message_part(bytes, part, parts);
    uint32_t qp = ends.send_qps[part];
    if (sending.one_sided) {
      qp = ends.send_qps[sending.tag % ends.send_qps.size()];  // one for all of an op: the closing one must come last
    } else if (parts == 1) {
      qp = ends.send_qps[ends.next_message++ % ends.send_qps.size()];
    }
    request.bytes = parts == 1 ? static_cast<uint32_t>(bytes) : piece.bytes;
    request.va = target.va + (parts == 1 ? 0 : piece.offset);
    post(qp, request, now);
  }
}

// Says that a one-sided lane has sent all: DeepEP's atomic of minus the number of messages and one more, behind the last.
void Core::send_closing(uint32_t lane, Nanos now) {
  LaneRun& sending = lanes_[lane];
  sending.closing_out = LaneRun::Closing::posted;
  if (network_ != nullptr) {
    carry_message(lane, kClosingIndex, 0, now);
    return;
  }
  const int32_t connection = sending.send_connection;
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) {
    send_local(lane, kClosingIndex, 0, now);
    return;
  }
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const uint32_t qp = ends.send_qps[sending.tag % ends.send_qps.size()];
  WorkRequest request;
  request.kind = WorkKind::fetch_add;
  request.bytes = kAtomicOperandBytes;
  request.swap_add = ~static_cast<uint64_t>(sending.written);  // -(n + 1)
  const bool card = ends.landing.rkey != 0;
  request.va = card ? ends.landing.closing_va + (sending.tag % kCardClosings) * kAtomicOperandBytes
                    : buffer_address(sending.tag, kClosingIndex);
  request.rkey = card ? ends.landing.rkey : ends.data_rkey;
  request.lane = lane;
  request.index = kClosingIndex;
  post(qp, request, now);
}

void Core::post(uint32_t qp, const WorkRequest& request, Nanos now) {
  if (carrier_ != nullptr) {
    post_carried(qp, request, now);
    return;
  }
  qps_[qp].post(request);
  queue_transmit(qp);
}

void Core::send_local(uint32_t lane, uint32_t index, int64_t bytes, Nanos now) {
  const LaneRun& sending = lanes_[lane];
  const auto connection = static_cast<size_t>(sending.send_connection);
  const bool scale_up = plan_.connections[connection].path == Path::scale_up;
  Nanos& free_ns = scale_up ? ranks_[ends_[connection].src_index].egress_free_ns : port_free_ns_;
  const PlannedPort& port = plan_.ports[static_cast<size_t>(port_)];
  const int64_t link_bps = scale_up ? plan_.scale_up_bps : port.link_bps / port.queues;
  free_ns = std::max(free_ns, now) + transfer_ns(bytes, link_bps);
  const Nanos latency = scale_up ? plan_.scale_up_latency_ns : 0;
  events_.push(free_ns, EventKind::local_sent, lane, index);
  const uint32_t named = sending.one_sided ? index | kOneSidedMark : index;
  if (ends_[connection].other_port >= 0) {
    links_->post(ends_[connection].other_port,
                 {free_ns + latency, bytes, sending.send_connection, sending.tag, named, ScaleUpKind::arrival});
  } else {
    events_.push(free_ns + latency, EventKind::local_arrival, static_cast<uint32_t>(connection), sending.tag, named, bytes);
  }
}

void Core::on_scale_up(const ScaleUpMessage& message) {
  const auto connection = static_cast<uint32_t>(message.connection);
  switch (message.kind) {
    case ScaleUpKind::grant:
      events_.push(message.due_ns, EventKind::local_grant, connection, message.tag, message.index);
      break;
    case ScaleUpKind::arrival:
      events_.push(message.due_ns, EventKind::local_arrival, connection, message.tag, message.index, message.bytes);
      break;
  }
}

void Core::grant_arrived(int32_t connection, uint32_t tag, const Grant& grant, Nanos now) {
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const uint32_t lane = ends.sending.find(tag);
  if (lane == ActiveLanes::kNone) {
    if (!ends.early.add(tag, grant)) {
      fail(connection, connection_text(connection) + ": too many messages are granted ahead");
    }
    return;
  }
  LaneRun& sending = lanes_[lane];
  if (sending.one_sided || sending.credits - sending.posted >= kMaxSlots) {
    refuse_grant(connection, tag);
    return;
  }
  sending.credit(grant);
  pump(lane, now);
}

void Core::refuse_grant(int32_t connection, uint32_t tag) {
  fail(connection,
       connection_text(connection) + ": more messages of op #" + std::to_string(tag) + " are granted than it has slots");
}

void Core::refuse_message(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, LaneRun::Arrival arrival) {
  const char* what = arrival == LaneRun::Arrival::not_granted ? "was never granted"
                     : arrival == LaneRun::Arrival::repeated  ? "had already arrived"
                                                              : "has another size than the schedule says";
  fail(connection, connection_text(connection) + ": message " + std::to_string(index) + " of op #" + std::to_string(tag) +
                       " (" + std::to_string(bytes) + " bytes) " + what);
}

void Core::count_arrival(uint32_t lane, int64_t part_bytes, bool message_complete, bool on_wire, Nanos now) {
  OpRecord& record = runs_[lanes_[lane].op_run].record;
  record.rx_messages += message_complete ? 1 : 0;
  if (on_wire) {
    record.wire_rx_bytes += part_bytes;
    status_.wire_rx_bytes += part_bytes;
  } else {
    record.local_rx_bytes += part_bytes;
  }
  note_progress(runs_[lanes_[lane].op_run].rank_index, now);
  trigger_ns_ = now;
  pump(lane, now);
  trigger_ns_ = 0;
}

void Core::message_arrived(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, int64_t part_bytes, bool on_wire,
                           Nanos now) {
  const uint32_t lane = ends_[static_cast<size_t>(connection)].receiving.find(tag);
  const auto arrival = lane == ActiveLanes::kNone ? LaneRun::Arrival::not_granted : lanes_[lane].arrive(index, bytes);
  if (arrival != LaneRun::Arrival::accepted) {
    refuse_message(connection, tag, index, bytes, arrival);
    return;
  }
  count_arrival(lane, part_bytes, lanes_[lane].missing_parts[index % kMaxSlots] == 0, on_wire, now);
}

void Core::one_sided_arrived(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, bool on_wire, Nanos now) {
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const uint32_t lane = ends.receiving.find(tag);
  const bool closing = index == kClosingIndex;
  if (lane == ActiveLanes::kNone) {
    if (ends.early_arrivals.add(tag, bytes, closing)) return;
    fail(connection, connection_text(connection) + ": too much was written ahead of the ops it belongs to");
    return;
  }
  const auto arrival = closing ? lanes_[lane].close() : lanes_[lane].arrive_next(bytes);
  if (arrival != LaneRun::Arrival::accepted) {
    refuse_message(connection, tag, index, bytes, arrival);
    return;
  }
  count_arrival(lane, closing ? 0 : bytes, !closing, on_wire, now);
}

void Core::message_acknowledged(uint32_t lane, uint32_t index, Nanos now) {
  assert(lanes_[lane].in_use);
  if (index == kClosingIndex) {
    lanes_[lane].closing_out = LaneRun::Closing::over;
  } else {
    lanes_[lane].acknowledge(index);
  }
  note_progress(runs_[lanes_[lane].op_run].rank_index, now);
  pump(lane, now);
}

}  // namespace etloop
