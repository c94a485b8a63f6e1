#include "core/lanes.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <string>
#include <utility>

namespace etloop {

namespace {

// Ops granted ahead of the current one, and lanes that they may have together.
constexpr uint32_t kMostOpsAhead = 16;
constexpr uint32_t kMostLanesAhead = 128;
// Lanes that an acknowledgement looks at to find one that can use the free slot, while other acknowledgements are still to come.
constexpr uint32_t kMostTried = 16;

// Share of a connection's slots that one message takes.
uint32_t slot_share(const Cutting& cutting) { return kMaxSlots / static_cast<uint32_t>(cutting.connection_slots); }

}  // namespace

void Lanes::load(OpSink& ops) {
  op_sink_ = &ops;
  ends_.resize(connections_.places());
}

bool Lanes::open(uint32_t run, const OpWork& work, Nanos now) {
  prepare(run, work);
  ++ops_[run].open_lanes;  // hold the op open while its lanes are opened
  const std::vector<int32_t>& batch_channels = plan_.schedules.batch_channels;
  if (batch_channels.empty() || batch_channels[static_cast<size_t>(work.table)] == 0) {
    for (int32_t row = ops_[run].first_lane; row < ops_[run].end_lane && failure_.none(); ++row) open_lane(run, row, now);
  } else {
    open_first_batches(run, now);
  }
  if (ops_[run].work.begun) note_executed(run, now);
  return failure_.none() && --ops_[run].open_lanes == 0;
}

void Lanes::begin(uint32_t run, Nanos now) {
  if (ops_[run].work.begun) return;
  ops_[run].work.begun = true;
  for (const uint32_t lane : ops_[run].held) queue_lane(lane);
  note_executed(run, now);
  drain_work_list(now);
}

bool Lanes::grants(const OpWork& work) const {
  const ScheduleSet& set = plan_.schedules;
  const auto table = static_cast<size_t>(work.table);
  const auto lanes = std::span(set.lanes).subspan(static_cast<size_t>(set.lane_offsets[table]),
                                                  static_cast<size_t>(set.lane_offsets[table + 1] - set.lane_offsets[table]));
  return work.cutting->handshake == Handshake::clear_to_send &&
         std::ranges::any_of(lanes, [](const Lane& lane) { return lane.recv_from >= 0; });
}

uint32_t Lanes::ops_ahead(const OpWork& work) const {
  const auto table = static_cast<size_t>(work.table);
  const auto lanes = static_cast<uint32_t>(plan_.schedules.lane_offsets[table + 1] - plan_.schedules.lane_offsets[table]);
  if (work.message_bytes > work.cutting->eager_bytes || lanes == 0) return 1;
  return std::clamp(kMostLanesAhead / lanes, 1U, kMostOpsAhead);
}

// Called when a lane of the op executed its last step, and once all of its lanes are open. If batches follow, the op goes on.
void Lanes::note_executed(uint32_t run, Nanos now) {
  if (--ops_[run].unexecuted_lanes != 0 || !failure_.none()) return;
  const bool batches_follow =
      std::ranges::any_of(ops_[run].channels, [](const ChannelRun& channel) { return channel.next_lane >= 0; });
  if (!batches_follow) op_sink_->on_executed(run, now);
}

void Lanes::prepare(uint32_t run, const OpWork& work) {
  if (run >= ops_.size()) ops_.resize(run + 1);
  const ScheduleSet& set = plan_.schedules;
  const auto table = static_cast<size_t>(work.table);
  OpLanes& begun = ops_[run];
  begun.work = work;
  begun.first_lane = set.lane_offsets[table];
  begun.end_lane = set.lane_offsets[table + 1];
  begun.open_lanes = 0;
  begun.unacknowledged_lanes = 0;
  begun.unexecuted_lanes = 1;
  begun.held.clear();
  begun.lane_runs.clear();
  begun.channels.clear();
  if (!set.dependent_offsets.empty()) begun.lane_runs.assign(static_cast<size_t>(begun.end_lane - begun.first_lane), kNone);
}

// Open lanes in the order of the table, which alternates between channels as its peers do.
void Lanes::open_first_batches(uint32_t run, Nanos now) {
  const ScheduleSet& set = plan_.schedules;
  const int32_t channels = set.batch_channels[static_cast<size_t>(ops_[run].work.table)];
  ops_[run].channels.assign(static_cast<size_t>(channels), ChannelRun{});
  for (int32_t row = ops_[run].first_lane; row < ops_[run].end_lane; ++row) {
    const Lane& lane = set.lanes[static_cast<size_t>(row)];
    ChannelRun& channel = ops_[run].channels[static_cast<size_t>(lane.channel)];
    if (channel.open_lanes == 0) {
      channel = {row, lane.batch, 1};  // 1: hold the channel until the other channels have begun
    }
    if (channel.batch != lane.batch) continue;
    channel.next_lane = set.next_on_channel[static_cast<size_t>(row)];
    open_lane(run, row, now);
    if (!failure_.none()) return;
  }
  for (int32_t c = 0; c < channels && failure_.none(); ++c) {
    ChannelRun& channel = ops_[run].channels[static_cast<size_t>(c)];
    if (channel.open_lanes != 0 && --channel.open_lanes == 0) open_next_batch(run, c, now);
  }
}

// Open the next batch of a channel that has any work.
void Lanes::open_next_batch(uint32_t run, int32_t channel, Nanos now) {
  const ScheduleSet& set = plan_.schedules;
  const auto on = [&]() -> ChannelRun& { return ops_[run].channels[static_cast<size_t>(channel)]; };
  while (on().next_lane >= 0) {
    on().batch = set.lanes[static_cast<size_t>(on().next_lane)].batch;
    ++on().open_lanes;  // hold the batch while its lanes are opened
    while (on().next_lane >= 0 && set.lanes[static_cast<size_t>(on().next_lane)].batch == on().batch) {
      const int32_t row = on().next_lane;
      on().next_lane = set.next_on_channel[static_cast<size_t>(row)];
      open_lane(run, row, now);
      if (!failure_.none()) return;
    }
    if (--on().open_lanes != 0) return;
  }
}

bool Lanes::find_connections(const OpWork& work, const Lane& lane, int32_t& send_connection, int32_t& recv_connection) const {
  if (work.send_to != nullptr && (work.point_to_point || lane.send_to >= 0)) {
    send_connection = work.send_to->find(lane.channel, work.point_to_point ? 0 : lane.send_to);
  }
  if (work.recv_from != nullptr && (work.point_to_point || lane.recv_from >= 0)) {
    recv_connection = work.recv_from->find(lane.channel, work.point_to_point ? 0 : lane.recv_from);
  }
  return (lane.send_to < 0 || send_connection >= 0) && (lane.recv_from < 0 || recv_connection >= 0);
}

void Lanes::open_lane(uint32_t run, int32_t lane_row, Nanos now) {
  const OpWork& work = ops_[run].work;
  const Lane& lane = plan_.schedules.lanes[static_cast<size_t>(lane_row)];
  const int32_t number = lane_row - ops_[run].first_lane;
  const Cutting& cutting = *work.cutting;
  const LaneCursor cursor(lane, plan_.schedules.entries.data(), cutting, work.message_bytes);
  if (cursor.done()) {
    if (ops_[run].lane_runs.empty()) return;
    ops_[run].lane_runs[static_cast<size_t>(number)] = kLaneOver;
    wake_dependents(run, number);
    drain_work_list(now);
    return;
  }
  int32_t send_connection = kNoConnection;
  int32_t recv_connection = kNoConnection;
  if (!find_connections(work, lane, send_connection, recv_connection)) {
    const OpRecord& record = records_[run];
    failure_.set(kNoConnection, "rank " + std::to_string(record.rank) + " op " + std::to_string(record.op) +
                                    ": the plan has no connection for a step of its schedule");
    return;
  }
  const uint32_t index = lanes_.open();
  LaneRun& opened = lanes_[index];
  opened.op_run = run;
  opened.number = number;
  opened.tag = work.tag;
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
  OpLanes& op = ops_[run];
  ++op.open_lanes;
  ++op.unacknowledged_lanes;
  ++op.unexecuted_lanes;
  if (!op.work.begun) op.held.push_back(index);
  if (!op.channels.empty()) ++op.channels[static_cast<size_t>(lane.channel)].open_lanes;
  if (!op.lane_runs.empty()) op.lane_runs[static_cast<size_t>(number)] = index;
  if (send_connection >= 0) connect_sending(opened, index);
  if (recv_connection >= 0) connect_receiving(opened, index);
  advance(index, now);
}

// Register a lane with the connection that it sends on; grants for it may have arrived already.
void Lanes::connect_sending(LaneRun& lane, uint32_t number) {
  Ends& here = ends(lane.send_connection);
  here.sending.add(lane.tag, number);
  if (!here.early.take(lane)) refuse_grant(lane.send_connection, lane.tag);
  if (lane.one_sided && !lane.posting.done()) lane.sending.closing = LaneSender::Closing::open;
}

// Register a lane with the connection that it receives on; messages for it may have arrived already.
void Lanes::connect_receiving(LaneRun& lane, uint32_t number) {
  const int32_t connection = lane.recv_connection;
  Ends& here = ends(connection);
  here.receiving.add(lane.tag, number);
  lane.receiving.parts = static_cast<uint8_t>(connections_.parts_of(connection, lane.one_sided));
  lane.receiving.on_wire = connections_.on_wire(connection);
  lane.receiving.closed = !lane.one_sided || lane.granting.done();
  const EarlyArrivals::Item early = here.early_arrivals.take(lane.tag);
  records_.note_received(lane.op_run, static_cast<int32_t>(early.messages), early.bytes, lane.receiving.on_wire);
  bool fits = lane.arrive_early(early.messages, early.bytes);
  if (early.closed) fits = fits && lane.close() == LaneRun::Arrival::accepted;
  if (!fits) {
    failure_.set(connection, connections_.text(connection) + ": op #" + std::to_string(lane.tag) +
                                 ": what arrived before it began is not what its schedule says");
  }
  if (!lane.receiving.closed) paths_.expect_closing(connection, lane.tag);
}

// The op no longer waits for a lane. It stays in use until its messages are acknowledged.
void Lanes::end_lane(uint32_t lane, Nanos now) {
  LaneRun& over = lanes_[lane];
  const uint32_t run = over.op_run;
  over.ended = true;
  assert(!over.waits_for_slot);
  if (over.send_connection >= 0) ends(over.send_connection).sending.remove(over.tag);
  if (over.recv_connection >= 0) {
    ends(over.recv_connection).receiving.remove(over.tag);
    ends(over.recv_connection).last_received = ops_[run].work.cutting;
    ends(over.recv_connection).last_received_run = run;
  }
  const int32_t number = over.number;
  const int32_t channel = over.channel;
  if (!ops_[run].lane_runs.empty()) {
    ops_[run].lane_runs[static_cast<size_t>(number)] = kLaneOver;
    wake_dependents(run, number);
  }
  if (!ops_[run].channels.empty() && --ops_[run].channels[static_cast<size_t>(channel)].open_lanes == 0) {
    open_next_batch(run, channel, now);
  }
  if (--ops_[run].open_lanes == 0 && failure_.none()) op_sink_->on_lanes_over(run, now);
}

void Lanes::release_lane(uint32_t lane) {
  const uint32_t run = lanes_[lane].op_run;
  lanes_.close(lane);
  if (--ops_[run].unacknowledged_lanes == 0) op_sink_->on_lanes_acknowledged(run);
}

// Advance a lane as far as possible, and every lane that this releases.
void Lanes::advance(uint32_t lane, Nanos now) {
  queue_lane(lane);
  drain_work_list(now);
}

// Advance the lanes of the work list, including those added meanwhile. Re-entrant calls only add to the list.
void Lanes::drain_work_list(Nanos now) {
  if (is_draining_) return;
  is_draining_ = true;
  for (size_t next = 0; next < work_list_.size(); ++next) {
    lanes_[work_list_[next]].queued = false;
    if (lanes_[work_list_[next]].in_use) advance_lane(work_list_[next], now);
  }
  work_list_.clear();
  is_draining_ = false;
}

void Lanes::queue_lane(uint32_t lane) {
  if (lanes_[lane].queued) return;
  lanes_[lane].queued = true;
  work_list_.push_back(lane);
}

void Lanes::advance_lane(uint32_t lane, Nanos now) {
  if (lanes_[lane].ended) {
    if (lanes_[lane].acknowledged()) release_lane(lane);
    return;
  }
  bool executed = false;
  while (ops_[lanes_[lane].op_run].work.begun && lanes_[lane].may_execute() && released(lanes_[lane])) {
    if (!has_slot(lanes_[lane])) {
      ends(lanes_[lane].send_connection).waiting.add(lanes_, lane);
      break;
    }
    if (lanes_[lane].waits_for_slot) ends(lanes_[lane].send_connection).waiting.remove(lanes_, lane);
    lanes_[lane].execute();
    executed = true;
  }
  while (may_grant(lanes_[lane])) grant_next(lane, now);
  while (lanes_[lane].may_post()) send_next(lane, now);
  if (lanes_[lane].may_close()) {
    close_lane(lane, now);
  }
  if (executed) wake_dependents(lanes_[lane].op_run, lanes_[lane].number);
  if (executed && lanes_[lane].execution.done()) note_executed(lanes_[lane].op_run, now);
  if (!lanes_[lane].done()) return;
  end_lane(lane, now);
  if (lanes_[lane].acknowledged()) release_lane(lane);
}

void Lanes::close_lane(uint32_t lane, Nanos now) {
  LaneRun& closing = lanes_[lane];
  closing.sending.closing = LaneSender::Closing::posted;
  const Departures departures = cutting_of(closing).done_when_left(0) ? paths_.departures(closing.send_connection)
                                                                      : Departures::unreported;
  if (departures == Departures::reported) ++closing.sending.leaving;
  paths_.close(lane, closing, departures == Departures::reported, now);
  LaneSender::Closing& state = lanes_[lane].sending.closing;
  if (departures == Departures::at_once && state == LaneSender::Closing::posted) state = LaneSender::Closing::left;
}

// Whether the next send has a slot of its connection, where the messages of earlier ops may hold some of them: NCCL's steps,
// which are free again when the proxy's send has completed. Messages of other lanes that have not left hold none: they may wait
// for this lane.
bool Lanes::has_slot(const LaneRun& lane) const {
  const Cutting& cutting = cutting_of(lane);
  if (cutting.completion == Completion::acknowledged || (lane.execution.step().kind & kEntrySend) == 0) return true;
  const uint32_t share = slot_share(cutting);
  const uint32_t in_flight = lane.sending.posted - lane.sending.acknowledged;
  const uint32_t held = ends(lane.send_connection).shares_in_flight - in_flight * share;
  return held + (lane.sending.handed - lane.sending.acknowledged + 1) * share <= kMaxSlots;
}

void Lanes::take_slot(const LaneRun& lane) {
  const Cutting& cutting = cutting_of(lane);
  if (cutting.completion != Completion::acknowledged) ends(lane.send_connection).shares_in_flight += slot_share(cutting);
}

void Lanes::free_slots(const LaneRun& sender, uint32_t messages) {
  const Cutting& cutting = cutting_of(sender);
  if (cutting.completion == Completion::acknowledged || messages == 0) return;
  Ends& here = ends(sender.send_connection);
  int64_t free_shares = int64_t{messages} * slot_share(cutting);
  here.shares_in_flight -= static_cast<uint32_t>(free_shares);
  // Earlier ops first, and no more lanes than find a slot. The last acknowledgement wakes all that do.
  const bool is_last = here.shares_in_flight == 0;
  uint32_t tried = 0;
  for (uint32_t lane = here.waiting.first(); lane != kNoLane; ++tried) {
    if (!is_last && (free_shares <= 0 || tried == kMostTried)) return;
    const uint32_t next = lanes_[lane].waits_before;
    if (has_slot(lanes_[lane])) {
      here.waiting.remove(lanes_, lane);
      queue_lane(lane);
      free_shares -= slot_share(cutting_of(lanes_[lane]));
    }
    lane = next;
  }
}

// Whether the lane that the next entry depends on is far enough; requires a next entry.
bool Lanes::released(const LaneRun& lane) const {
  const LaneStep step = lane.execution.step();
  if (step.after_lane < 0) return true;
  const uint32_t other = ops_[lane.op_run].lane_runs[static_cast<size_t>(step.after_lane)];
  if (other == kLaneOver) return true;
  if (other == kNone || step.after_entry < 0) return false;
  const LaneCursor& execution = lanes_[other].execution;
  return execution.done() || execution.taken() > execution.step_number(step.loop, step.after_entry, step.slice);
}

// Whether the next message may be granted; a large message marked in-turn only once its entry is the next to execute.
bool Lanes::may_grant(const LaneRun& lane) const {
  if (!lane.may_grant()) return false;
  const LaneStep step = lane.granting.step();
  if ((step.kind & kEntryInTurn) == 0 || step.wire_bytes <= cutting_of(lane).eager_bytes) return true;
  return lane.granting.taken() == lane.execution.taken() && released(lane);
}

void Lanes::wake_dependents(uint32_t run, int32_t lane_number) {
  if (ops_[run].lane_runs.empty()) return;
  const ScheduleSet& set = plan_.schedules;
  const auto row = static_cast<size_t>(ops_[run].first_lane + lane_number);
  for (int32_t d = set.dependent_offsets[row]; d < set.dependent_offsets[row + 1]; ++d) {
    const uint32_t lane = ops_[run].lane_runs[static_cast<size_t>(set.dependents[static_cast<size_t>(d)])];
    if (lane < kLaneOver) queue_lane(lane);
  }
}

void Lanes::grant_next(uint32_t lane, Nanos now) {
  LaneRun& granting = lanes_[lane];
  int64_t bytes = 0;
  const uint32_t index = granting.grant(bytes);
  if (paths_.accepts(granting.recv_connection, index, bytes)) paths_.grant(granting, index, bytes, now);
}

void Lanes::send_next(uint32_t lane, Nanos now) {
  LaneRun& sender = lanes_[lane];
  int64_t bytes = 0;
  const uint32_t parts = connections_.parts_of(sender.send_connection, sender.one_sided);
  const uint32_t index = sender.post(bytes, parts);
  if (!paths_.accepts(sender.send_connection, index, bytes)) return;
  take_slot(sender);
  if (sender.one_sided && bytes == 0) {
    const uint32_t before = sender.sending.acknowledged;
    sender.acknowledge(index);  // empty message: the closing message accounts for it
    free_slots(sender, sender.sending.acknowledged - before);
    return;
  }
  ++sender.sending.written;
  const Departures departures = cutting_of(sender).done_when_left(bytes) ? paths_.departures(sender.send_connection)
                                                                         : Departures::unreported;
  if (departures == Departures::reported) sender.expect_departure(index, parts);
  paths_.send(lane, sender, index, bytes, departures == Departures::reported, now);
  if (departures == Departures::at_once) lanes_[lane].note_done(index);
}

void Lanes::on_grant(int32_t connection, uint32_t tag, const Grant& grant, Nanos now) {
  Ends& here = ends(connection);
  const uint32_t lane = here.sending.find(tag);
  if (lane == ActiveLanes::kNone) {
    if (!here.early.add(tag, grant)) {
      failure_.set(connection, connections_.text(connection) + ": too many messages are granted ahead");
    }
    return;
  }
  LaneRun& sender = lanes_[lane];
  if (sender.one_sided || sender.sending.credits - sender.sending.posted >= kMaxSlots) {
    refuse_grant(connection, tag);
    return;
  }
  sender.credit(grant);
  advance(lane, now);
}

void Lanes::on_message(const ArrivedMessage& message, Nanos now) {
  const uint32_t lane = ends(message.connection).receiving.find(message.tag);
  const auto arrival =
      lane == ActiveLanes::kNone ? LaneRun::Arrival::not_granted : lanes_[lane].arrive(message.index, message.bytes);
  if (arrival != LaneRun::Arrival::accepted) {
    refuse_message(message, arrival);
    return;
  }
  const bool whole = lanes_[lane].receiving.missing_parts[message.index % kMaxSlots] == 0;
  count_arrival(lane, whole ? 1 : 0, message.part_bytes, now);
}

void Lanes::on_one_sided(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, Nanos now) {
  Ends& here = ends(connection);
  const uint32_t lane = here.receiving.find(tag);
  const bool closing = index == kClosingIndex;
  if (lane == ActiveLanes::kNone) {
    if (here.early_arrivals.add(tag, bytes, closing)) return;
    failure_.set(connection, connections_.text(connection) + ": too much was written ahead of the ops it belongs to");
    return;
  }
  const auto arrival = closing ? lanes_[lane].close() : lanes_[lane].arrive_next(bytes);
  if (arrival != LaneRun::Arrival::accepted) {
    refuse_message({connection, tag, index, bytes, bytes}, arrival);
    return;
  }
  count_arrival(lane, closing ? 0 : 1, closing ? 0 : bytes, now);
}

int64_t Lanes::on_unseen(int32_t connection, uint32_t tag, uint64_t messages, Nanos now) {
  const uint32_t lane = ends(connection).receiving.find(tag);
  int64_t bytes = 0;
  if (lane == ActiveLanes::kNone || !lanes_[lane].arrive_unseen(messages, bytes)) {
    failure_.set(connection, connections_.text(connection) + ": op #" + std::to_string(tag) + " was closed as one of " +
                                 std::to_string(messages) + " messages, which is not what its schedule says");
    return -1;
  }
  count_arrival(lane, static_cast<int32_t>(messages), bytes, now);
  return bytes;
}

void Lanes::on_acknowledged(uint32_t lane, uint32_t index, Nanos now) {
  LaneRun& sender = lanes_[lane];
  assert(sender.in_use);
  if (index == kClosingIndex) {
    sender.sending.closing = LaneSender::Closing::over;
  } else {
    const uint32_t before = sender.sending.acknowledged;
    sender.acknowledge(index);
    free_slots(sender, sender.sending.acknowledged - before);
  }
  records_.note_acknowledged(sender.op_run, now);
  records_.note_progress(sender.op_run, now);
  advance(lane, now);
}

void Lanes::on_left(uint32_t lane, uint32_t index, Nanos now) {
  LaneRun& sender = lanes_[lane];
  assert(sender.in_use);
  sender.leave(index);
  records_.note_progress(sender.op_run, now);
  advance(lane, now);
}

void Lanes::count_arrival(uint32_t lane, int32_t messages, int64_t bytes, Nanos now) {
  const LaneRun& receiver = lanes_[lane];
  records_.note_received(receiver.op_run, messages, bytes, receiver.receiving.on_wire);
  records_.note_progress(receiver.op_run, now);
  records_.set_arrival(now);
  advance(lane, now);
  records_.set_trigger({});
}

int64_t Lanes::granted_bytes(int32_t connection, uint32_t tag, uint32_t index) const {
  const uint32_t lane = ends(connection).receiving.find(tag);
  return lane == ActiveLanes::kNone ? -1 : int64_t{lanes_[lane].receiving.expected_bytes[index % kMaxSlots]};
}

HeldAnswers Lanes::may_go_unanswered(int32_t connection, uint32_t tag, int64_t bytes) const {
  const Ends& here = ends(connection);
  const uint32_t lane = here.receiving.find(tag);
  const auto queue_pairs = static_cast<uint32_t>(std::max(1, connections_.planned(connection).qp_count));
  const Cutting* cutting = lane != ActiveLanes::kNone ? &cutting_of(lanes_[lane]) : here.last_received;
  if (cutting != nullptr && cutting->done_when_left(bytes)) {
    // At most half of the slots, over all queue pairs of the connection: the sender never runs out of them.
    return {static_cast<uint32_t>(cutting->connection_slots) / 2 / queue_pairs, false, true};
  }
  HeldAnswers held = lane != ActiveLanes::kNone ? lanes_[lane].may_go_unanswered(queue_pairs) : HeldAnswers{0, true};  // over
  const uint32_t run = lane != ActiveLanes::kNone ? lanes_[lane].op_run : here.last_received_run;
  held.ends_op = held.is_last && run != kNone && ops_[run].unexecuted_lanes == 0;
  return held;
}

void Lanes::refuse_grant(int32_t connection, uint32_t tag) {
  failure_.set(connection, connections_.text(connection) + ": more messages of op #" + std::to_string(tag) +
                               " are granted than it has slots");
}

void Lanes::refuse_message(const ArrivedMessage& message, LaneRun::Arrival arrival) {
  const char* cause = arrival == LaneRun::Arrival::not_granted ? "was never granted"
                     : arrival == LaneRun::Arrival::repeated  ? "had already arrived"
                                                              : "has another size than the schedule says";
  failure_.set(message.connection, connections_.text(message.connection) + ": message " + std::to_string(message.index) +
                                       " of op #" + std::to_string(message.tag) + " (" + std::to_string(message.bytes) +
                                       " bytes) " + cause);
}

void Lanes::add_waits(const QueuePairs& queue_pairs, std::vector<WaitRecord>& out) const {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    // A lane of an op that has not begun waits for the same as its rank.
    if (lanes_[lane].in_use && ops_[lanes_[lane].op_run].work.begun) add_waits(lanes_[lane], queue_pairs, out);
  }
}

void Lanes::add_waits(const LaneRun& lane, const QueuePairs& queue_pairs, std::vector<WaitRecord>& out) const {
  const OpRecord& record = records_[lane.op_run];
  WaitRecord wait{record.rank, record.op, record.iteration, WaitKind::data, -1, -1, -1, 0, 0, 0};
  const auto total = [](LaneCursor cursor, uint8_t flag) {
    int32_t count = 0;
    for (; !cursor.done(); cursor.advance()) count += (cursor.step().kind & flag) != 0 ? 1 : 0;
    return count;
  };
  const auto wait_to_send = [&](WaitKind kind) {
    wait.kind = kind;
    wait.connection = lane.send_connection;
    wait.peer_rank = connections_.planned(lane.send_connection).dst_rank;
  };
  const auto wait_for_acknowledgement = [&] {
    wait_to_send(WaitKind::acknowledgement);
    wait.psn = kNoPsn;
    for (const uint32_t qp : connections_[lane.send_connection].send_qps) {
      if (!FarEnds::is_far(qp) && queue_pairs[qp].deadline() != kNever) wait.psn = queue_pairs[qp].oldest_unacknowledged();
    }
    out.push_back(wait);
  };
  if (lane.send_connection >= 0 && lane.sending.posted < lane.sending.handed) {
    wait_to_send(WaitKind::clear_to_send);
    wait.messages_done = static_cast<int32_t>(lane.sending.posted);
    wait.messages_total = wait.messages_done + total(lane.posting, kEntrySend);
    out.push_back(wait);
  }
  if (lane.send_connection >= 0 && lane.sending.acknowledged < lane.sending.posted) {
    wait.messages_done = static_cast<int32_t>(lane.sending.acknowledged);
    wait.messages_total = static_cast<int32_t>(lane.sending.posted);
    wait_for_acknowledgement();
  }
  if (lane.execution.done()) return;
  if (!released(lane)) {
    out.push_back(wait_for_lane(lane, wait));
  } else if (!has_slot(lane)) {
    wait_for_acknowledgement();
  } else if ((lane.execution.step().kind & kEntryRecv) != 0 && !lane.received()) {
    wait.kind = WaitKind::data;
    wait.connection = lane.recv_connection;
    wait.messages_done = static_cast<int32_t>(lane.receiving.consumed);
    wait.messages_total = wait.messages_done + total(lane.execution, kEntryRecv);
    wait.peer_rank = connections_.planned(lane.recv_connection).src_rank;
    wait.psn = 0;
    out.push_back(wait);
  }
}

WaitRecord Lanes::wait_for_lane(const LaneRun& lane, WaitRecord wait) const {
  const uint32_t other = ops_[lane.op_run].lane_runs[static_cast<size_t>(lane.execution.step().after_lane)];
  wait.kind = WaitKind::lane;
  if (other < kLaneOver) {
    const LaneRun& awaited = lanes_[other];
    wait.connection = awaited.recv_connection >= 0 ? awaited.recv_connection : awaited.send_connection;
    wait.messages_done = static_cast<int32_t>(awaited.receiving.consumed);
  }
  if (wait.connection >= 0) {
    const PlannedConnection& c = connections_.planned(wait.connection);
    wait.peer_rank = c.src_rank == wait.rank ? c.dst_rank : c.src_rank;
  }
  return wait;
}

}  // namespace etloop
