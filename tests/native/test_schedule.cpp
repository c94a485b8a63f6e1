// The cursor against its closed form, and the corners of the cut: nothing, one byte, the last loop, blocks, overflow.
#include "schedule.h"

#include <vector>

#include "check.h"

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
  copies_look_ahead_alone();
  return etloop::test::failures();
}
