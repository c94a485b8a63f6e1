// Step tables as values, and the cursor that cuts a lane into messages. Pure.
// The rules are stated in traffic/collectives/table.py; this is their one implementation.
#pragma once

#include <cstdint>
#include <vector>

namespace etloop {

// kEntryMore: the message goes on with the next entry, which has the same direction.
enum EntryFlag : uint8_t { kEntrySend = 1, kEntryRecv = 2, kEntryReduce = 4, kEntryCopy = 8, kEntryMore = 16 };
enum class ChunkRule : uint8_t { fixed = 0, p2p = 1, blocks = 2 };

struct Entry {
  uint8_t kind;
  int32_t chunk;
};

struct Lane {
  int32_t batch;
  int32_t send_to;
  int32_t recv_from;
  int32_t part;
  int32_t parts;
  int32_t first_entry;
  int32_t entry_count;
  int64_t bytes = -1;  // what the lane works on whatever the op's byte count; -1: block `part` of `parts` of that
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
};

// One message of a lane: what its entry does, and the payload bytes it receives and sends (always equal in a lane).
struct LaneStep {
  uint8_t kind;
  int32_t chunk;
  int64_t loop;
  int64_t bytes;
};

// Bytes of block `part` of `parts`.
int64_t part_bytes(int64_t op_bytes, int32_t part, int32_t parts);

// What a lane works on in an op of `op_bytes`.
int64_t lane_bytes(const Lane& lane, int64_t op_bytes);

// How the bytes of one lane fall into loops and chunks.
struct LaneCut {
  bool blocks = false;
  int32_t chunks_per_loop = 1;
  int64_t lane_bytes = 0;
  int64_t loops = 0;
  int64_t chunk_bytes = 0;       // of every loop but the last
  int64_t last_chunk_bytes = 0;  // of the last loop

  // Bytes of chunk `chunk` of loop `loop`.
  int64_t bytes(int64_t loop, int32_t chunk) const;
  // Bytes of chunk `chunk` over all loops.
  int64_t total_bytes(int32_t chunk) const;
};
LaneCut lane_cut(const Lane& lane, const Cutting& cutting, int64_t op_bytes);

// Walks the messages of a lane in order. Copyable; a copy is an independent look-ahead.
class LaneCursor {
 public:
  LaneCursor() = default;
  // `entries` must outlive the cursor.
  LaneCursor(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes);
  bool done() const;
  LaneStep step() const;  // requires !done()
  void advance();

 private:
  void begin_message();

  const Entry* entries_ = nullptr;
  int32_t entry_count_ = 0;
  int32_t entry_ = 0;      // the first of the message
  int32_t next_entry_ = 0;  // the one after its last
  int32_t slices_ = 1;
  int32_t slice_ = 0;
  int64_t loop_ = 0;
  int64_t left_ = 0;         // of these chunks, before this slice
  int64_t slice_bytes_ = 0;  // the cut of these chunks
  int64_t slice_align_bytes_ = 1;
  int64_t min_slice_bytes_ = 0;
  LaneCut cut_{};
};

struct LaneTotals {
  int64_t tx_messages = 0;
  int64_t tx_bytes = 0;
  int64_t rx_messages = 0;
  int64_t rx_bytes = 0;
};
// Closed form: the work grows with the entries of the lane, not with its messages.
LaneTotals lane_totals(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes);

}  // namespace etloop
