// The ops of a port's ranks: issues ops whose dependencies are met, opens some ahead of time so that their grants are there
// before they begin, and completes them. Lanes do the work of an op.
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

// Number of point-to-point receives granted ahead of their RECV op (eager receives; docs/decisions.md).
inline constexpr size_t kEagerReceives = 16;

class Ops final : public OpSink {
 public:
  // `ranks`: the local ranks of the plan.
  Ops(const EnginePlan& plan, LocalRanks& ranks, Lanes& lanes, OpRecords& records, EventHeap& events, Failure& failure)
      : plan_(plan), ranks_(ranks), lanes_(lanes), records_(records), events_(events), failure_(failure) {}

  // Make a rank's program a list of ops to post, of which none begins by itself; call before the start.
  void expect_posts(uint32_t rank_index);
  // Begin one more use of a SEND or RECV of such a rank, with its own bytes; the record has `id` as its iteration. Both ends of a
  // pair post their messages in the same order.
  void post(uint32_t rank_index, int32_t op, int64_t bytes, int32_t id, Nanos now);
  // Nothing more is posted: the run no longer waits for these ranks.
  void end_posts();
  // Begin the first iteration of every rank.
  void start(Nanos now);
  // Whether an op may begin now.
  bool any_ready() const { return ready_head_ < ready_.size(); }
  // Begin every op whose dependencies are met.
  void issue(Nanos now) {
    if (!ready_.empty()) issue_ready(now);
  }
  void on_delay_over(uint32_t rank_index, int32_t op, Nanos due_ns) { complete(rank_index, op, due_ns); }
  void on_lanes_over(uint32_t run, Nanos now) override;
  void on_lanes_acknowledged(uint32_t run) override;
  // Open the next collective of the communicator: its receives are granted as soon as the current one expects no more data.
  void on_executed(uint32_t run, Nanos now) override;

  // True when all awaited ranks have finished, and everything that they sent is acknowledged.
  bool finished() const { return ranks_finished_ == ranks_.awaited() && unacknowledged_ == 0; }
  // Append what each delay and each op that has not begun waits for.
  void add_waits(std::vector<WaitRecord>& out) const;

 private:
  static constexpr uint32_t kNone = kNotOpened;
  static constexpr uint32_t kBegun = UINT32_MAX - 1;  // marks a RECV that has begun

  // An open op, by index among the open records.
  struct OpRun {
    uint32_t rank_index = 0;
    bool issued = false;
    bool completed = false;  // its record waits for acknowledgements
    bool posted = false;
    uint32_t tag = 0;           // of a posted op
    int64_t message_bytes = 0;  // of a posted op
  };

  void begin_iteration(uint32_t rank_index, Nanos now);
  void issue_ready(Nanos now);
  void issue_op(const ReadyOp& ready, Nanos now);
  uint32_t open_record(uint32_t rank_index, int32_t op, int32_t iteration);
  OpWork work_of(const LocalRank& rank, int32_t op, int32_t iteration) const;
  void open_lanes(uint32_t run, Nanos now);
  uint32_t open_ahead(uint32_t rank_index, int32_t op, int32_t iteration, Nanos now);
  uint64_t number_of(const LocalRank& rank, int32_t op, int32_t iteration) const;
  uint32_t take_ahead(LocalRank& rank, int32_t op);
  void open_small_ahead(uint32_t rank_index, int32_t op, Nanos now);
  bool open_next_ahead(uint32_t rank_index, CommunicatorSlot& slot, Nanos now);
  void open_eager(uint32_t rank_index, EagerQueue& queue, Nanos now);
  void finish_op(uint32_t run, Nanos now);
  void close_record(uint32_t run);
  void complete(uint32_t rank_index, int32_t op, Nanos at_ns);

  const EnginePlan& plan_;
  LocalRanks& ranks_;
  Lanes& lanes_;
  OpRecords& records_;
  EventHeap& events_;
  Failure& failure_;
  std::vector<ReadyOp> ready_;
  size_t ready_head_ = 0;
  size_t ranks_finished_ = 0;  // awaited ranks only
  size_t unacknowledged_ = 0;  // completed ops of awaited ranks whose records are open
  std::vector<OpRun> runs_;
};

}  // namespace etloop
