// The lanes of ops in progress: opens them batch by batch, advances each as far as grants, arrivals, acknowledgements and the
// lanes it depends on allow, and reports when the last lane of an op is over. Sends go to `MessagePaths`; arrivals are matched to
// lanes by connection and tag.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "core/connections.h"
#include "core/failure.h"
#include "core/local_ranks.h"
#include "core/message.h"
#include "core/message_paths.h"
#include "core/op_records.h"
#include "core/packets/queue_pairs.h"
#include "plan/plan.h"
#include "plan/records.h"

namespace etloop {

// Properties of an op that its lanes use.
struct OpWork {
  int32_t table = 0;  // row of the plan's schedules
  const Cutting* cutting = nullptr;
  int64_t message_bytes = 0;
  uint32_t tag = 0;
  const ConnectionIndex* send_to = nullptr;  // nullptr: the op sends nothing
  const ConnectionIndex* recv_from = nullptr;
  bool point_to_point = false;  // its one peer is at position 0
  bool begun = true;            // false: its lanes grant receives only, and wait for `begin`
};

// An arrived message, or part of one.
struct ArrivedMessage {
  int32_t connection;
  uint32_t tag;
  uint32_t index;
  int64_t bytes;       // of the whole message
  int64_t part_bytes;  // smaller if the data is split over queue pairs
};

// Receives the progress of the lanes of ops.
class OpSink {
 public:
  virtual ~OpSink() = default;
  // All data of the op has arrived, and all its sends were posted; sent data may still be in flight.
  virtual void on_executed(uint32_t run, Nanos now) = 0;
  // The op no longer waits for any lane; what it sent may still be unacknowledged (`Completion`).
  virtual void on_lanes_over(uint32_t run, Nanos now) = 0;
  // Everything that the op sent so far is acknowledged.
  virtual void on_lanes_acknowledged(uint32_t run) = 0;
};

class Lanes {
 public:
  // Collaborators; all of them outlive this.
  struct Parts {
    const EnginePlan& plan;
    const Connections& connections;
    MessagePaths& paths;
    OpRecords& records;
    Failure& failure;
  };
  explicit Lanes(const Parts& parts)
      : plan_(parts.plan),
        connections_(parts.connections),
        paths_(parts.paths),
        records_(parts.records),
        failure_(parts.failure) {}

  // Call after the connections are loaded. `ops` outlives this.
  void load(OpSink& ops);

  // Open the lanes of an op: those of the first batch of every channel. `run` is the op's index among the open records. True: the
  // op is over, and its sink was not called.
  bool open(uint32_t run, const OpWork& work, Nanos now);
  // Begin an op that was opened ahead and has open lanes; no effect if it has begun.
  void begin(uint32_t run, Nanos now);
  // Whether an op has messages to grant.
  bool grants(const OpWork& work) const;
  // Whether all lanes of an opened op are over.
  bool over(uint32_t run) const { return ops_[run].open_lanes == 0; }
  bool acknowledged(uint32_t run) const { return ops_[run].unacknowledged_lanes == 0; }
  // Number of ops like this one that are worth granting ahead of the current one; 1 unless its messages are small.
  uint32_t ops_ahead(const OpWork& work) const;

  // Handle an arrival for a lane; the lane, and every lane that this releases, advances.
  void on_grant(int32_t connection, uint32_t tag, const Grant& grant, Nanos now);
  void on_message(const ArrivedMessage& message, Nanos now);
  // A one-sided message, in order; `index` is kClosingIndex for the closing message.
  void on_one_sided(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, Nanos now);
  // The closing message of an op whose single messages were not observed (by a card): `messages` is their number according to the
  // sender. Returns their bytes, or -1 if the lane expects another number; then the run has failed.
  int64_t on_unseen(int32_t connection, uint32_t tag, uint64_t messages, Nanos now);
  void on_acknowledged(uint32_t lane, uint32_t index, Nanos now);
  // The last packet of a message, or of a part of one, has left the port, for messages posted with
  // `WorkRequest::reports_departure`.
  void on_left(uint32_t lane, uint32_t index, Nanos now);

  // Prefetch the end of a connection at which a message or a grant is to arrive, then the list of its lanes, then the lane.
  void expect_end(int32_t connection) const { prefetch(&ends(connection), sizeof(Ends)); }
  void expect_list(int32_t connection, bool receives) const { list(connection, receives).expect_find(); }
  void expect_lane(int32_t connection, uint32_t tag, bool receives) const {
    const uint32_t lane = list(connection, receives).find(tag);
    if (lane != ActiveLanes::kNone) expect_lane(lane);
  }
  void expect_lane(uint32_t number) const {
    const LaneRun& lane = lanes_[number];
    prefetch(&lane, sizeof(LaneRun) - sizeof(LaneSender) - sizeof(LaneReceiver) + kLineBytes);
    prefetch(&lane.sending.done);
    prefetch(&lane.receiving);
  }

  // Bytes of a granted message; -1: its lane is not open.
  int64_t granted_bytes(int32_t connection, uint32_t tag, uint32_t index) const;
  // Messages of `bytes` that may stay unacknowledged on each queue pair of the connection: because more of the op will follow,
  // none on the last, whose acknowledgement the sender waits for; or because its sender does not wait for any.
  HeldAnswers may_go_unanswered(int32_t connection, uint32_t tag, int64_t bytes) const;
  // Append what each lane waits for.
  void add_waits(const QueuePairs& queue_pairs, std::vector<WaitRecord>& out) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kLaneOver = UINT32_MAX - 1;

  // Progress of an op on one channel.
  struct ChannelRun {
    int32_t next_lane = -1;  // first lane not opened yet
    int32_t batch = 0;       // batch of the open lanes
    uint32_t open_lanes = 0;
  };
  struct OpLanes {
    OpWork work;
    int32_t first_lane = 0;
    int32_t end_lane = 0;
    uint32_t open_lanes = 0;
    uint32_t unacknowledged_lanes = 0;
    uint32_t unexecuted_lanes = 0;   // open lanes with steps left, plus one until the op has begun and all are open
    std::vector<uint32_t> held;      // lanes opened before the op began
    // If lanes of the table depend on each other: the LaneRun of each, kNone before it is opened, kLaneOver after it ended.
    std::vector<uint32_t> lane_runs;
    std::vector<ChannelRun> channels;  // if the table has several batches
  };
  // Per connection: its open lanes, and grants and messages that arrived before their lane was opened.
  struct Ends {
    ActiveLanes sending;
    ActiveLanes receiving;
    EarlyGrants early;
    EarlyArrivals early_arrivals;
    uint32_t shares_in_flight = 0;  // slots of unacknowledged messages, in shares of kMaxSlots
    SlotQueue waiting;              // lanes that found no slot free
    const Cutting* last_received = nullptr;  // of the last lane that ended here
    uint32_t last_received_run = kNone;      // its op
  };

  void prepare(uint32_t run, const OpWork& work);
  void note_executed(uint32_t run, Nanos now);
  void open_first_batches(uint32_t run, Nanos now);
  void open_next_batch(uint32_t run, int32_t channel, Nanos now);
  void open_lane(uint32_t run, int32_t lane_row, Nanos now);
  bool find_connections(const OpWork& work, const Lane& lane, int32_t& send_connection, int32_t& recv_connection) const;
  void connect_sending(LaneRun& lane, uint32_t number);
  void connect_receiving(LaneRun& lane, uint32_t number);
  void end_lane(uint32_t lane, Nanos now);
  void release_lane(uint32_t lane);
  void close_lane(uint32_t lane, Nanos now);

  void advance(uint32_t lane, Nanos now);
  void drain_work_list(Nanos now);
  void queue_lane(uint32_t lane);
  void advance_lane(uint32_t lane, Nanos now);
  bool released(const LaneRun& lane) const;
  bool may_grant(const LaneRun& lane) const;
  const Cutting& cutting_of(const LaneRun& lane) const { return *ops_[lane.op_run].work.cutting; }
  bool has_slot(const LaneRun& lane) const;
  void take_slot(const LaneRun& lane);
  void free_slots(const LaneRun& sender, uint32_t messages);
  void wake_dependents(uint32_t run, int32_t lane_number);
  void grant_next(uint32_t lane, Nanos now);
  void send_next(uint32_t lane, Nanos now);
  void count_arrival(uint32_t lane, int32_t messages, int64_t bytes, Nanos now);
  void refuse_grant(int32_t connection, uint32_t tag);
  void refuse_message(const ArrivedMessage& message, LaneRun::Arrival arrival);
  void add_waits(const LaneRun& lane, const QueuePairs& queue_pairs, std::vector<WaitRecord>& out) const;
  WaitRecord wait_for_lane(const LaneRun& lane, WaitRecord wait) const;
  Ends& ends(int32_t connection) { return ends_[connections_.place(connection)]; }
  const Ends& ends(int32_t connection) const { return ends_[connections_.place(connection)]; }
  const ActiveLanes& list(int32_t connection, bool receives) const {
    return receives ? ends(connection).receiving : ends(connection).sending;
  }

  const EnginePlan& plan_;
  const Connections& connections_;
  MessagePaths& paths_;
  OpRecords& records_;
  Failure& failure_;
  OpSink* op_sink_ = nullptr;
  LanePool lanes_;
  std::vector<OpLanes> ops_;      // by index of the op among the open records
  std::vector<Ends> ends_;        // by place of the connection
  std::vector<uint32_t> work_list_;  // work list: lanes that may be able to advance
  bool is_draining_ = false;
};

}  // namespace etloop
