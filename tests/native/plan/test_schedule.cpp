// The cursor against its closed form, and the corners of the cut: nothing, one byte, the last loop, blocks, overflow.
#include "plan/schedule.h"

#include <utility>
#include <vector>

#include "support/check.h"

namespace {

using namespace etloop;

constexpr uint8_t kRelay = kEntryRecv | kEntryCopy | kEntrySend;
constexpr int64_t kMib = 1 << 20;

Cutting ring_cut(int32_t chunks_per_loop) {
  return {ChunkRule::fixed, 2 * kMib, chunks_per_loop, true, 2, 32768, 4, false, 64};
}

std::vector<int64_t> bytes_of(const Lane& lane, const std::vector<Entry>& entries, const Cutting& cutting,
                              int64_t op_bytes) {
  std::vector<int64_t> bytes;
  for (LaneCursor cursor(lane, entries.data(), cutting, op_bytes); !cursor.done(); cursor.advance()) {
    bytes.push_back(cursor.step().bytes);
  }
  return bytes;
}

void parts_add_up_without_overflow() {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000003}, INT64_MAX}) {
    for (const int32_t parts : {1, 2, 3, 7, 1024}) {
      int64_t sum = 0;
      for (int32_t part = 0; part < parts; ++part) sum += part_bytes(bytes, part, parts);
      CHECK_EQ(sum, bytes);
    }
  }
  CHECK_EQ(part_bytes(10, 0, 4), 2);  // 2, 5, 7, 10
  CHECK_EQ(part_bytes(10, 1, 4), 3);
}

void closed_form_equals_the_walk() {
  const std::vector<Entry> entries = {{kEntrySend, 2}, {kRelay, 1}, {kRelay, 0}, {kEntryRecv | kEntryCopy, 2}};
  const Lane lane{0, 1, 1, 1, 3, 0, 4};
  for (const ChunkRule rule : {ChunkRule::fixed, ChunkRule::p2p, ChunkRule::blocks}) {
    for (const bool empty_message : {false, true}) {
      for (const int64_t bytes : {0L, 1L, 47L, 393216L, 6 * kMib, 18 * kMib, 18 * kMib + 1, 100000003L}) {
        Cutting cutting = ring_cut(3);
        cutting.chunk_rule = rule;
        cutting.empty_message = empty_message;
        LaneTotals walked;
        for (LaneCursor cursor(lane, entries.data(), cutting, bytes); !cursor.done(); cursor.advance()) {
          const LaneStep step = cursor.step();
          if ((step.kind & kEntrySend) != 0) ++walked.tx_messages, walked.tx_bytes += step.bytes;
          if ((step.kind & kEntryRecv) != 0) ++walked.rx_messages, walked.rx_bytes += step.bytes;
        }
        const LaneTotals totals = lane_totals(lane, entries.data(), cutting, bytes);
        CHECK_EQ(totals.tx_messages, walked.tx_messages);
        CHECK_EQ(totals.tx_bytes, walked.tx_bytes);
        CHECK_EQ(totals.rx_messages, walked.rx_messages);
        CHECK_EQ(totals.rx_bytes, walked.rx_bytes);
      }
    }
  }
}

void empty_lanes_send_nothing_or_one_message() {
  const std::vector<Entry> entries = {{kEntrySend, 0}, {kRelay, 1}};
  const Lane lane{0, 1, 1, 0, 1, 0, 2};
  Cutting cutting = ring_cut(2);
  CHECK_EQ(bytes_of(lane, entries, cutting, 0).size(), 0U);
  cutting.empty_message = true;
  CHECK(bytes_of(lane, entries, cutting, 0) == (std::vector<int64_t>{0, 0}));
}

void slices_keep_their_least_size_and_their_alignment() {
  const std::vector<Entry> entries = {{kEntrySend, 0}};
  const Lane lane{0, 1, -1, 0, 1, 0, 1};
  Cutting cutting = ring_cut(1);
  CHECK(bytes_of(lane, entries, cutting, 32768) == (std::vector<int64_t>{32768, 0}));
  CHECK(bytes_of(lane, entries, cutting, 87392) == (std::vector<int64_t>{43712, 43680}));
  cutting.slice_align_bytes = 16;
  CHECK(bytes_of(lane, entries, cutting, 87392) == (std::vector<int64_t>{43696, 43696}));
}

void send_recv_chunks_grow_with_the_lane() {
  const std::vector<Entry> entries = {{kEntrySend, 0}};
  const Lane lane{0, 1, -1, 0, 1, 0, 1};
  Cutting cutting = ring_cut(1);
  cutting.chunk_rule = ChunkRule::p2p;
  cutting.slices = 1;
  const auto first = [&](int64_t op_bytes) { return bytes_of(lane, entries, cutting, op_bytes).front(); };
  CHECK_EQ(first(131071), 32768);
  CHECK_EQ(first(131072), 65536);
  CHECK_EQ(first(kMib - 1), 65536);
  CHECK_EQ(first(kMib), 131072);
  CHECK(bytes_of(lane, entries, cutting, 65537) == (std::vector<int64_t>{32768, 32768, 1}));
}

void unequal_blocks_keep_their_own_size() {
  const std::vector<Entry> entries = {{kEntrySend, 0}, {kEntrySend, 1}, {kEntrySend, 2}};
  const Lane lane{0, 1, -1, 0, 1, 0, 3};
  Cutting cutting = ring_cut(3);
  cutting.chunk_rule = ChunkRule::blocks;
  cutting.slices = 1;
  CHECK(bytes_of(lane, entries, cutting, 10) == (std::vector<int64_t>{3, 3, 4}));
  // A block of one byte more than a chunk takes a second loop, in which the others are empty.
  CHECK(bytes_of(lane, entries, cutting, 6 * kMib + 1) ==
        (std::vector<int64_t>{2 * kMib, 2 * kMib, 2 * kMib, 0, 0, 1}));
}

void a_lane_that_states_its_bytes_ignores_those_of_the_op() {
  const std::vector<Entry> entries = {{kEntrySend, 0}};
  Lane lane{0, 1, -1, 1, 3, 0, 1, 65537};
  Cutting cutting = ring_cut(1);
  cutting.chunk_rule = ChunkRule::p2p;
  cutting.slices = 1;
  for (const int64_t op_bytes : {int64_t{0}, int64_t{7}, int64_t{1} << 40}) {
    CHECK(bytes_of(lane, entries, cutting, op_bytes) == (std::vector<int64_t>{32768, 32768, 1}));
    CHECK_EQ(lane_totals(lane, entries.data(), cutting, op_bytes).tx_bytes, 65537);
  }
  lane.bytes = 0;
  CHECK_EQ(bytes_of(lane, entries, cutting, kMib).size(), 0U);
  lane.bytes = -1;
  CHECK_EQ(lane_bytes(lane, 10), 3);  // 3, 6, 10
}

void spans_take_neighbouring_blocks_and_shares_split_them() {
  CHECK_EQ(part_bytes(10, 1, 4, 2), 5);  // 2 to 7
  CHECK_EQ(part_bytes(10, 0, 1, 3), 30);  // three blocks of a collective whose positions put in 10 bytes each
  Cutting cutting = ring_cut(1);
  for (const int64_t bytes : {0L, 1L, 4095L, 4097L, 131072L, 64 * kMib + 5}) {
    for (const Split split : {Split::equal, Split::cells, Split::pages}) {
      for (const int32_t shares : {1, 2, 3, 16, 64}) {
        for (const int64_t traffic : {1, 2, 8, 1024}) {
          cutting.split = split;
          cutting.traffic_per_byte = traffic;
          int64_t end = 0;
          for (int32_t share = 0; share < shares; ++share) {
            const Share one = share_of(bytes, share, shares, cutting);
            CHECK_EQ(one.offset, end);
            CHECK(one.bytes >= 0);
            end += one.bytes;
          }
          CHECK_EQ(end, bytes);
        }
      }
    }
  }
}

// Worked by hand from NCCL enqueue.cc: an all-reduce has cells of 16 KiB, an all-gather over 8 ranks of 4 KiB.
void cells_fill_channels_low_middle_high() {
  struct Row {
    int64_t bytes;
    int32_t channels;
    int64_t traffic_per_byte;
    std::vector<int64_t> shares;
  };
  constexpr int64_t kKib = 1024;
  for (const Row& row : {
           Row{kMib, 4, 2, {256 * kKib, 256 * kKib, 256 * kKib, 256 * kKib}},
           Row{4 * kKib, 4, 2, {4 * kKib, 0, 0, 0}},  // one cell, and not a whole one
           Row{100 * kKib, 4, 2, {32 * kKib, 32 * kKib, 32 * kKib, 4 * kKib}},  // 7 cells: 2, 2, 2 and a part of one
           Row{40 * kKib, 2, 2, {32 * kKib, 8 * kKib}},
           Row{16 * kKib, 2, 8, {8 * kKib, 8 * kKib}},
       }) {
    Cutting cutting = ring_cut(1);
    cutting.split = Split::cells;
    cutting.traffic_per_byte = row.traffic_per_byte;
    for (int32_t share = 0; share < row.channels; ++share) {
      CHECK_EQ(share_of(row.bytes, share, row.channels, cutting).bytes, row.shares[static_cast<size_t>(share)]);
    }
  }
}

// With LL a line of 16 bytes carries 8, with LL128 2048 bytes carry 1920; the walk and the closed form agree.
void protocols_expand_every_message() {
  const std::vector<Entry> entries = {
      {kEntrySend | kEntryMore, 0}, {kEntrySend, 2}, {kRelay, 1}, {kEntryRecv | kEntryCopy, 2}};
  const Lane lane{0, 1, 1, 0, 1, 0, 4};
  for (const ChunkRule rule : {ChunkRule::fixed, ChunkRule::blocks}) {
    for (const int32_t slices : {1, 2}) {
      for (const auto& [line_data, line_wire] : {std::pair<int64_t, int64_t>{8, 16}, {1920, 2048}}) {
        for (const int64_t bytes : {1L, 7L, 96L, 98305L, 3 * kMib + 1, 10 * kMib + 7}) {
          Cutting cutting = ring_cut(3);
          cutting.chunk_rule = rule;
          cutting.chunk_bytes = 32768;
          cutting.slices = slices;
          cutting.min_slice_bytes = 0;
          cutting.line_data_bytes = line_data;
          cutting.line_wire_bytes = line_wire;
          LaneTotals walked;
          for (LaneCursor cursor(lane, entries.data(), cutting, bytes); !cursor.done(); cursor.advance()) {
            const LaneStep step = cursor.step();
            CHECK_EQ(step.wire_bytes, (step.bytes + line_data - 1) / line_data * line_wire);
            if ((step.kind & kEntrySend) == 0) continue;
            ++walked.tx_messages;
            walked.tx_bytes += step.wire_bytes;
            walked.tx_data_bytes += step.bytes;
          }
          const LaneTotals totals = lane_totals(lane, entries.data(), cutting, bytes);
          CHECK_EQ(totals.tx_messages, walked.tx_messages);
          CHECK_EQ(totals.tx_bytes, walked.tx_bytes);
          CHECK_EQ(totals.tx_data_bytes, walked.tx_data_bytes);
        }
      }
    }
  }
}

void steps_are_numbered_by_loop_message_and_slice() {
  std::vector<Entry> entries = {{kEntryRecv, 0}, {kEntrySend | kEntryMore, 0}, {kEntrySend, 1}, {kEntrySend, 1}};
  number_messages(entries);
  const Lane lane{0, 1, 1, 0, 1, 1, 3};  // from the second entry on: two messages a loop
  Cutting cutting = ring_cut(2);
  cutting.chunk_bytes = 1000;
  cutting.shrink_last = false;
  for (LaneCursor cursor(lane, entries.data(), cutting, 5000); !cursor.done(); cursor.advance()) {
    const LaneStep step = cursor.step();
    CHECK_EQ(cursor.step_number(step.loop, cursor.entry(), step.slice), cursor.taken());
  }
}

void copies_look_ahead_alone() {
  const std::vector<Entry> entries = {{kEntrySend, 0}, {kRelay, 1}};
  const Lane lane{0, 1, 1, 0, 1, 0, 2};
  LaneCursor cursor(lane, entries.data(), ring_cut(2), 1000);
  LaneCursor ahead = cursor;
  while (!ahead.done()) ahead.advance();
  CHECK(!cursor.done());
  CHECK_EQ(cursor.step().chunk, 0);
  CHECK_EQ(cursor.step().bytes, 512);
}

}  // namespace

int main() {
  parts_add_up_without_overflow();
  closed_form_equals_the_walk();
  empty_lanes_send_nothing_or_one_message();
  slices_keep_their_least_size_and_their_alignment();
  send_recv_chunks_grow_with_the_lane();
  unequal_blocks_keep_their_own_size();
  a_lane_that_states_its_bytes_ignores_those_of_the_op();
  spans_take_neighbouring_blocks_and_shares_split_them();
  cells_fill_channels_low_middle_high();
  protocols_expand_every_message();
  steps_are_numbered_by_loop_message_and_slice();
  copies_look_ahead_alone();
  return etloop::test::failures();
}
