// A lane under execution: which of its messages may be granted, executed, posted. Pure counting; the core acts on it.
//
// Sender and receiver of a connection agree on messages by (tag, index): the tag names the op, the index counts the
// lane's messages. The receiver grants a message by a clear-to-send write that carries the address the data goes to,
// and the address spells tag and index, so an arriving message says by its RETH alone what it is.
// Model: NCCL's proxy pipeline (NVIDIA/nccl:src/transport/net.cc): a ring of `slots` messages between the two ends.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan.h"

namespace etloop {

// Data addresses: 8 bits base, 32 bits tag, one bit set, 23 bits message index. The set bit keeps the second pair of
// bytes of a grant from being zero, where Wireshark would guess at an EtherType in the first pair.
inline constexpr uint64_t kBufferBase = 0x7F00'0000'0080'0000;
inline constexpr uint32_t kMaxMessagesPerLane = 1U << 23;
constexpr uint64_t buffer_address(uint32_t tag, uint32_t index) {
  return kBufferBase | (static_cast<uint64_t>(tag) << 24) | index;
}
constexpr uint32_t address_tag(uint64_t va) { return static_cast<uint32_t>(va >> 24); }
constexpr uint32_t address_index(uint64_t va) { return static_cast<uint32_t>(va & 0x7FFFFF); }

inline constexpr int32_t kNoConnection = -1;

// Where a grant says that its message goes, and its number among the grants of the connection.
struct GrantedPlace {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t number = 0;
};

// Counters obey posted <= handed, posted <= credits, acknowledged <= posted, consumed <= granted.
struct LaneRun {
  uint32_t op_run = 0;
  uint32_t tag = 0;
  int32_t batch = 0;
  int32_t send_connection = kNoConnection;  // row of EnginePlan::connections
  int32_t recv_connection = kNoConnection;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;   // what a grant offers
  bool in_use = false;

  LaneCursor execution;
  LaneCursor posting;   // at the next message to post, if any is left
  LaneCursor granting;  // at the next message to grant, if any is left

  // sending
  uint32_t handed = 0;
  uint32_t credits = 0;
  uint32_t posted = 0;
  uint32_t acknowledged = 0;
  std::array<GrantedPlace, 64> places{};  // of message index % 64; granted in the order of the indices
  // receiving
  uint32_t granted = 0;
  uint32_t consumed = 0;
  uint64_t arrived = 0;            // bit i: message consumed + i is here
  int64_t expected_bytes[64] = {};  // of message index % 64

  Nanos trigger_ns = 0;  // when the message that last moved this lane arrived

  bool may_grant() const { return !granting.done() && granted < consumed + slots; }
  bool may_post() const { return posted < handed && posted < credits; }
  // The next entry has what it waits for.
  bool may_execute() const {
    if (execution.done()) return false;
    const LaneStep step = execution.step();
    if ((step.kind & kEntryRecv) != 0 && (arrived & 1) == 0) return false;
    return (step.kind & kEntrySend) == 0 || handed - acknowledged < slots;
  }
  void execute();
  // False: more messages are granted than a lane may have under way.
  bool credit(const GrantedPlace& place) {
    if (credits - posted >= places.size()) return false;
    places[credits++ % places.size()] = place;
    return true;
  }
  // Index and bytes of the granted message.
  uint32_t grant(int64_t& bytes);
  uint32_t post(int64_t& bytes);
  enum class Arrival : uint8_t { accepted, not_granted, repeated, wrong_size };
  Arrival arrive(uint32_t index, int64_t bytes);
  bool over() const { return execution.done() && acknowledged == handed; }
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
  // False: more messages than kLimit are granted ahead, which no correct peer does.
  bool add(uint32_t tag, const GrantedPlace& place);
  // Hands the grants of one op to its lane, in the order in which they came. False: more than a lane can have.
  bool take(uint32_t tag, LaneRun& lane);

 private:
  struct Item {
    uint32_t tag;
    GrantedPlace place;
  };
  std::vector<Item> early_;
};

}  // namespace etloop
