// The execution state of a lane: which of its messages may be granted, executed or posted. Pure counting; the core acts on it.
//
// Sender and receiver of a connection identify a message by (tag, index): the tag names the op, the index counts the lane's
// messages. The receiver grants a message by a clear-to-send write with the tag and the data's address and key. The engine's
// addresses encode tag and index, so that the RETH alone identifies an arriving message; the sender repeats the granted address.
// Model: NCCL's proxy pipeline (NVIDIA/nccl:src/transport/net.cc), a ring of `slots` messages between the two ends. A one-sided
// lane has no grants: its messages are in order on one queue pair, and a closing message ends them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "plan/plan.h"

namespace etloop {

// Data addresses: 8 bits base, 32 bits tag, one set bit, 23 bits message index. The set bit keeps bytes 2 and 3 of a grant
// non-zero: otherwise Wireshark takes bytes 0 and 1 for an EtherType.
inline constexpr uint64_t kBufferBase = 0x7F00'0000'0080'0000;
inline constexpr uint32_t kMaxMessagesPerLane = (1U << 23) - 8;
inline constexpr uint32_t kClosingIndex = kMaxMessagesPerLane;  // its address is a multiple of 8, as atomics require
inline constexpr uint32_t kProbeIndex = kClosingIndex + 1;  // probe of a card, which can only send requests
inline constexpr int64_t kMaxMessageBytes = int64_t{1} << 31;  // of one RDMA write
constexpr uint64_t buffer_address(uint32_t tag, uint32_t index) {
  return kBufferBase | (static_cast<uint64_t>(tag) << 24) | index;
}
constexpr uint32_t address_tag(uint64_t va) { return static_cast<uint32_t>(va >> 24); }
constexpr uint32_t address_index(uint64_t va) { return static_cast<uint32_t>(va & 0x7FFFFF); }

inline constexpr int32_t kNoConnection = -1;

// Most messages of one connection and op in flight; also the size of a lane's per-message arrays.
inline constexpr uint32_t kMaxSlots = 64;

// The granted address of a message, and the grant's sequence number on its connection.
struct Grant {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t number = 0;
};

// One of the `parts` of a message that is split over queue pairs (NCCL_IB_SPLIT_DATA_ON_QPS): equal multiples of 128 bytes, the
// last ones shorter or empty.
struct MessagePart {
  uint32_t offset;
  uint32_t bytes;
};
MessagePart message_part(int64_t message_bytes, uint32_t part, uint32_t parts);

// Counters of the messages that a lane sends. Indices count the lane's messages, from 0.
struct LaneSender {
  enum class Closing : uint8_t { none, open, posted, left, over };

  uint32_t handed = 0;
  uint32_t credits = 0;
  uint32_t posted = 0;
  uint32_t acknowledged = 0;
  uint64_t acknowledged_ahead = 0;                     // bit i: message acknowledged + i is acknowledged
  std::array<Grant, kMaxSlots> grants{};               // of message index % 64
  std::array<uint8_t, kMaxSlots> unacknowledged_parts{};
  uint32_t done = 0;                                   // messages that the op no longer waits for
  uint64_t done_ahead = 0;                             // bit index % 64 of the unacknowledged messages that are done
  uint32_t leaving = 0;                                // parts whose departure is still to be reported
  std::array<uint8_t, kMaxSlots> staying_parts{};      // of message index % 64
  Closing closing = Closing::none;                    // of a one-sided lane
  uint32_t written = 0;                                // of a one-sided lane: non-empty messages
};

// Counters of the messages that a lane receives.
struct LaneReceiver {
  uint32_t granted = 0;                                // one-sided: arrived
  uint32_t consumed = 0;
  uint64_t arrived = 0;                                // bit i: message consumed + i has arrived
  std::array<uint32_t, kMaxSlots> expected_bytes{};    // of message index % 64
  std::array<uint8_t, kMaxSlots> missing_parts{};
  uint8_t parts = 1;                                   // parts of every arriving message
  bool closed = true;                                  // of a one-sided lane: no more messages follow
  bool on_wire = false;                                // false: the connection is inside the host
};

// Answers that a receiver may hold back.
struct HeldAnswers {
  uint32_t messages = 0;  // most unacknowledged messages of a queue pair
  bool is_last = false;   // no more messages of the lane follow
  bool rests = false;     // the sender does not wait for them
  bool ends_op = false;   // the sender's op waits for it, and this rank has no more of that op to send
};

inline constexpr uint32_t kNoLane = UINT32_MAX;

// Invariants: posted <= handed, posted <= credits (unless one-sided), acknowledged <= done <= posted, consumed <= granted.
struct LaneRun {
  uint32_t op_run = 0;
  uint32_t tag = 0;
  int32_t channel = 0;
  int32_t send_connection = kNoConnection;  // row of EnginePlan::connections
  int32_t recv_connection = kNoConnection;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;   // least size that a grant offers
  int32_t number = 0;        // index of the lane in its table
  bool in_use = false;
  bool queued = false;       // on the work list of `Lanes`
  bool one_sided = false;
  bool ended = false;        // its op no longer waits for it
  bool waits_for_slot = false;  // in the `SlotQueue` of its send connection, between these two
  uint32_t waits_after = kNoLane;
  uint32_t waits_before = kNoLane;

  LaneCursor execution;
  LaneCursor posting;   // at the next message to post, if any is left
  LaneCursor granting;  // at the next message to grant, if any is left

  LaneSender sending;
  LaneReceiver receiving;

  bool may_grant() const { return !one_sided && !granting.done() && receiving.granted < receiving.consumed + slots; }
  bool may_post() const { return sending.posted < sending.handed && (one_sided || sending.posted < sending.credits); }
  bool may_close() const {
    return sending.closing == LaneSender::Closing::open && posting.done() && sending.posted == sending.handed;
  }
  // How many messages may stay unacknowledged on each of the `queue_pairs` that the connection's messages take in turn. An
  // acknowledgement covers one queue pair: it may wait only if enough messages follow that this queue pair gets another one. All
  // together: all slots, if every message has its own slot, else fewer than half the slots, so that the sender never runs out.
  HeldAnswers may_go_unanswered(uint32_t queue_pairs) const {
    const auto here = static_cast<uint32_t>(std::popcount(receiving.arrived));
    const uint32_t follow = receiving.granted - receiving.consumed - here + (granting.done() ? 0 : 1);
    if (follow < queue_pairs) return {0, follow == 0};
    const uint32_t most = granting.done() && receiving.granted <= slots ? slots : (slots < 2 ? 0 : slots / 2 - 1);
    return {most / queue_pairs, false};
  }
  bool received() const { return one_sided ? receiving.consumed < receiving.granted : (receiving.arrived & 1) != 0; }
  // Whether the next entry can execute, apart from its dependencies on other lanes.
  bool may_execute() const {
    if (execution.done()) return false;
    const LaneStep step = execution.step();
    if ((step.kind & kEntryRecv) != 0 && !received()) return false;
    return (step.kind & kEntrySend) == 0 || sending.handed - sending.acknowledged < slots;
  }
  void execute();
  // Advance to the next grant; returns its index, and its wire bytes in `bytes`.
  uint32_t grant(int64_t& bytes);
  void credit(const Grant& grant) { sending.grants[sending.credits++ % kMaxSlots] = grant; }
  // Advance to the next send, which leaves in `parts` parts; returns its index, and its wire bytes in `bytes`.
  uint32_t post(int64_t& bytes, uint32_t parts);
  // Note the acknowledgement of one part of message `index`. True: the whole message is acknowledged.
  bool acknowledge(uint32_t index);
  // The departure of the last packet of each of the `parts` parts of message `index` will be reported by `leave`.
  void expect_departure(uint32_t index, uint32_t parts) {
    sending.leaving += parts;
    sending.staying_parts[index % kMaxSlots] = static_cast<uint8_t>(parts);
  }
  // Note the departure of one part of message `index`, kClosingIndex included.
  void leave(uint32_t index);
  // The op no longer waits for message `index`, which may be noted twice.
  void note_done(uint32_t index);
  enum class Arrival : uint8_t { accepted, not_granted, repeated, wrong_size };
  // Note the arrival of one part of a message of `bytes` in total.
  Arrival arrive(uint32_t index, int64_t bytes);
  // One-sided: note the next non-empty message, or the closing message.
  Arrival arrive_next(int64_t bytes);
  Arrival close();
  // One-sided over a card, which does not report single messages: check the message count of the closing message against the
  // schedule. Their total bytes are returned in `bytes`.
  bool arrive_unseen(uint64_t messages, int64_t& bytes);
  // Count messages that arrived before the lane was opened. False: the schedule has others.
  bool arrive_early(uint32_t messages, int64_t bytes);
  // Whether the op no longer waits for this lane.
  bool done() const {
    const bool closed = sending.closing != LaneSender::Closing::open && sending.closing != LaneSender::Closing::posted;
    return execution.done() && sending.done == sending.handed && closed && receiving.closed;
  }
  // Whether nothing more is to come for a lane that is done.
  bool acknowledged() const {
    const bool closed = sending.closing == LaneSender::Closing::none || sending.closing == LaneSender::Closing::over;
    return sending.acknowledged == sending.handed && closed && sending.leaving == 0;
  }
};

// Advance `cursor` to the next step that has `flag`, or to its end.
void seek(LaneCursor& cursor, uint8_t flag);

// Lanes in use, by index; indices are stable and reused.
class LanePool {
 public:
  uint32_t open();
  void close(uint32_t lane);
  LaneRun& operator[](uint32_t lane) { return lanes_[lane]; }
  const LaneRun& operator[](uint32_t lane) const { return lanes_[lane]; }
  size_t size() const { return lanes_.size(); }

 private:
  std::vector<LaneRun> lanes_;
  std::vector<uint32_t> free_;
};

// The open lanes of one end of a connection, found by tag: few of an algorithm, hundreds of requests that are served. Sorted, and
// usually opened in the order of their tags.
class ActiveLanes {
 public:
  static constexpr uint32_t kNone = kNoLane;
  void add(uint32_t tag, uint32_t lane);
  void remove(uint32_t tag);
  uint32_t find(uint32_t tag) const;
  // Prefetch the memory that `find` reads.
  void expect_find() const { prefetch(active_.data()); }

 private:
  struct Item {
    uint32_t tag;
    uint32_t lane;
  };
  std::vector<Item> active_;
};

// The lanes that wait for a slot of one connection, the earliest op first, as a queue pair carries its messages in the order in
// which they were posted. The links are in the lanes.
class SlotQueue {
 public:
  // No effect if the lane waits already.
  void add(LanePool& lanes, uint32_t lane);
  // No effect if the lane does not wait.
  void remove(LanePool& lanes, uint32_t lane);
  // kNoLane if none waits.
  uint32_t first() const { return first_; }

 private:
  uint32_t first_ = kNoLane;
  uint32_t last_ = kNoLane;
};

// Grants that arrived before the sender's op began.
class EarlyGrants {
 public:
  static constexpr size_t kLimit = 1U << 16;
  // False: more than kLimit messages are granted ahead, which a correct peer never does.
  bool add(uint32_t tag, const Grant& grant);
  // Move the grants of the lane's op to the lane, in order. False: there are more than it has slots.
  bool take(LaneRun& lane);

 private:
  struct Item {
    uint32_t tag;
    Grant grant;
  };
  std::vector<Item> early_;
};

// One-sided messages that arrived before the receiver's op began.
class EarlyArrivals {
 public:
  static constexpr size_t kLimit = 1U << 16;
  struct Item {
    uint32_t tag = 0;
    uint32_t messages = 0;
    int64_t bytes = 0;
    bool closed = false;
  };
  // False: messages of more than kLimit ops are ahead, or a message follows its op's closing message.
  bool add(uint32_t tag, int64_t bytes, bool closing);
  Item take(uint32_t tag);

 private:
  std::vector<Item> early_;
};

}  // namespace etloop
