// Messages: grants, data and acknowledgements of lanes, over queue pairs or inside the host.
#include <algorithm>
#include <cassert>

#include "core.h"

namespace etloop {

namespace {

Nanos transfer_ns(int64_t bytes, int64_t link_bps) {
  if (link_bps <= 0) return 0;
  const auto bits_ns = static_cast<__int128>(bytes) * 8 * 1'000'000'000;
  return static_cast<Nanos>((bits_ns + link_bps - 1) / link_bps);  // rounded up: never faster than the link
}

}  // namespace

void Core::pump(uint32_t lane, Nanos now) {
  while (lanes_[lane].may_execute()) lanes_[lane].execute();
  while (lanes_[lane].may_grant()) send_grant(lane, now);
  while (lanes_[lane].may_post()) send_message(lane, now);
  if (lanes_[lane].over()) lane_over(lane, now);
}

void Core::send_grant(uint32_t lane, Nanos now) {
  LaneRun& granting = lanes_[lane];
  int64_t bytes = 0;
  const uint32_t index = granting.grant(bytes);
  const int32_t connection = granting.recv_connection;
  if (index >= kMaxMessagesPerLane) {
    fail(connection, "an op has more than 2^23 messages on one connection; lower scale.bytes");
    return;
  }
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) {
    const bool scale_up = plan_.connections[static_cast<size_t>(connection)].path == Path::scale_up;
    const Nanos latency = scale_up ? plan_.scale_up_latency_ns : 0;
    events_.push(now + latency, EventKind::local_grant, static_cast<uint32_t>(connection), granting.tag);
    return;
  }
  // The receive that the message takes is there before the sender hears of it.
  if (ends.receives != nullptr) ends.receives->post({});
  // NCCL writes its clear-to-send on the first queue pair of the connection, against the direction of the data.
  const uint32_t qp = ends.recv_qps.front();
  WorkRequest request;
  request.kind = WorkKind::clear_to_send;
  request.bytes = kClearToSendBytes;
  request.grant_bytes = granting.slot_bytes;
  request.grant_tag = granting.tag;
  request.index = ++ends.grants;
  if (place_grant(qp, ends, request, index)) post(qp, request, now);
}

void Core::send_message(uint32_t lane, Nanos now) {
  LaneRun& sending = lanes_[lane];
  int64_t bytes = 0;
  const uint32_t index = sending.post(bytes);
  const int32_t connection = sending.send_connection;
  OpRecord& record = runs_[sending.op_run].record;
  ++record.tx_messages;
  if (plan_.connections[static_cast<size_t>(connection)].path != Path::wire) {
    record.local_tx_bytes += bytes;
    if (record.first_tx_ns == 0) record.first_tx_ns = now;
    send_local(lane, index, bytes, now);
    return;
  }
  record.wire_tx_bytes += bytes;
  status_.wire_tx_bytes += bytes;
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const uint32_t qp = ends.send_qps[ends.next_message++ % ends.send_qps.size()];
  WorkRequest request;
  request.kind = WorkKind::data;
  request.bytes = static_cast<uint32_t>(bytes);
  const GrantedPlace& place = sending.places[index % sending.places.size()];
  request.va = place.va;
  request.rkey = place.rkey;
  request.numbered = ends.probe_target.rkey != 0;
  request.imm = place.number;
  request.lane = lane;
  request.trigger_ns = trigger_ns_;
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
  const int64_t link_bps = scale_up ? plan_.scale_up_bps : plan_.ports[static_cast<size_t>(port_)].link_bps;
  free_ns = std::max(free_ns, now) + transfer_ns(bytes, link_bps);
  const Nanos latency = scale_up ? plan_.scale_up_latency_ns : 0;
  events_.push(free_ns, EventKind::local_sent, lane);
  events_.push(free_ns + latency, EventKind::local_arrival, static_cast<uint32_t>(connection), sending.tag, index, bytes);
}

void Core::grant_arrived(int32_t connection, const ClearToSend& grant, Nanos now) {
  ConnectionEnds& ends = ends_[static_cast<size_t>(connection)];
  const GrantedPlace place{grant.va, grant.rkey, static_cast<uint32_t>(grant.number)};
  const uint32_t lane = ends.sending.find(grant.tag);
  if (lane == ActiveLanes::kNone) {
    if (!ends.early.add(grant.tag, place)) {
      fail(connection, connection_text(connection) + ": too many messages are granted ahead");
    }
    return;
  }
  if (!lanes_[lane].credit(place)) {
    fail(connection, connection_text(connection) + ": more messages of an op are granted than a lane has");
    return;
  }
  pump(lane, now);
}

void Core::message_arrived(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, bool on_wire, Nanos now) {
  const uint32_t lane = ends_[static_cast<size_t>(connection)].receiving.find(tag);
  const auto arrival = lane == ActiveLanes::kNone ? LaneRun::Arrival::not_granted : lanes_[lane].arrive(index, bytes);
  if (arrival != LaneRun::Arrival::accepted) {
    const char* what = arrival == LaneRun::Arrival::not_granted ? "was never granted"
                       : arrival == LaneRun::Arrival::repeated  ? "had already arrived"
                                                                : "has another size than the schedule says";
    fail(connection, connection_text(connection) + ": message " + std::to_string(index) + " of op #" +
                         std::to_string(tag) + " (" + std::to_string(bytes) + " bytes) " + what);
    return;
  }
  OpRecord& record = runs_[lanes_[lane].op_run].record;
  ++record.rx_messages;
  if (on_wire) {
    record.wire_rx_bytes += bytes;
    status_.wire_rx_bytes += bytes;
  } else {
    record.local_rx_bytes += bytes;
  }
  status_.last_progress_ns = std::max(status_.last_progress_ns, now);
  trigger_ns_ = now;
  pump(lane, now);
  trigger_ns_ = 0;
}

void Core::message_acknowledged(uint32_t lane, Nanos now) {
  assert(lanes_[lane].in_use && lanes_[lane].acknowledged < lanes_[lane].posted);
  ++lanes_[lane].acknowledged;
  status_.last_progress_ns = std::max(status_.last_progress_ns, now);
  pump(lane, now);
}

}  // namespace etloop
