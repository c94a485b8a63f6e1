// The ops of a port's ranks: which may begin when, by the dependencies of their programs; what is opened ahead, so that its
// grants are there before it begins; and when each is over. The work of an op is done by its lanes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/lanes.h"
#include "core/local_ranks.h"
#include "core/op_records.h"
#include "core/rank.h"
#include "plan/plan.h"
#include "plan/records.h"

namespace etloop {

// Point-to-point receives are granted this many ahead of their RECV op (eager receives; docs/decisions.md).
inline constexpr size_t kEagerReceives = 16;

class Ops final : public OpSink {
 public:
  // `ranks` of the plan are here.
  Ops(const EnginePlan& plan, LocalRanks& ranks, Lanes& lanes, OpRecords& records, EventHeap& events, Failure& failure)
      : plan_(plan), ranks_(ranks), lanes_(lanes), records_(records), events_(events), failure_(failure) {}

  // Begins the first iteration of every rank.
  void start(Nanos now);
  // Whether an op may begin now.
  bool any_ready() const { return ready_head_ < ready_.size(); }
  // Begins every op whose dependencies are met.
  void issue(Nanos now) {
    if (!ready_.empty()) issue_ready(now);
  }
  void on_delay_over(uint32_t rank_index, int32_t op, Nanos due_ns) { complete(rank_index, op, due_ns); }
  void on_lanes_over(uint32_t run, Nanos now) override;
  // Opens the next collective of the communicator: its messages are granted as soon as nothing of this one is to come.
  void on_executed(uint32_t run, Nanos now) override;

  // All ranks that the run waits for.
  bool finished() const { return ranks_finished_ == ranks_.awaited(); }
  // What each op that has not begun, or is a delay, waits for.
  void add_waits(std::vector<WaitRecord>& out) const;

 private:
  static constexpr uint32_t kNone = kNotOpened;
  static constexpr uint32_t kBegun = UINT32_MAX - 1;  // of a RECV or collective

  // An op that was opened, by its number among the records.
  struct OpRun {
    uint32_t rank_index = 0;
    bool issued = false;
  };

  void begin_iteration(uint32_t rank_index, Nanos now);
  void issue_ready(Nanos now);
  void issue_op(const ReadyOp& ready, Nanos now);
  uint32_t open_record(uint32_t rank_index, int32_t op, int32_t iteration);
  OpWork work_of(const LocalRank& rank, int32_t op, int32_t iteration) const;
  void open_lanes(uint32_t run, Nanos now);
  uint32_t open_ahead(uint32_t rank_index, int32_t op, int32_t iteration, Nanos now);
  void open_eager(uint32_t rank_index, EagerQueue& queue, Nanos now);
  void finish_op(uint32_t run, Nanos now);
  void complete(uint32_t rank_index, int32_t op, Nanos at_ns);

  const EnginePlan& plan_;
  LocalRanks& ranks_;
  Lanes& lanes_;
  OpRecords& records_;
  EventHeap& events_;
  Failure& failure_;
  std::vector<ReadyOp> ready_;
  size_t ready_head_ = 0;
  size_t ranks_finished_ = 0;  // of those that are awaited
  std::vector<OpRun> runs_;
};

}  // namespace etloop
