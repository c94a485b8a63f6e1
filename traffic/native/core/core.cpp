// Ops: from dependencies met to lanes opened to completion recorded.
#include "core/core.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace etloop {

// By now every peer has told what it offers.
void Core::start(Nanos start_ns) {
  start_ns_ = start_ns;
  for (size_t target = 0; target < prober_.size(); ++target) {
    const uint32_t index = prober_.qp(target);
    const uint32_t window = std::min(pools_.limit_packets(index), kMostWindow);
    if (window == 0) continue;
    qps_[index].set_window(window);
    flow_probed(index, prober_.result(target).round_trip_ns, window);
  }
}

void Core::on_due(Nanos now) {
  if (faults_ != nullptr) {
    Datagram released;
    std::vector<uint8_t> content;
    while (faults_->take_released(now, released, content)) accept(released, true, now);
  }
  if (now >= start_ns_) {
    const Nanos at_ns = start_ns_;
    start_ns_ = kNever;
    status_.last_progress_ns = now;
    if (series_ != nullptr) {
      series_->start(at_ns);
      events_.push(at_ns, EventKind::series_due, 0);
    }
    for (uint32_t r = 0; r < ranks_.size(); ++r) begin_iteration(r, at_ns);
  }
  Event event{};
  while (failure_.empty() && events_.pop_due(now, event)) {
    switch (event.kind) {
      case EventKind::delay_over: complete(event.a, static_cast<int32_t>(event.b), event.at_ns); break;
      case EventKind::local_grant:
        grant_arrived(static_cast<int32_t>(event.a), event.b, {buffer_address(event.b, event.c), 0, 0}, now);
        break;
      case EventKind::local_arrival: local_arrived(event, now); break;
      case EventKind::local_sent: message_acknowledged(event.a, event.b, now); break;
      case EventKind::qp_timer: on_qp_timer(event.a, now); break;
      case EventKind::flow_timer: on_flow_timer(event.a, event.at_ns); break;
      case EventKind::series_due: write_series(now); break;
    }
  }
}

void Core::local_arrived(const Event& event, Nanos now) {
  const auto connection = static_cast<int32_t>(event.a);
  if ((event.c & kOneSidedMark) != 0) {
    one_sided_arrived(connection, event.b, event.c & ~kOneSidedMark, event.bytes, false, now);
  } else {
    message_arrived(connection, event.b, event.c, event.bytes, event.bytes, false, now);
  }
}

Nanos Core::next_deadline() const {
  if (ready_head_ < ready_.size()) return 0;
  const Nanos held_ns = faults_ == nullptr ? kNever : faults_->next_due();
  return std::min({events_.next_due(), start_ns_, prober_.deadline(), held_ns});
}

void Core::issue_ready(Nanos now) {
  while (failure_.empty() && ready_head_ < ready_.size()) {
    const ReadyOp next = ready_[ready_head_++];
    trigger_ns_ = next.trigger_ns;
    issue_op(next, now);
    trigger_ns_ = 0;
  }
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
}

void Core::begin_iteration(uint32_t rank_index, Nanos at_ns) {
  LocalRank& rank = ranks_[rank_index];
  // A rank without any op has nothing to complete it: its iterations are over as they begin.
  do {
    rank.run.begin_iteration(at_ns, ready_);
  } while (rank.run.iteration_over() && !rank.run.finished());
  if (rank.run.finished()) {
    if (rank.awaited) ++ranks_finished_;
    return;
  }
  for (EagerQueue& queue : rank.eager) {
    queue.next = 0;
    for (const int32_t op : queue.ops) rank.receive_run[static_cast<size_t>(op)] = kNone;
    for (size_t ahead = 0; ahead < kEagerReceives; ++ahead) open_eager(rank_index, queue, at_ns);
  }
}

// Grants the next receive of a pair whose op has not begun by itself.
void Core::open_eager(uint32_t rank_index, EagerQueue& queue, Nanos now) {
  while (queue.next < queue.ops.size()) {
    const int32_t op = queue.ops[queue.next++];
    if (ranks_[rank_index].receive_run[static_cast<size_t>(op)] == kBegun) continue;
    const uint32_t run = open_op(rank_index, op);
    ranks_[rank_index].receive_run[static_cast<size_t>(op)] = run;
    open_lanes(run, now);
    return;
  }
}

void Core::issue_op(const ReadyOp& ready, Nanos now) {
  LocalRank& rank = ranks_[ready.rank_index];
  const Program& program = rank.run.program();
  const auto op = static_cast<size_t>(ready.op);
  if (program.kind[op] == OpKind::delay) {
    const Nanos due_ns = ready.intended_ns + program.delay_ns[op];
    if (due_ns <= now) {
      complete(ready.rank_index, ready.op, due_ns);
    } else {
      events_.push(due_ns, EventKind::delay_over, ready.rank_index, static_cast<uint32_t>(ready.op));
    }
    return;
  }
  uint32_t run = kNone;
  if (program.kind[op] == OpKind::recv) run = std::exchange(rank.receive_run[op], kBegun);
  const bool opened_ahead = run != kNone;
  if (!opened_ahead) run = open_op(ready.rank_index, ready.op);
  runs_[run].issued = true;
  runs_[run].record.intended_ns = ready.intended_ns;
  runs_[run].record.issued_ns = now;
  if (!opened_ahead) {
    open_lanes(run, now);
  } else if (runs_[run].open_lanes == 0) {
    finish_op(run, now);
  }
}

uint32_t Core::open_op(uint32_t rank_index, int32_t op) {
  uint32_t run;
  if (free_runs_.empty()) {
    run = static_cast<uint32_t>(runs_.size());
    runs_.emplace_back();
  } else {
    run = free_runs_.back();
    free_runs_.pop_back();
    std::vector<uint32_t> kept = std::move(runs_[run].lane_runs);
    std::vector<ChannelRun> kept_channels = std::move(runs_[run].channels);
    kept.clear();
    kept_channels.clear();
    runs_[run] = OpRun{};
    runs_[run].lane_runs = std::move(kept);
    runs_[run].channels = std::move(kept_channels);
  }
  const LocalRank& rank = ranks_[rank_index];
  const Program& program = rank.run.program();
  const auto index = static_cast<size_t>(op);
  int32_t position = 0;
  switch (program.kind[index]) {
    case OpKind::collective:
      position = rank.communicators[static_cast<size_t>(program.slot[index])].position;
      break;
    case OpKind::recv: position = 1; break;
    case OpKind::send:
    case OpKind::delay: break;
  }
  const auto table = static_cast<size_t>(plan_.schedules.table(program.schedule[index], position));
  OpRun& opened = runs_[run];
  opened.in_use = true;
  opened.rank_index = rank_index;
  opened.first_lane = plan_.schedules.lane_offsets[table];
  opened.table = static_cast<int32_t>(table);
  opened.end_lane = plan_.schedules.lane_offsets[table + 1];
  if (!plan_.schedules.dependent_offsets.empty()) {
    opened.lane_runs.assign(static_cast<size_t>(opened.end_lane - opened.first_lane), kNone);
  }
  opened.record.rank = rank.rank;
  opened.record.op = op;
  opened.record.iteration = rank.run.iteration();
  return run;
}

// Begins an op: the lanes of the first batch of every channel; an op without any work is over.
void Core::open_lanes(uint32_t run, Nanos now) {
  ++runs_[run].open_lanes;  // held meanwhile, so that no lane ends the op
  if (plan_.schedules.batch_channels.empty() || plan_.schedules.batch_channels[static_cast<size_t>(runs_[run].table)] == 0) {
    for (int32_t lane = runs_[run].first_lane; lane < runs_[run].end_lane && failure_.empty(); ++lane) open_lane(run, lane, now);
  } else {
    open_first_batches(run, now);
  }
  if (failure_.empty() && --runs_[run].open_lanes == 0 && runs_[run].issued) finish_op(run, now);
}

// In the order of the table, which goes from channel to channel as its peers come.
void Core::open_first_batches(uint32_t run, Nanos now) {
  const ScheduleSet& set = plan_.schedules;
  const int32_t channels = set.batch_channels[static_cast<size_t>(runs_[run].table)];
  runs_[run].channels.assign(static_cast<size_t>(channels), ChannelRun{});
  for (int32_t row = runs_[run].first_lane; row < runs_[run].end_lane; ++row) {
    const Lane& lane = set.lanes[static_cast<size_t>(row)];
    ChannelRun& channel = runs_[run].channels[static_cast<size_t>(lane.channel)];
    if (channel.open_lanes == 0) {
      channel = {row, lane.batch, 1};  // held until the other channels have begun, too
    }
    if (channel.batch != lane.batch) continue;
    channel.next_lane = set.next_on_channel[static_cast<size_t>(row)];
    open_lane(run, row, now);
    if (!failure_.empty()) return;
  }
  for (int32_t c = 0; c < channels && failure_.empty(); ++c) {
    ChannelRun& channel = runs_[run].channels[static_cast<size_t>(c)];
    if (channel.open_lanes != 0 && --channel.open_lanes == 0) open_next_batch(run, c, now);
  }
}

// Opens the next batch of a channel that has any work.
void Core::open_next_batch(uint32_t run, int32_t channel, Nanos now) {
  const ScheduleSet& set = plan_.schedules;
  const auto on = [&]() -> ChannelRun& { return runs_[run].channels[static_cast<size_t>(channel)]; };
  while (on().next_lane >= 0) {
    on().batch = set.lanes[static_cast<size_t>(on().next_lane)].batch;
    ++on().open_lanes;  // held while the batch is opened, so that no lane of it ends it
    while (on().next_lane >= 0 && set.lanes[static_cast<size_t>(on().next_lane)].batch == on().batch) {
      const int32_t row = on().next_lane;
      on().next_lane = set.next_on_channel[static_cast<size_t>(row)];
      open_lane(run, row, now);
      if (!failure_.empty()) return;
    }
    if (--on().open_lanes != 0) return;
  }
}

bool Core::find_connections(const OpRun& run, const Lane& lane, int32_t& send_connection, int32_t& recv_connection) const {
  const LocalRank& rank = ranks_[run.rank_index];
  const Program& program = rank.run.program();
  const auto op = static_cast<size_t>(run.record.op);
  const auto slot = static_cast<size_t>(program.slot[op]);
  if (program.kind[op] == OpKind::collective) {
    const CommunicatorSlot& communicator = rank.communicators[slot];
    if (lane.send_to >= 0) send_connection = communicator.send_to.find(lane.channel, lane.send_to);
    if (lane.recv_from >= 0) recv_connection = communicator.recv_from.find(lane.channel, lane.recv_from);
  } else if (program.kind[op] == OpKind::send) {
    send_connection = rank.peers[slot].send_to.find(lane.channel, 0);
  } else {
    recv_connection = rank.peers[slot].recv_from.find(lane.channel, 0);
  }
  return (lane.send_to < 0 || send_connection >= 0) && (lane.recv_from < 0 || recv_connection >= 0);
}

void Core::open_lane(uint32_t run, int32_t lane_row, Nanos now) {
  const OpRun& op_run = runs_[run];
  const Lane& lane = plan_.schedules.lanes[static_cast<size_t>(lane_row)];
  const LocalRank& rank = ranks_[op_run.rank_index];
  const Program& program = rank.run.program();
  const auto op = static_cast<size_t>(op_run.record.op);
  const auto slot = static_cast<size_t>(program.slot[op]);
  const int32_t number = lane_row - op_run.first_lane;
  const Cutting& cutting = plan_.schedules.cutting[static_cast<size_t>(program.schedule[op])];
  const LaneCursor cursor(lane, plan_.schedules.entries.data(), cutting, program.message_bytes[op]);
  if (cursor.done()) {
    if (op_run.lane_runs.empty()) return;
    runs_[run].lane_runs[static_cast<size_t>(number)] = kLaneOver;
    wake_dependents(run, number);
    move_lanes(now);
    return;
  }
  int32_t send_connection = kNoConnection;
  int32_t recv_connection = kNoConnection;
  if (!find_connections(op_run, lane, send_connection, recv_connection)) {
    fail(kNoConnection, "rank " + std::to_string(rank.rank) + " op " + std::to_string(op) +
                            ": the plan has no connection for a step of its schedule");
    return;
  }
  uint32_t ops = 0;
  switch (program.kind[op]) {
    case OpKind::collective: ops = rank.communicators[slot].ops; break;
    case OpKind::send: ops = rank.peers[slot].sends; break;
    case OpKind::recv: ops = rank.peers[slot].recvs; break;
    case OpKind::delay: break;
  }
  const uint32_t index = lanes_.open();
  LaneRun& opened = lanes_[index];
  opened.op_run = run;
  opened.number = number;
  opened.tag = static_cast<uint32_t>(op_run.record.iteration) * ops + static_cast<uint32_t>(program.sequence[op]);
  opened.channel = lane.channel;
  opened.send_connection = send_connection;
  opened.recv_connection = recv_connection;
  opened.slots = static_cast<uint32_t>(cutting.slots);
  opened.slot_bytes = static_cast<uint32_t>(cutting.wire_bytes(cutting.chunk_bytes / cutting.slices));
  opened.one_sided = cutting.handshake == Handshake::one_sided;
  opened.execution = cursor;
  opened.posting = cursor;
  opened.granting = cursor;
  seek(opened.posting, kEntrySend);
  seek(opened.granting, kEntryRecv);
  ++runs_[run].open_lanes;
  if (!runs_[run].channels.empty()) ++runs_[run].channels[static_cast<size_t>(lane.channel)].open_lanes;
  if (!runs_[run].lane_runs.empty()) runs_[run].lane_runs[static_cast<size_t>(number)] = index;
  connect_lane(index, now);
}

// Makes a lane known to its connections, which may have something for it already.
void Core::connect_lane(uint32_t index, Nanos now) {
  LaneRun& opened = lanes_[index];
  if (opened.send_connection >= 0) {
    ConnectionEnds& ends = ends_[static_cast<size_t>(opened.send_connection)];
    ends.sending.add(opened.tag, index);
    if (!ends.early.take(opened)) refuse_grant(opened.send_connection, opened.tag);
    if (opened.one_sided && !opened.posting.done()) opened.closing_out = LaneRun::Closing::open;
  }
  if (opened.recv_connection >= 0) {
    ConnectionEnds& ends = ends_[static_cast<size_t>(opened.recv_connection)];
    ends.receiving.add(opened.tag, index);
    opened.parts_in = static_cast<uint8_t>(parts_of(opened.recv_connection, opened.one_sided));
    opened.closed_in = !opened.one_sided || opened.granting.done();
    const EarlyArrivals::Item early = ends.early_arrivals.take(opened.tag);
    OpRecord& record = runs_[opened.op_run].record;
    const bool on_wire = plan_.connections[static_cast<size_t>(opened.recv_connection)].path == Path::wire;
    (on_wire ? record.wire_rx_bytes : record.local_rx_bytes) += early.bytes;
    record.rx_messages += static_cast<int32_t>(early.messages);
    if (on_wire) status_.wire_rx_bytes += early.bytes;
    bool fits = opened.arrive_early(early.messages, early.bytes);
    if (early.closed) fits = fits && opened.close() == LaneRun::Arrival::accepted;
    if (!fits) {
      fail(opened.recv_connection, connection_text(opened.recv_connection) + ": op #" + std::to_string(opened.tag) +
                                       ": what arrived before it began is not what its schedule says");
    }
    if (carrier_ != nullptr && on_wire && !opened.closed_in) carrier_->watch(ends.recv_qps.front(), opened.tag);
  }
  pump(index, now);
}

void Core::lane_over(uint32_t lane, Nanos now) {
  const LaneRun& over = lanes_[lane];
  const uint32_t run = over.op_run;
  if (over.send_connection >= 0) ends_[static_cast<size_t>(over.send_connection)].sending.remove(over.tag);
  if (over.recv_connection >= 0) ends_[static_cast<size_t>(over.recv_connection)].receiving.remove(over.tag);
  const int32_t number = over.number;
  const int32_t channel = over.channel;
  lanes_.close(lane);
  if (!runs_[run].lane_runs.empty()) {
    runs_[run].lane_runs[static_cast<size_t>(number)] = kLaneOver;
    wake_dependents(run, number);
  }
  if (!runs_[run].channels.empty() && --runs_[run].channels[static_cast<size_t>(channel)].open_lanes == 0) {
    open_next_batch(run, channel, now);
  }
  if (--runs_[run].open_lanes == 0 && failure_.empty()) lanes_drained(run, now);
}

void Core::lanes_drained(uint32_t run, Nanos now) {
  const uint32_t rank_index = runs_[run].rank_index;
  LocalRank& rank = ranks_[rank_index];
  const auto op = static_cast<size_t>(runs_[run].record.op);
  if (rank.run.program().kind[op] == OpKind::recv) {
    for (EagerQueue& queue : rank.eager) {
      if (queue.slot == static_cast<uint32_t>(rank.run.program().slot[op])) open_eager(rank_index, queue, now);
    }
  }
  if (runs_[run].issued) finish_op(run, now);
}

// `now` is when the last thing the op waited for reached this host, which can be before the op began (an eager
// receive) or before its last send call returned; an op is over no earlier than either.
void Core::finish_op(uint32_t run, Nanos now) {
  OpRun& over = runs_[run];
  now = std::max({now, over.record.issued_ns, over.record.first_tx_ns});
  over.record.completed_ns = now;
  const uint32_t rank_index = over.rank_index;
  const int32_t op = over.record.op;
  records_.push_back(over.record);
  if (ranks_[rank_index].awaited) ++status_.ops_done;
  over.in_use = false;
  free_runs_.push_back(run);
  complete(rank_index, op, now);
}

void Core::complete(uint32_t rank_index, int32_t op, Nanos at_ns) {
  LocalRank& rank = ranks_[rank_index];
  const size_t known = ready_.size();
  rank.run.complete(op, at_ns, ready_);
  for (size_t i = known; i < ready_.size(); ++i) ready_[i].trigger_ns = trigger_ns_;
  note_progress(rank_index, at_ns);
  if (!rank.run.iteration_over()) return;
  if (rank.run.finished()) {
    if (rank.awaited) ++ranks_finished_;
  } else {
    begin_iteration(rank_index, rank.run.last_completion_ns());
  }
}

void Core::add_lane_waits(const LaneRun& lane, const OpRun& run, std::vector<WaitRecord>& out) const {
  WaitRecord wait{run.record.rank, run.record.op, run.record.iteration, WaitKind::data, -1, -1, -1, 0, 0, 0};
  const auto total = [](LaneCursor cursor, uint8_t flag) {
    int32_t count = 0;
    for (; !cursor.done(); cursor.advance()) count += (cursor.step().kind & flag) != 0 ? 1 : 0;
    return count;
  };
  if (lane.send_connection >= 0 && lane.posted < lane.handed) {
    wait.kind = WaitKind::clear_to_send;
    wait.connection = lane.send_connection;
    wait.messages_done = static_cast<int32_t>(lane.posted);
    wait.messages_total = wait.messages_done + total(lane.posting, kEntrySend);
    wait.peer_rank = plan_.connections[static_cast<size_t>(lane.send_connection)].dst_rank;
    out.push_back(wait);
  }
  if (lane.send_connection >= 0 && lane.acknowledged < lane.posted) {
    wait.kind = WaitKind::acknowledgement;
    wait.connection = lane.send_connection;
    wait.messages_done = static_cast<int32_t>(lane.acknowledged);
    wait.messages_total = static_cast<int32_t>(lane.posted);
    wait.peer_rank = plan_.connections[static_cast<size_t>(lane.send_connection)].dst_rank;
    for (const uint32_t qp : ends_[static_cast<size_t>(lane.send_connection)].send_qps) {
      if (qps_[qp].deadline() != kNever) wait.psn = qps_[qp].oldest_unacknowledged();
    }
    out.push_back(wait);
  }
  if (lane.execution.done()) return;
  const LaneStep step = lane.execution.step();
  if (!released(lane)) {
    const uint32_t other = run.lane_runs[static_cast<size_t>(step.after_lane)];
    wait.kind = WaitKind::lane;
    if (other < kLaneOver) {
      const LaneRun& awaited = lanes_[other];
      wait.connection = awaited.recv_connection >= 0 ? awaited.recv_connection : awaited.send_connection;
      wait.messages_done = static_cast<int32_t>(awaited.consumed);
    }
    if (wait.connection >= 0) {
      const PlannedConnection& c = plan_.connections[static_cast<size_t>(wait.connection)];
      wait.peer_rank = c.src_rank == run.record.rank ? c.dst_rank : c.src_rank;
    }
    out.push_back(wait);
    return;
  }
  if ((step.kind & kEntryRecv) != 0 && !lane.received()) {
    wait.kind = WaitKind::data;
    wait.connection = lane.recv_connection;
    wait.messages_done = static_cast<int32_t>(lane.consumed);
    wait.messages_total = wait.messages_done + total(lane.execution, kEntryRecv);
    wait.peer_rank = plan_.connections[static_cast<size_t>(lane.recv_connection)].src_rank;
    wait.psn = 0;
    out.push_back(wait);
  }
}

std::vector<WaitRecord> Core::waits() const {
  constexpr size_t kMostPerRank = 4096;
  std::vector<WaitRecord> out;
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].in_use) add_lane_waits(lanes_[lane], runs_[lanes_[lane].op_run], out);
  }
  for (const LocalRank& rank : ranks_) {
    if (!rank.run.started() || rank.run.finished()) continue;
    const Program& program = rank.run.program();
    size_t told = 0;
    for (size_t op = 0; op < program.size() && told < kMostPerRank; ++op) {
      const auto index = static_cast<int32_t>(op);
      if (!rank.run.pending(index)) continue;
      WaitRecord wait{rank.rank, index, rank.run.iteration(), WaitKind::delay, -1, -1, -1, 0, 0, 0};
      if (rank.run.waits_for_dependency(index)) {
        wait.kind = WaitKind::dependency;
        wait.blocking_op = rank.run.blocking_dependency(index);
      } else if (program.kind[op] != OpKind::delay) {
        continue;  // its lanes have spoken for it
      }
      out.push_back(wait);
      ++told;
    }
  }
  return out;
}

std::vector<FlowRecord> Core::flows() const {
  std::vector<FlowRecord> out;
  out.reserve(qps_.size());
  for (const Qp& qp : qps_) out.push_back(qp.counters);
  for (uint32_t i = 0; faults_ != nullptr && i < out.size(); ++i) out[i].injected_faults = faults_->count_of(i);
  return out;
}

}  // namespace etloop
