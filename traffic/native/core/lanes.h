// The lanes of ops under way: opens them batch by batch, moves each as far as grants, arrivals, acknowledgements and the lanes
// it waits for let it, and tells when an op has none left. What a lane sends goes to `MessagePaths`; what arrives for it
// comes in here, by connection and tag.
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

// What an op is made of, for its lanes.
struct OpWork {
  int32_t table = 0;  // of the plan's schedules
  const Cutting* cutting = nullptr;
  int64_t message_bytes = 0;
  uint32_t tag = 0;
  const ConnectionIndex* send_to = nullptr;  // nullptr: it sends nothing
  const ConnectionIndex* recv_from = nullptr;
  bool point_to_point = false;  // its one peer is at position 0
  bool begun = true;            // else its lanes grant what they will receive, and wait for `begin`
};

// A message of a lane that receives, or a part of one.
struct ArrivedMessage {
  int32_t connection;
  uint32_t tag;
  uint32_t index;
  int64_t bytes;       // of all of it
  int64_t part_bytes;  // less if its data is split over queue pairs
};

// Who is to know how far the lanes of an op are.
class OpSink {
 public:
  virtual ~OpSink() = default;
  // All that an op receives is here, and all that it sends was handed over; what it sent may still be under way.
  virtual void on_executed(uint32_t run, Nanos now) = 0;
  virtual void on_lanes_over(uint32_t run, Nanos now) = 0;
};

class Lanes {
 public:
  // What they work with; all of it outlives them.
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

  // Once the connections are known. `ops` outlives this.
  void load(OpSink& ops);

  // Opens the lanes of an op: those of the first batch of every channel. `run` is the op's number among the records.
  // True: the op is over, without its sink having been told.
  bool open(uint32_t run, const OpWork& work, Nanos now);
  // An op that was opened ahead, and has lanes, begins; if it has not.
  void begin(uint32_t run, Nanos now);
  // Whether an op has messages to grant.
  bool grants(const OpWork& work) const;
  // Whether all lanes of an op that was opened are over.
  bool over(uint32_t run) const { return ops_[run].open_lanes == 0; }

  // What came for a lane. It, and every lane that this releases, moves.
  void on_grant(int32_t connection, uint32_t tag, const Grant& grant, Nanos now);
  void on_message(const ArrivedMessage& message, Nanos now);
  // Without grants, in order; `index` is kClosingIndex where all of the op is here.
  void on_one_sided(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, Nanos now);
  // The same where nobody saw the single messages: what closed them says how many they were. Returns their bytes,
  // or -1 where that is not what the lane expects, and the run has failed.
  int64_t on_unseen(int32_t connection, uint32_t tag, uint64_t messages, Nanos now);
  void on_acknowledged(uint32_t lane, uint32_t index, Nanos now);

  // Bytes of a message that was granted; -1: its lane is not open.
  int64_t granted_bytes(int32_t connection, uint32_t tag, uint32_t index) const;
  // How many messages of an op its sender can leave behind without an answer to any, as others of it are to follow; 0: none
  // are, and it waits for the answer to the last.
  uint32_t may_go_unanswered(int32_t connection, uint32_t tag) const;
  // What each lane waits for.
  void add_waits(const QueuePairs& queue_pairs, std::vector<WaitRecord>& out) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kLaneOver = UINT32_MAX - 1;

  // Where an op stands on one channel.
  struct ChannelRun {
    int32_t next_lane = -1;  // first of those not opened yet
    int32_t batch = 0;       // of the lanes that are open
    uint32_t open_lanes = 0;
  };
  struct OpLanes {
    OpWork work;
    int32_t first_lane = 0;
    int32_t end_lane = 0;
    uint32_t open_lanes = 0;
    uint32_t unexecuted_lanes = 0;   // open ones with steps left, and one until the op has begun and all are open
    std::vector<uint32_t> held;      // lanes that were opened before the op began
    // Where lanes of the table wait for each other: the LaneRun of each, kNone before it is opened, kLaneOver after.
    std::vector<uint32_t> lane_runs;
    std::vector<ChannelRun> channels;  // of a table with several batches
  };
  // Of a connection: its lanes under way, and what came before theirs were.
  struct Ends {
    ActiveLanes sending;
    ActiveLanes receiving;
    EarlyGrants early;
    EarlyArrivals early_arrivals;
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

  void pump(uint32_t lane, Nanos now);
  void move_lanes(Nanos now);
  void queue_lane(uint32_t lane);
  void move_lane(uint32_t lane, Nanos now);
  bool released(const LaneRun& lane) const;
  bool may_grant(const LaneRun& lane) const;
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

  const EnginePlan& plan_;
  const Connections& connections_;
  MessagePaths& paths_;
  OpRecords& records_;
  Failure& failure_;
  OpSink* op_sink_ = nullptr;
  LanePool lanes_;
  std::vector<OpLanes> ops_;      // by number of the op among the records
  std::vector<Ends> ends_;        // by place of the connection
  std::vector<uint32_t> moving_;  // lanes that may be able to move; worked off in order
  bool is_moving_ = false;
};

}  // namespace etloop
