#include "plan/schedule.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr int64_t kKib = 1024;
constexpr int64_t kChunkAlign = 16;  // NCCL device/all_reduce.h: the last loop's chunks end on 16 bytes
constexpr int64_t kLeastTraffic = 32 * kKib;  // NCCL enqueue.cc MinTrafficPerChannel
constexpr int64_t kPage = 4 * kKib;           // NCCL enqueue.cc addP2pToPlan: parts begin on 4 KiB

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

int64_t align_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

int64_t slice_size(int64_t chunk_bytes, int32_t slices, int64_t align_bytes, int64_t least_bytes) {
  return std::max(align_up(ceil_div(chunk_bytes, slices), align_bytes), least_bytes);
}

// Payload on the wire of all slices of a chunk.
int64_t chunk_wire_bytes(int64_t chunk_bytes, const Cutting& cutting) {
  if (cutting.line_data_bytes == 0) return chunk_bytes;
  const int64_t slice = slice_size(chunk_bytes, cutting.slices, cutting.slice_align_bytes, cutting.min_slice_bytes);
  int64_t sum = 0;
  int64_t left = chunk_bytes;
  for (; left > slice; left -= slice) sum += cutting.wire_bytes(slice);
  return sum + cutting.wire_bytes(left);
}

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

// NCCL enqueue.cc scheduleCollTasksToPlan for one collective alone: channels get Lo, Mid ..., Mid, Hi cells.
Share cells_of(int64_t bytes, int32_t share, int32_t shares, int64_t traffic_per_byte) {
  if (bytes == 0) return {0, 0};
  const int64_t cell = align_up(ceil_div(kLeastTraffic, traffic_per_byte), 16);
  const int64_t cells = ceil_div(bytes, cell);
  const __int128 traffic = std::max<__int128>(kLeastTraffic, static_cast<__int128>(bytes) * traffic_per_byte);
  const int64_t per_channel = align_up(static_cast<int64_t>(traffic / shares), 16);
  int64_t middle_cells = std::min(cells, ceil_div(per_channel, cell * traffic_per_byte));
  const int64_t low = shares == 1 ? cells : middle_cells;
  int64_t middle = (cells - low) / middle_cells;
  int64_t high = (cells - low) % middle_cells;
  if (1 + middle + (high != 0 ? 1 : 0) > shares) {
    middle = shares - 2;
    middle_cells = (cells - low) / (middle + 1);
    high = middle_cells + (cells - low) % (middle + 1);
  }
  if (high == 0 && middle != 0) {
    high = middle_cells;
    --middle;
  }
  const int64_t s = share;
  const int64_t begin = s == 0 ? 0 : s <= middle + 1 ? low + (s - 1) * middle_cells : cells;
  const int64_t end = s == 0 ? low : s <= middle ? begin + middle_cells : s == middle + 1 ? begin + high : cells;
  const int64_t offset = std::min(begin * cell, bytes);
  return {offset, std::min(end * cell, bytes) - offset};
}

}  // namespace

void number_messages(std::vector<Entry>& entries) {
  int32_t message = 0;
  for (Entry& entry : entries) {
    entry.message = message;
    if ((entry.kind & kEntryMore) == 0) ++message;
  }
}

int64_t part_bytes(int64_t op_bytes, int32_t part, int32_t parts, int32_t span) {
  // floor((part + span) * B / parts) - floor(part * B / parts) without a product that could overflow: with
  // B = whole * parts + rest the whole cancels out and the rest is below parts.
  const int64_t whole = op_bytes / parts;
  const int64_t rest = op_bytes % parts;
  const int64_t p = part;
  return whole * span + (p + span) * rest / parts - p * rest / parts;
}

Share share_of(int64_t bytes, int32_t share, int32_t shares, const Cutting& cutting) {
  switch (cutting.split) {
    case Split::equal: return {part_bytes(bytes, 0, shares, share), part_bytes(bytes, share, shares)};
    case Split::cells: return cells_of(bytes, share, shares, cutting.traffic_per_byte);
    case Split::pages: {
      const int64_t bound = align_up(ceil_div(bytes, shares), kPage);
      const int64_t offset = std::min(share * bound, bytes);
      return {offset, std::min(bound, bytes - offset)};
    }
  }
  return {0, bytes};
}

int64_t lane_bytes(const Lane& lane, int64_t op_bytes) {
  return lane.bytes >= 0 ? lane.bytes : part_bytes(op_bytes, lane.part, lane.parts, lane.span);
}

int64_t LaneCut::block(int32_t chunk) const {
  return block_bytes[part_bytes(lane_bytes, chunk, chunks_per_loop) == lane_bytes / chunks_per_loop ? 0 : 1];
}

int64_t LaneCut::bytes(int64_t loop, int32_t chunk) const {
  if (blocks) {
    const int64_t rest = block(chunk) - loop * chunk_bytes;
    return std::clamp<int64_t>(rest, 0, chunk_bytes);
  }
  const int64_t rest = lane_bytes - loop * chunks_per_loop * chunk_bytes;
  const int64_t size = loop + 1 == loops ? last_chunk_bytes : chunk_bytes;
  return std::clamp<int64_t>(rest - chunk * size, 0, size);
}

int64_t LaneCut::total_bytes(int32_t chunk) const {
  if (loops == 0) return 0;
  if (blocks) return block(chunk);
  return (loops - 1) * chunk_bytes + bytes(loops - 1, chunk);
}

LaneCut lane_cut(const Lane& lane, const Cutting& cutting, int64_t op_bytes) {
  LaneCut cut;
  cut.blocks = cutting.chunk_rule == ChunkRule::blocks;
  cut.chunks_per_loop = cutting.chunks_per_loop;
  cut.lane_bytes = lane_bytes(lane, op_bytes);
  cut.chunk_bytes = full_chunk_bytes(cutting, cut.lane_bytes);  // NCCL cuts by the whole send, not by its part
  cut.last_chunk_bytes = cut.chunk_bytes;
  if (cut.blocks) {
    const int64_t smaller = cut.lane_bytes / cut.chunks_per_loop;
    const bool equal = cut.lane_bytes % cut.chunks_per_loop == 0;
    cut.block_bytes[0] = share_of(smaller, lane.share, lane.shares, cutting).bytes;
    cut.block_bytes[1] = equal ? cut.block_bytes[0] : share_of(smaller + 1, lane.share, lane.shares, cutting).bytes;
  } else {
    cut.lane_bytes = share_of(cut.lane_bytes, lane.share, lane.shares, cutting).bytes;
  }
  if (cut.lane_bytes == 0) {
    // Without anything to share out there is one empty message, not one a share.
    cut.loops = cutting.empty_message && lane.share == 0 ? 1 : 0;
    return cut;
  }
  if (cut.blocks) {
    cut.loops = ceil_div(std::max(cut.block_bytes[0], cut.block_bytes[1]), cut.chunk_bytes);
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

int64_t chunk_address(const Lane& lane, const Cutting& cutting, int64_t op_bytes, int64_t loop, int32_t chunk) {
  const LaneCut cut = lane_cut(lane, cutting, op_bytes);
  const int64_t whole = lane_bytes(lane, op_bytes);
  const int64_t begin = lane.bytes >= 0 ? 0 : part_bytes(op_bytes, 0, lane.parts, lane.part);
  if (cut.blocks) {
    const int64_t block = part_bytes(whole, chunk, cut.chunks_per_loop);
    const int64_t within = share_of(block, lane.share, lane.shares, cutting).offset + loop * cut.chunk_bytes;
    return begin + part_bytes(whole, 0, cut.chunks_per_loop, chunk) + within;
  }
  const int64_t size = loop + 1 == cut.loops ? cut.last_chunk_bytes : cut.chunk_bytes;
  return begin + share_of(whole, lane.share, lane.shares, cutting).offset +
         loop * cut.chunks_per_loop * cut.chunk_bytes + chunk * size;
}

LaneCursor::LaneCursor(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes)
    : entries_(entries + lane.first_entry),
      entry_count_(lane.entry_count),
      slice_align_bytes_(cutting.slice_align_bytes),
      min_slice_bytes_(cutting.min_slice_bytes),
      line_data_bytes_(cutting.line_data_bytes),
      line_wire_bytes_(cutting.line_wire_bytes),
      cut_(lane_cut(lane, cutting, op_bytes)) {
  slices_ = cut_.lane_bytes == 0 ? 1 : cutting.slices;
  if (entry_count_ == 0) cut_.loops = 0;
  if (!done()) begin_message();
}

bool LaneCursor::done() const { return loop_ >= cut_.loops; }

LaneStep LaneCursor::step() const {
  const Entry& entry = entries_[entry_];
  const int64_t bytes = std::min(left_, slice_bytes_);
  const int64_t wire = line_data_bytes_ == 0 ? bytes : ceil_div(bytes, line_data_bytes_) * line_wire_bytes_;
  return {entry.kind, entry.chunk, loop_, bytes, wire, slice_, entry.after_lane, entry.after_entry};
}

void LaneCursor::advance() {
  left_ -= std::min(left_, slice_bytes_);
  ++taken_;
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
  slice_bytes_ = slice_size(left_, slices_, slice_align_bytes_, min_slice_bytes_);
}

namespace {

// Payload on the wire, over all loops, of the message that carries the chunks of `count` entries: the loops in which all
// of them are full, and the few after these.
int64_t message_wire_bytes(const LaneCut& cut, const Entry* entries, int32_t count, const Cutting& cutting) {
  const auto in_loop = [&](int64_t loop) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; ++i) bytes += cut.bytes(loop, entries[i].chunk);
    return chunk_wire_bytes(bytes, cutting);
  };
  int64_t full = std::max<int64_t>(cut.loops - 1, 0);
  for (int32_t i = 0; cut.blocks && i < count; ++i) {
    full = std::min(full, cut.block(entries[i].chunk) / cut.chunk_bytes);
  }
  int64_t sum = full == 0 ? 0 : full * in_loop(0);
  for (int64_t loop = full; loop < cut.loops; ++loop) sum += in_loop(loop);
  return sum;
}

}  // namespace

LaneTotals lane_totals(const Lane& lane, const Entry* entries, const Cutting& cutting, int64_t op_bytes) {
  const LaneCut cut = lane_cut(lane, cutting, op_bytes);
  const int64_t messages = cut.loops * (cut.lane_bytes == 0 ? 1 : cutting.slices);
  LaneTotals totals;
  int32_t first = 0;  // entry of the message that entry i belongs to
  for (int32_t i = 0; i < lane.entry_count; ++i) {
    const Entry& entry = entries[lane.first_entry + i];
    const int64_t data = cut.total_bytes(entry.chunk);
    const bool ends_message = (entry.kind & kEntryMore) == 0 || i + 1 == lane.entry_count;
    int64_t wire = data;
    if (cutting.line_data_bytes != 0) {
      wire = ends_message ? message_wire_bytes(cut, &entries[lane.first_entry + first], i + 1 - first, cutting) : 0;
    }
    if (ends_message) first = i + 1;
    if ((entry.kind & kEntrySend) != 0) {
      if (ends_message) totals.tx_messages += messages;
      totals.tx_bytes += wire;
      totals.tx_data_bytes += data;
    }
    if ((entry.kind & kEntryRecv) != 0) {
      if (ends_message) totals.rx_messages += messages;
      totals.rx_bytes += wire;
      totals.rx_data_bytes += data;
    }
  }
  return totals;
}

}  // namespace etloop
