#include "schedule.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr int64_t kKib = 1024;
constexpr int64_t kChunkAlign = 16;  // NCCL device/all_reduce.h: the last loop's chunks end on 16 bytes

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

int64_t align_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

int64_t full_chunk_bytes(const Cutting& cutting, int64_t lane_bytes) {
  switch (cutting.chunk_rule) {
    case ChunkRule::fixed:
    case ChunkRule::blocks:
      return cutting.chunk_bytes;
    case ChunkRule::p2p:
      if (lane_bytes < 128 * kKib) return 32 * kKib;
      if (lane_bytes < 1024 * kKib) return 64 * kKib;
      return 128 * kKib;
  }
  return cutting.chunk_bytes;
}

}  // namespace

int64_t part_bytes(int64_t op_bytes, int32_t part, int32_t parts) {
  // floor((part + 1) * B / parts) - floor(part * B / parts) without a product that could overflow: with
  // B = whole * parts + rest the whole cancels out and the rest is below parts.
  const int64_t whole = op_bytes / parts;
  const int64_t rest = op_bytes % parts;
  const int64_t p = part;
  return whole + (p + 1) * rest / parts - p * rest / parts;
}

int64_t lane_bytes(const Lane& lane, int64_t op_bytes) {
  return lane.bytes >= 0 ? lane.bytes : part_bytes(op_bytes, lane.part, lane.parts);
}

int64_t LaneCut::bytes(int64_t loop, int32_t chunk) const {
  if (blocks) {
    const int64_t rest = part_bytes(lane_bytes, chunk, chunks_per_loop) - loop * chunk_bytes;
    return std::clamp<int64_t>(rest, 0, chunk_bytes);
  }
  const int64_t rest = lane_bytes - loop * chunks_per_loop * chunk_bytes;
  const int64_t size = loop + 1 == loops ? last_chunk_bytes : chunk_bytes;
  return std::clamp<int64_t>(rest - chunk * size, 0, size);
}

int64_t LaneCut::total_bytes(int32_t chunk) const {
  if (loops == 0) return 0;
  if (blocks) return part_bytes(lane_bytes, chunk, chunks_per_loop);
  return (loops - 1) * chunk_bytes + bytes(loops - 1, chunk);
}

LaneCut lane_cut(const Lane& lane, const Cutting& cutting, int64_t op_bytes) {
  LaneCut cut;
  cut.blocks = cutting.chunk_rule == ChunkRule::blocks;
  cut.chunks_per_loop = cutting.chunks_per_loop;
  cut.lane_bytes = lane_bytes(lane, op_bytes);
  cut.chunk_bytes = full_chunk_bytes(cutting, cut.lane_bytes);
  cut.last_chunk_bytes = cut.chunk_bytes;
  if (cut.lane_bytes == 0) {
    cut.loops = cutting.empty_message ? 1 : 0;
    return cut;
  }
  if (cut.blocks) {
    cut.loops = ceil_div(ceil_div(cut.lane_bytes, cut.chunks_per_loop), cut.chunk_bytes);
    return cut;
  }
  const int64_t loop_bytes = cut.chunk_bytes * cut.chunks_per_loop;
  cut.loops = ceil_div(cut.lane_bytes, loop_bytes);
  const int64_t rest = cut.lane_bytes - (cut.loops - 1) * loop_bytes;
  if (cutting.shrink_last && rest < loop_bytes) {
    const int64_t shrunk = align_up(ceil_div(rest, cut.chunks_per_loop), kChunkAlign);
    cut.last_chunk_bytes = std::min(shrunk, cut.chunk_bytes);
  }
  return cut;
}

LaneCursor::LaneCursor(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes)
    : entries_(entries + lane.first_entry),
      entry_count_(lane.entry_count),
      slice_align_bytes_(cutting.slice_align_bytes),
      min_slice_bytes_(cutting.min_slice_bytes),
      cut_(lane_cut(lane, cutting, op_bytes)) {
  slices_ = cut_.lane_bytes == 0 ? 1 : cutting.slices;
  if (entry_count_ == 0) cut_.loops = 0;
  if (!done()) begin_message();
}

bool LaneCursor::done() const { return loop_ >= cut_.loops; }

LaneStep LaneCursor::step() const {
  const Entry& entry = entries_[entry_];
  return {entry.kind, entry.chunk, loop_, std::min(left_, slice_bytes_)};
}

void LaneCursor::advance() {
  left_ -= std::min(left_, slice_bytes_);
  if (++slice_ < slices_) return;
  slice_ = 0;
  entry_ = next_entry_;
  if (entry_ == entry_count_) {
    entry_ = 0;
    if (++loop_ == cut_.loops) return;
  }
  begin_message();
}

void LaneCursor::begin_message() {
  left_ = 0;
  next_entry_ = entry_;
  do {
    left_ += cut_.bytes(loop_, entries_[next_entry_].chunk);
  } while ((entries_[next_entry_++].kind & kEntryMore) != 0 && next_entry_ < entry_count_);
  slice_bytes_ = std::max(align_up(ceil_div(left_, slices_), slice_align_bytes_), min_slice_bytes_);
}

LaneTotals lane_totals(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes) {
  const LaneCut cut = lane_cut(lane, cutting, op_bytes);
  const int64_t messages = cut.loops * (cut.lane_bytes == 0 ? 1 : cutting.slices);
  LaneTotals totals;
  for (int32_t i = 0; i < lane.entry_count; ++i) {
    const Entry& entry = entries[lane.first_entry + i];
    const int64_t bytes = cut.total_bytes(entry.chunk);
    const bool ends_message = (entry.kind & kEntryMore) == 0 || i + 1 == lane.entry_count;
    if ((entry.kind & kEntrySend) != 0) {
      if (ends_message) totals.tx_messages += messages;
      totals.tx_bytes += bytes;
    }
    if ((entry.kind & kEntryRecv) != 0) {
      if (ends_message) totals.rx_messages += messages;
      totals.rx_bytes += bytes;
    }
  }
  return totals;
}

}  // namespace etloop
