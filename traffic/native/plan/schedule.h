// Step tables as values, and the cursor that cuts a lane into messages. Pure.
// The rules are stated in traffic/collectives/core/table.py; this is their one implementation.
#pragma once

#include <cstdint>
#include <vector>

namespace etloop {

// kEntryMore: the message goes on with the next entry, which has the same direction.
// kEntryInTurn: what it receives is granted only when everything before it is over, as a blocking receive would be.
enum EntryFlag : uint8_t { kEntrySend = 1, kEntryRecv = 2, kEntryReduce = 4, kEntryCopy = 8, kEntryMore = 16, kEntryInTurn = 32 };
enum class ChunkRule : uint8_t { fixed = 0, p2p = 1, blocks = 2 };
enum class Split : uint8_t { equal = 0, cells = 1, pages = 2 };
enum class Handshake : uint8_t { clear_to_send = 0, one_sided = 1 };
// Progress that an op's messages must make before the op is complete. eager: as posted for messages of at most
// `eager_bytes`, else as acknowledged.
enum class Completion : uint8_t { acknowledged = 0, posted = 1, eager = 2 };

struct Entry {
  uint8_t kind;
  int32_t chunk;
  int32_t after_lane = -1;   // of the same table, by its number there; -1: none
  int32_t after_entry = -1;  // that this lane must have executed in the same loop and slice; -1: all of it
  int32_t message = 0;       // how many messages the entries in front of it make; set by `number_messages`
};
void number_messages(std::vector<Entry>& entries);

struct Lane {
  int32_t batch;
  int32_t send_to;
  int32_t recv_from;
  int32_t part;
  int32_t parts;
  int32_t first_entry;
  int32_t entry_count;
  int64_t bytes = -1;  // what the lane works on whatever the op's byte count; -1: `span` blocks from `part` of `parts`
  int32_t channel = 0;
  int32_t span = 1;
  int32_t share = 0;  // of that, one of `shares`, by `Cutting::split`
  int32_t shares = 1;
};

struct Cutting {
  ChunkRule chunk_rule;
  int64_t chunk_bytes;
  int32_t chunks_per_loop;
  bool shrink_last;
  int32_t slices;
  int64_t min_slice_bytes;
  int32_t slots;
  bool empty_message;
  int64_t slice_align_bytes = 64;
  int64_t line_data_bytes = 0;  // wire expansion: a line of so many data bytes ...
  int64_t line_wire_bytes = 0;  // ... has so many on the wire; 0: data goes as it is
  Split split = Split::equal;
  int64_t traffic_per_byte = 1;
  Handshake handshake = Handshake::clear_to_send;
  Completion completion = Completion::acknowledged;
  // Messages of at most this size are granted ahead of their turn, and ahead of their op by several ops.
  int64_t eager_bytes = 0;
  // Messages of a connection, over all its ops, that may have left and not be acknowledged; only where completion is not
  // `acknowledged`.
  int32_t connection_slots = 64;

  // Whether an op waits only for the departure of a message of `wire_bytes`, not for its acknowledgement.
  bool done_when_left(int64_t wire_bytes) const {
    return completion == Completion::posted || (completion == Completion::eager && wire_bytes <= eager_bytes);
  }

  // Payload on the wire of a message of `data_bytes`.
  int64_t wire_bytes(int64_t data_bytes) const {
    if (line_data_bytes == 0) return data_bytes;
    return (data_bytes / line_data_bytes + (data_bytes % line_data_bytes != 0 ? 1 : 0)) * line_wire_bytes;
  }
};

// One step of a lane: what its entry does, and the data bytes it receives and sends (always equal in a lane).
struct LaneStep {
  uint8_t kind;
  int32_t chunk;
  int64_t loop;
  int64_t bytes;
  int64_t wire_bytes;  // of the message; `bytes` unless the protocol expands
  int32_t slice;
  int32_t after_lane;
  int32_t after_entry;
};

// Bytes of the `span` blocks from `part` of `parts`.
int64_t part_bytes(int64_t op_bytes, int32_t part, int32_t parts, int32_t span = 1);

// Share `share` of `shares` of `bytes`: where it begins, and its bytes.
struct Share {
  int64_t offset;
  int64_t bytes;
};
Share share_of(int64_t bytes, int32_t share, int32_t shares, const Cutting& cutting);

// Bytes of a lane in an op of `op_bytes`, before it takes its share.
int64_t lane_bytes(const Lane& lane, int64_t op_bytes);

// How the bytes of one lane fall into loops and chunks.
struct LaneCut {
  bool blocks = false;
  int32_t chunks_per_loop = 1;
  int64_t lane_bytes = 0;        // of its share; under ChunkRule::blocks before the share is taken
  int64_t loops = 0;
  int64_t chunk_bytes = 0;       // of every loop but the last
  int64_t last_chunk_bytes = 0;  // of the last loop
  int64_t block_bytes[2] = {};   // under ChunkRule::blocks: the share of a smaller and of a larger block

  // Bytes of chunk `chunk` of loop `loop`.
  int64_t bytes(int64_t loop, int32_t chunk) const;
  // Bytes of chunk `chunk` over all loops.
  int64_t total_bytes(int32_t chunk) const;
  // The share of block `chunk`.
  int64_t block(int32_t chunk) const;
};
LaneCut lane_cut(const Lane& lane, const Cutting& cutting, int64_t op_bytes);

// Where chunk `chunk` of loop `loop` begins among the op's bytes, or among those that the lane states.
int64_t chunk_address(const Lane& lane, const Cutting& cutting, int64_t op_bytes, int64_t loop, int32_t chunk);

// Walks the messages of a lane in order. Copyable; a copy is an independent look-ahead.
class LaneCursor {
 public:
  LaneCursor() = default;
  // `entries` must outlive the cursor.
  LaneCursor(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes);
  bool done() const;
  LaneStep step() const;  // requires !done()
  void advance();
  // The first entry of the step, by its number in the lane.
  int32_t entry() const { return entry_; }
  // Steps taken so far.
  int64_t taken() const { return taken_; }
  // The number of the step that executes `entry` in the given loop and slice.
  int64_t step_number(int64_t loop, int32_t entry, int32_t slice) const {
    const int32_t first = entries_[0].message;
    const int64_t in_loop = entries_[entry_count_ - 1].message - first + 1;
    return (loop * in_loop + entries_[entry].message - first) * slices_ + slice;
  }

 private:
  void begin_message();

  const Entry* entries_ = nullptr;
  int32_t entry_count_ = 0;
  int32_t entry_ = 0;      // the first of the message
  int32_t next_entry_ = 0;  // the one after its last
  int32_t slices_ = 1;
  int32_t slice_ = 0;
  int64_t loop_ = 0;
  int64_t taken_ = 0;
  int64_t left_ = 0;         // of these chunks, before this slice
  int64_t slice_bytes_ = 0;  // the cut of these chunks
  int64_t slice_align_bytes_ = 1;
  int64_t min_slice_bytes_ = 0;
  int64_t line_data_bytes_ = 0;
  int64_t line_wire_bytes_ = 0;
  LaneCut cut_{};
};

// Bytes are those of the wire; with LL and LL128 more than the data.
struct LaneTotals {
  int64_t tx_messages = 0;
  int64_t tx_bytes = 0;
  int64_t rx_messages = 0;
  int64_t rx_bytes = 0;
  int64_t tx_data_bytes = 0;
  int64_t rx_data_bytes = 0;
};
// Closed form: the work grows with the entries of the lane, not with its messages.
LaneTotals lane_totals(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes);

}  // namespace etloop
