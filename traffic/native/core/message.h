// A lane under execution: which of its messages may be granted, executed, posted. Pure counting; the core acts on it.
//
// Sender and receiver of a connection agree on messages by (tag, index): the tag names the op, the index counts the
// lane's messages. The receiver grants a message by a clear-to-send write that carries the tag and the address and key
// that the data goes to. Our addresses spell tag and index, so an arriving message says by its RETH alone what it is;
// whoever sends only repeats what it was granted.
// Model: NCCL's proxy pipeline (NVIDIA/nccl:src/transport/net.cc): a ring of `slots` messages between the two ends.
// A one-sided lane has no grants: its messages follow each other on one queue pair and a closing one ends them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace etloop {

// Data addresses: 8 bits base, 32 bits tag, one bit set, 23 bits message index. The set bit keeps the second pair of
// bytes of a grant from being zero, where Wireshark would guess at an EtherType in the first pair.
inline constexpr uint64_t kBufferBase = 0x7F00'0000'0080'0000;
inline constexpr uint32_t kMaxMessagesPerLane = (1U << 23) - 8;
inline constexpr uint32_t kClosingIndex = kMaxMessagesPerLane;  // an address that is a multiple of 8, as atomics want it
inline constexpr uint32_t kProbeIndex = kClosingIndex + 1;  // of the probe of a card, which sends nothing but requests
inline constexpr int64_t kMaxMessageBytes = int64_t{1} << 31;  // of one RDMA write
constexpr uint64_t buffer_address(uint32_t tag, uint32_t index) {
  return kBufferBase | (static_cast<uint64_t>(tag) << 24) | index;
}
constexpr uint32_t address_tag(uint64_t va) { return static_cast<uint32_t>(va >> 24); }
constexpr uint32_t address_index(uint64_t va) { return static_cast<uint32_t>(va & 0x7FFFFF); }

inline constexpr int32_t kNoConnection = -1;

// Messages of one connection and op that may be under way; also what a lane remembers of each.
inline constexpr uint32_t kMaxSlots = 64;

// Where a message goes, as its receiver said, and the number of its grant among those of the connection.
struct Grant {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t number = 0;
};

// One of the `parts` of a message whose data is split over queue pairs (NCCL_IB_SPLIT_DATA_ON_QPS): equal multiples of
// 128 bytes, the last ones shorter or empty.
struct MessagePart {
  uint32_t offset;
  uint32_t bytes;
};
MessagePart message_part(int64_t message_bytes, uint32_t part, uint32_t parts);

// The messages that a lane sends. Indices count the lane's messages, from 0.
struct LaneSender {
  enum class Closing : uint8_t { none, open, posted, over };

  uint32_t handed = 0;
  uint32_t credits = 0;
  uint32_t posted = 0;
  uint32_t acknowledged = 0;
  uint64_t acknowledged_ahead = 0;                     // bit i: message acknowledged + i is
  std::array<Grant, kMaxSlots> grants{};               // of message index % 64
  std::array<uint8_t, kMaxSlots> unacknowledged_parts{};
  Closing closing = Closing::none;                    // of a one-sided lane
  uint32_t written = 0;                                // of a one-sided lane: messages that were not empty
};

// The messages that a lane receives.
struct LaneReceiver {
  uint32_t granted = 0;                                // one-sided: arrived
  uint32_t consumed = 0;
  uint64_t arrived = 0;                                // bit i: message consumed + i is here
  std::array<uint32_t, kMaxSlots> expected_bytes{};    // of message index % 64
  std::array<uint8_t, kMaxSlots> missing_parts{};
  uint8_t parts = 1;                                   // of every message that arrives
  bool closed = true;                                  // of a one-sided lane: nothing more will come
  bool on_wire = false;                                // not inside the host
};

// Counters obey posted <= handed, posted <= credits (unless one-sided), acknowledged <= posted, consumed <= granted.
struct LaneRun {
  uint32_t op_run = 0;
  uint32_t tag = 0;
  int32_t channel = 0;
  int32_t send_connection = kNoConnection;  // row of EnginePlan::connections
  int32_t recv_connection = kNoConnection;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;   // what a grant offers at least
  int32_t number = 0;        // in its table
  bool in_use = false;
  bool queued = false;       // in its owner's list of lanes to move
  bool one_sided = false;

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
  // How many messages the sender can leave behind without an answer to any, as others are to follow: where all have a slot,
  // as many as there are, else fewer than half the slots, so that it never finds them all taken. 0: none is to follow.
  uint32_t may_go_unanswered() const {
    const auto here = static_cast<uint32_t>(std::popcount(receiving.arrived));
    if (granting.done() && receiving.granted == receiving.consumed + here) return 0;
    if (granting.done() && receiving.granted <= slots) return slots;
    return slots < 2 ? 0 : slots / 2 - 1;
  }
  bool received() const { return one_sided ? receiving.consumed < receiving.granted : (receiving.arrived & 1) != 0; }
  // The next entry has what it waits for, apart from other lanes.
  bool may_execute() const {
    if (execution.done()) return false;
    const LaneStep step = execution.step();
    if ((step.kind & kEntryRecv) != 0 && !received()) return false;
    return (step.kind & kEntrySend) == 0 || sending.handed - sending.acknowledged < slots;
  }
  void execute();
  // Index and wire bytes of the granted message.
  uint32_t grant(int64_t& bytes);
  void credit(const Grant& grant) { sending.grants[sending.credits++ % kMaxSlots] = grant; }
  // Index and wire bytes of the posted message, which goes out in so many parts.
  uint32_t post(int64_t& bytes, uint32_t parts);
  // A part of message `index` is acknowledged.
  void acknowledge(uint32_t index);
  enum class Arrival : uint8_t { accepted, not_granted, repeated, wrong_size };
  // `bytes` of the whole message, of which one part is here.
  Arrival arrive(uint32_t index, int64_t bytes);
  // One-sided: the next message that is not empty, and the end of them.
  Arrival arrive_next(int64_t bytes);
  Arrival close();
  // One-sided, and nobody saw the single messages arrive: whether what closed them is right that they were so many. Their
  // bytes go to `bytes`.
  bool arrive_unseen(uint64_t messages, int64_t& bytes);
  // Whether messages that were here before the lane was opened are its first ones.
  bool arrive_early(uint32_t messages, int64_t bytes);
  bool over() const {
    const bool closed = sending.closing == LaneSender::Closing::none || sending.closing == LaneSender::Closing::over;
    return execution.done() && sending.acknowledged == sending.handed && closed && receiving.closed;
  }
};

// Moves `cursor` forward to the next step that has `flag`, or to its end.
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

// The lanes of one end of a connection that are under way, found by tag. Few at a time: a linear search is fastest.
class ActiveLanes {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  void add(uint32_t tag, uint32_t lane) { active_.push_back({tag, lane}); }
  void remove(uint32_t tag);
  uint32_t find(uint32_t tag) const;

 private:
  struct Item {
    uint32_t tag;
    uint32_t lane;
  };
  std::vector<Item> active_;
};

// Grants that arrived before the sender's op began.
class EarlyGrants {
 public:
  static constexpr size_t kLimit = 1U << 16;
  // False: more than kLimit messages are granted ahead, which no correct peer does.
  bool add(uint32_t tag, const Grant& grant);
  // Credits the lane with the grants of its op, in their order. False: these are more than it has slots.
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
  // False: messages of more than kLimit ops are ahead, or one after its op's closing.
  bool add(uint32_t tag, int64_t bytes, bool closing);
  Item take(uint32_t tag);

 private:
  std::vector<Item> early_;
};

}  // namespace etloop
