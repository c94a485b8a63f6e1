#include "core/ops.h"

#include <algorithm>
#include <utility>

namespace etloop {

void Ops::start(Nanos now) {
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].posted) begin_iteration(r, now);
  }
}

void Ops::expect_posts(uint32_t rank_index) {
  LocalRank& rank = ranks_[rank_index];
  rank.posted = true;
  rank.eager.clear();
}

void Ops::post(uint32_t rank_index, int32_t op, int64_t bytes, int32_t id, Nanos now) {
  LocalRank& rank = ranks_[rank_index];
  const Program& program = rank.run.program();
  PeerSlot& slot = rank.peers[static_cast<size_t>(program.slot[static_cast<size_t>(op)])];
  const bool sends = program.kind[static_cast<size_t>(op)] == OpKind::send;
  const uint32_t run = open_record(rank_index, op, id);
  const uint32_t tag = sends ? slot.posted_sends++ : slot.posted_recvs++;
  runs_[run] = {.rank_index = rank_index, .issued = true, .posted = true, .tag = tag, .message_bytes = bytes};
  records_[run].intended_ns = now;
  records_[run].issued_ns = now;
  open_lanes(run, now);
}

void Ops::end_posts() {
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (std::exchange(ranks_[r].posted, false) && ranks_[r].awaited) ++ranks_finished_;
  }
}

void Ops::begin_iteration(uint32_t rank_index, Nanos now) {
  LocalRank& rank = ranks_[rank_index];
  // A rank without ops never completes one: its iterations are over at once.
  do {
    rank.run.begin_iteration(now, ready_);
  } while (rank.run.iteration_over() && !rank.run.finished());
  if (rank.run.finished()) {
    if (rank.awaited) ++ranks_finished_;
    return;
  }
  rank.ahead_run.assign(rank.run.program().size(), kNone);
  for (EagerQueue& queue : rank.eager) {
    queue.next = 0;
    for (size_t ahead = 0; ahead < kEagerReceives; ++ahead) open_eager(rank_index, queue, now);
  }
}

// Open ahead the next receive of a pair that has not begun.
void Ops::open_eager(uint32_t rank_index, EagerQueue& queue, Nanos now) {
  LocalRank& rank = ranks_[rank_index];
  while (queue.next < queue.ops.size()) {
    const int32_t op = queue.ops[queue.next++];
    if (rank.ahead_run[static_cast<size_t>(op)] == kBegun) continue;
    rank.ahead_run[static_cast<size_t>(op)] = open_ahead(rank_index, op, rank.run.iteration(), now);
    return;
  }
}

uint32_t Ops::open_ahead(uint32_t rank_index, int32_t op, int32_t iteration, Nanos now) {
  const uint32_t run = open_record(rank_index, op, iteration);
  open_lanes(run, now);
  return run;
}

uint64_t Ops::number_of(const LocalRank& rank, int32_t op, int32_t iteration) const {
  const Program& program = rank.run.program();
  const std::vector<int32_t>& collectives =
      rank.communicators[static_cast<size_t>(program.slot[static_cast<size_t>(op)])].collectives;
  const auto at = std::lower_bound(
      collectives.begin(), collectives.end(), program.sequence[static_cast<size_t>(op)],
      [&program](int32_t other, int32_t sequence) { return program.sequence[static_cast<size_t>(other)] < sequence; });
  return static_cast<uint64_t>(iteration) * collectives.size() + static_cast<uint64_t>(at - collectives.begin());
}

// Return the record of a collective that begins and was opened ahead, else kNone.
uint32_t Ops::take_ahead(LocalRank& rank, int32_t op) {
  CommunicatorSlot& slot = rank.communicators[static_cast<size_t>(rank.run.program().slot[static_cast<size_t>(op)])];
  const uint64_t number = number_of(rank, op, rank.run.iteration());
  slot.next_ahead = std::max(slot.next_ahead, number + 1);
  const auto opened = std::ranges::find(slot.ahead, number, &CommunicatorSlot::Ahead::number);
  if (opened == slot.ahead.end()) return kNone;
  const uint32_t run = opened->run;
  slot.ahead.erase(opened);
  return run;
}

// Open the next collective of a communicator that has messages to grant. False: there is none, or it waits for another event.
bool Ops::open_next_ahead(uint32_t rank_index, CommunicatorSlot& slot, Nanos now) {
  const LocalRank& rank = ranks_[rank_index];
  const size_t ops = slot.collectives.size();
  const uint64_t number = slot.next_ahead;
  const uint64_t iteration = number / ops;
  if (iteration >= static_cast<uint64_t>(rank.run.iterations())) return false;
  const int32_t op = slot.collectives[number % ops];
  const OpWork work = work_of(rank, op, static_cast<int32_t>(iteration));
  if (slot.ahead.size() >= lanes_.ops_ahead(work) || !lanes_.grants(work)) return false;
  ++slot.next_ahead;
  slot.ahead.push_back({number, open_ahead(rank_index, op, static_cast<int32_t>(iteration), now)});
  return true;
}

// Keep small collectives granted ahead: the grant of a message then never waits for the op before. Open half of them at a time,
// whose grants leave together.
void Ops::open_small_ahead(uint32_t rank_index, int32_t op, Nanos now) {
  LocalRank& rank = ranks_[rank_index];
  CommunicatorSlot& slot = rank.communicators[static_cast<size_t>(rank.run.program().slot[static_cast<size_t>(op)])];
  const uint32_t most = lanes_.ops_ahead(work_of(rank, op, rank.run.iteration()));
  if (most == 1 || slot.ahead.size() > most / 2) return;
  while (failure_.none() && open_next_ahead(rank_index, slot, now)) {
  }
}

// NCCL's proxy likewise starts the next receive of a connection when the previous one is done, whether or not its kernel has
// begun.
void Ops::on_executed(uint32_t run, Nanos now) {
  const uint32_t rank_index = runs_[run].rank_index;
  LocalRank& rank = ranks_[rank_index];
  const Program& program = rank.run.program();
  const auto op = static_cast<size_t>(records_[run].op);
  if (program.kind[op] != OpKind::collective) return;
  CommunicatorSlot& slot = rank.communicators[static_cast<size_t>(program.slot[op])];
  if (slot.ahead.empty()) open_next_ahead(rank_index, slot, now);
}

void Ops::issue_ready(Nanos now) {
  while (failure_.none() && ready_head_ < ready_.size()) {
    const ReadyOp next = ready_[ready_head_++];
    records_.set_trigger(next.trigger);
    issue_op(next, now);
    records_.set_trigger({});
  }
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
}

void Ops::issue_op(const ReadyOp& ready, Nanos now) {
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
  const bool is_collective = program.kind[op] == OpKind::collective;
  uint32_t run = kNone;
  if (is_collective) run = take_ahead(rank, ready.op);
  else if (program.kind[op] == OpKind::recv) run = std::exchange(rank.ahead_run[op], kBegun);
  const bool opened_ahead = run != kNone;
  if (!opened_ahead) run = open_record(ready.rank_index, ready.op, rank.run.iteration());
  runs_[run].issued = true;
  records_[run].intended_ns = ready.intended_ns;
  records_[run].issued_ns = now;
  if (!opened_ahead) {
    open_lanes(run, now);
  } else if (lanes_.over(run)) {
    finish_op(run, now);
  } else {
    lanes_.begin(run, now);
  }
  if (is_collective) open_small_ahead(ready.rank_index, ready.op, now);
}

uint32_t Ops::open_record(uint32_t rank_index, int32_t op, int32_t iteration) {
  const LocalRank& rank = ranks_[rank_index];
  const uint32_t run = records_.open(rank.rank, op, iteration, rank.awaited);
  if (run >= runs_.size()) runs_.resize(run + 1);
  runs_[run] = {.rank_index = rank_index};
  return run;
}

OpWork Ops::work_of(const LocalRank& rank, int32_t op, int32_t iteration) const {
  const Program& program = rank.run.program();
  const auto index = static_cast<size_t>(op);
  const auto slot = static_cast<size_t>(program.slot[index]);
  OpWork work;
  int32_t position = 0;
  uint32_t ops = 0;  // ops of the same kind and peers, per iteration
  switch (program.kind[index]) {
    case OpKind::collective: {
      const CommunicatorSlot& communicator = rank.communicators[slot];
      work.send_to = &communicator.send_to;
      work.recv_from = &communicator.recv_from;
      position = communicator.position;
      ops = communicator.ops;
      break;
    }
    case OpKind::send:
      work.send_to = &rank.peers[slot].send_to;
      work.point_to_point = true;
      ops = rank.peers[slot].sends;
      break;
    case OpKind::recv:
      work.recv_from = &rank.peers[slot].recv_from;
      work.point_to_point = true;
      position = 1;
      ops = rank.peers[slot].recvs;
      break;
    case OpKind::delay: break;
  }
  work.table = plan_.schedules.table(program.schedule[index], position);
  work.cutting = &plan_.schedules.cutting[static_cast<size_t>(program.schedule[index])];
  work.message_bytes = program.message_bytes[index];
  work.tag = static_cast<uint32_t>(iteration) * ops + static_cast<uint32_t>(program.sequence[index]);
  return work;
}

void Ops::open_lanes(uint32_t run, Nanos now) {
  const bool posted = runs_[run].posted;
  OpWork work = work_of(ranks_[runs_[run].rank_index], records_[run].op, posted ? 0 : records_[run].iteration);
  if (posted) {
    work.tag = runs_[run].tag;
    work.message_bytes = runs_[run].message_bytes;
  }
  // A RECV opened ahead accepts data; a collective only once it has begun, because it would forward the data.
  work.begun = runs_[run].issued || work.send_to == nullptr;
  if (lanes_.open(run, work, now) && runs_[run].issued) finish_op(run, now);
}

void Ops::on_lanes_over(uint32_t run, Nanos now) {
  const uint32_t rank_index = runs_[run].rank_index;
  LocalRank& rank = ranks_[rank_index];
  const Program& program = rank.run.program();
  const auto op = static_cast<size_t>(records_[run].op);
  if (program.kind[op] == OpKind::recv) {
    for (EagerQueue& queue : rank.eager) {
      if (queue.slot == static_cast<uint32_t>(program.slot[op])) open_eager(rank_index, queue, now);
    }
  }
  if (runs_[run].issued) finish_op(run, now);
}

void Ops::finish_op(uint32_t run, Nanos now) {
  const uint32_t rank_index = runs_[run].rank_index;
  const int32_t op = records_[run].op;
  const bool posted = runs_[run].posted;
  const bool awaited = ranks_[rank_index].awaited;
  runs_[run].completed = true;
  unacknowledged_ += awaited ? 1 : 0;
  const Nanos completed_ns = records_.complete(run, now);
  if (lanes_.acknowledged(run)) close_record(run);
  if (posted) {
    records_.note_progress(awaited, completed_ns);
  } else {
    complete(rank_index, op, completed_ns);
  }
}

void Ops::on_lanes_acknowledged(uint32_t run) {
  if (runs_[run].completed) close_record(run);
}

void Ops::close_record(uint32_t run) {
  unacknowledged_ -= ranks_[runs_[run].rank_index].awaited ? 1 : 0;
  records_.close(run);
}

void Ops::complete(uint32_t rank_index, int32_t op, Nanos at_ns) {
  LocalRank& rank = ranks_[rank_index];
  const size_t first_new = ready_.size();
  rank.run.complete(op, at_ns, ready_);
  for (size_t i = first_new; i < ready_.size(); ++i) ready_[i].trigger = records_.trigger();
  records_.note_progress(rank.awaited, at_ns);
  if (!rank.run.iteration_over()) return;
  if (rank.run.finished()) {
    if (rank.awaited) ++ranks_finished_;
  } else {
    begin_iteration(rank_index, rank.run.last_completion_ns());
  }
}

void Ops::add_waits(std::vector<WaitRecord>& out) const {
  constexpr size_t kMostPerRank = 4096;
  for (const LocalRank& rank : ranks_) {
    if (!rank.run.started() || rank.run.finished()) continue;
    const Program& program = rank.run.program();
    size_t reported = 0;
    for (size_t op = 0; op < program.size() && reported < kMostPerRank; ++op) {
      const auto index = static_cast<int32_t>(op);
      if (!rank.run.pending(index)) continue;
      WaitRecord wait{rank.rank, index, rank.run.iteration(), WaitKind::delay, -1, -1, -1, 0, 0, 0};
      if (rank.run.waits_for_dependency(index)) {
        wait.kind = WaitKind::dependency;
        wait.blocking_op = rank.run.blocking_dependency(index);
      } else if (program.kind[op] != OpKind::delay) {
        continue;  // its lanes report what it waits for
      }
      out.push_back(wait);
      ++reported;
    }
  }
}

}  // namespace etloop
