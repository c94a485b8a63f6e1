// Python's view of step tables: the messages of a lane, and totals for planning.
#include "bind/schedule.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace etloop {

namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;
constexpr int64_t kMaxOpBytes = int64_t{1} << 46;
constexpr int32_t kMaxChunks = 1 << 16;
constexpr int32_t kMaxSlices = 64;
constexpr int32_t kMaxSlots = 64;
constexpr int32_t kMaxChannels = 1024;
constexpr int32_t kMaxPositions = 1 << 14;
constexpr int64_t kMaxLineBytes = 1 << 16;
constexpr int64_t kMaxTrafficPerByte = 1 << 16;
constexpr int64_t kMaxLaneEntries = int64_t{1} << 28;  // over all lanes, which may share entries

template <typename T>
using Column = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

// A column that is kept alive while its values are read.
template <typename T>
class Values {
 public:
  Values(nb::handle tables, const char* name) {
    const nb::object attribute = nb::getattr(tables, name);
    if (!nb::try_cast(attribute, column_)) {
      refuse(std::string("schedules.") + name + " is not a contiguous one-dimensional array of its type");
    }
  }
  size_t size() const { return column_.shape(0); }
  // A column of one value applies to all rows.
  bool covers(size_t rows) const { return size() == rows || size() == 1; }
  T operator[](size_t i) const { return column_.data()[size() == 1 ? 0 : i]; }

 private:
  Column<T> column_;
};

void check_offsets(const Values<int32_t>& offsets, size_t total, const char* name) {
  bool fits = offsets.size() > 0 && offsets[0] == 0 &&
              static_cast<size_t>(offsets[offsets.size() - 1]) == total;
  for (size_t i = 1; fits && i < offsets.size(); ++i) fits = offsets[i] >= offsets[i - 1];
  if (!fits) refuse(std::string("schedules.") + name + " does not rise from 0 to the length of the next level");
}

std::vector<int32_t> copy(const Values<int32_t>& values) {
  std::vector<int32_t> result(values.size());
  for (size_t i = 0; i < result.size(); ++i) result[i] = values[i];
  return result;
}

std::vector<Cutting> read_cutting(nb::handle tables) {
  const Values<uint8_t> rule(tables, "chunk_rule");
  const Values<int64_t> chunk(tables, "chunk_bytes");
  const Values<int32_t> chunks(tables, "chunks_per_loop");
  const Values<uint8_t> shrink(tables, "shrink_last");
  const Values<int32_t> slices(tables, "slices");
  const Values<int64_t> min_slice(tables, "min_slice_bytes");
  const Values<int32_t> slots(tables, "slots");
  const Values<uint8_t> empty(tables, "empty_message");
  const Values<int64_t> align(tables, "slice_align_bytes");
  const Values<int32_t> sizes(tables, "size");
  const Values<int64_t> line_data(tables, "line_data_bytes");
  const Values<int64_t> line_wire(tables, "line_wire_bytes");
  const Values<uint8_t> split(tables, "split");
  const Values<int64_t> traffic(tables, "traffic_per_byte");
  const Values<uint8_t> handshake(tables, "handshake");
  const Values<uint8_t> completion(tables, "completion");
  const Values<int64_t> eager(tables, "eager_bytes");
  const Values<int32_t> connection_slots(tables, "connection_slots");
  const size_t n = rule.size();
  for (const size_t other : {chunk.size(), chunks.size(), shrink.size(), slices.size(), min_slice.size(),
                             slots.size(), empty.size(), align.size(), sizes.size(), line_data.size(),
                             line_wire.size(), split.size(), traffic.size(), handshake.size(), completion.size(), eager.size(),
                             connection_slots.size()}) {
    if (other != n) refuse("schedules: the columns of the schedules differ in length");
  }
  std::vector<Cutting> cutting(n);
  for (size_t s = 0; s < n; ++s) {
    const bool chunks_fit = rule[s] <= static_cast<uint8_t>(ChunkRule::blocks) && chunk[s] > 0 &&
                            chunk[s] <= kMaxChunkBytes && chunks[s] > 0 && chunks[s] <= kMaxChunks;
    const bool slices_fit = slices[s] > 0 && slices[s] <= kMaxSlices && min_slice[s] >= 0 &&
                            min_slice[s] <= kMaxChunkBytes && align[s] > 0 && align[s] <= kMaxChunkBytes;
    const bool lines_fit = (line_data[s] == 0 && line_wire[s] == 0) ||
                           (line_data[s] > 0 && line_wire[s] >= line_data[s] && line_wire[s] <= kMaxLineBytes);
    const bool split_fits = split[s] <= static_cast<uint8_t>(Split::pages) && traffic[s] > 0 &&
                            traffic[s] <= kMaxTrafficPerByte &&
                            handshake[s] <= static_cast<uint8_t>(Handshake::one_sided);
    const bool completion_fits = completion[s] <= static_cast<uint8_t>(Completion::eager) && eager[s] >= 0 &&
                                 connection_slots[s] > 0 && connection_slots[s] <= kMaxSlots;
    const bool fits = chunks_fit && slices_fit && lines_fit && split_fits && completion_fits && slots[s] > 0 &&
                      slots[s] <= kMaxSlots && sizes[s] > 0 && sizes[s] <= kMaxPositions;
    if (!fits) refuse("schedules[" + std::to_string(s) + "]: rule, chunk, slice or slot numbers are out of range");
    cutting[s] = Cutting{static_cast<ChunkRule>(rule[s]), chunk[s], chunks[s], shrink[s] != 0, slices[s],
                         min_slice[s], slots[s], empty[s] != 0, align[s], line_data[s], line_wire[s],
                         static_cast<Split>(split[s]), traffic[s], static_cast<Handshake>(handshake[s]),
                         static_cast<Completion>(completion[s]), eager[s], connection_slots[s]};
  }
  return cutting;
}

std::vector<Lane> read_lanes(nb::handle tables) {
  const Values<int32_t> send_to(tables, "lane_send_to");
  const Values<int32_t> batch(tables, "lane_batch");
  const Values<int32_t> recv_from(tables, "lane_recv_from");
  const Values<int32_t> part(tables, "lane_part");
  const Values<int32_t> parts(tables, "lane_parts");
  const Values<int32_t> span(tables, "lane_span");
  const Values<int32_t> share(tables, "lane_share");
  const Values<int32_t> shares(tables, "lane_shares");
  const Values<int64_t> bytes(tables, "lane_bytes");
  const Values<int32_t> channel(tables, "lane_channel");
  const Values<int32_t> first(tables, "lane_first_entry");
  const Values<int32_t> count(tables, "lane_entry_count");
  const size_t n = send_to.size();
  if (!(batch.covers(n) && recv_from.covers(n) && part.covers(n) && parts.covers(n) && span.covers(n) &&
        share.covers(n) && shares.covers(n) && bytes.covers(n) && channel.covers(n) && first.covers(n) &&
        count.covers(n))) {
    refuse("schedules: the columns of the lanes differ in length");
  }
  std::vector<Lane> lanes(n);
  for (size_t l = 0; l < n; ++l) {
    lanes[l] = Lane{batch[l], send_to[l], recv_from[l], part[l], parts[l], first[l],
                    count[l], bytes[l],   channel[l],   span[l], share[l], shares[l]};
  }
  return lanes;
}

std::vector<Entry> read_entries(nb::handle tables) {
  const Values<int32_t> chunk(tables, "entry_chunk");
  const Values<uint8_t> kind(tables, "entry_kind");
  const Values<int32_t> after_lane(tables, "entry_after_lane");
  const Values<int32_t> after_entry(tables, "entry_after_entry");
  const size_t n = chunk.size();
  if (!(kind.covers(n) && after_lane.covers(n) && after_entry.covers(n))) {
    refuse("schedules: the columns of the entries differ in length");
  }
  std::vector<Entry> entries(n);
  for (size_t e = 0; e < n; ++e) entries[e] = Entry{kind[e], chunk[e], after_lane[e], after_entry[e]};
  number_messages(entries);
  return entries;
}

// Whether an entry with a message that continues is followed in its lane by one of the same direction without a dependency.
bool goes_on(const ScheduleSet& set, const Lane& lane, int32_t entry) {
  constexpr int kDirection = kEntrySend | kEntryRecv;
  if ((set.entries[entry].kind & kEntryMore) == 0) return true;
  if (entry + 1 == lane.first_entry + lane.entry_count || set.entries[entry + 1].after_lane >= 0) return false;
  return ((set.entries[entry].kind ^ set.entries[entry + 1].kind) & kDirection) == 0;
}

// Whether an entry's dependency exists and can complete before it: in a lane of its table, and in no later batch of its channel.
bool waits_well(const ScheduleSet& set, int32_t table, int32_t lane, const Entry& entry) {
  if (entry.after_lane == -1) return entry.after_entry == -1;
  const int32_t first = set.lane_offsets[table];
  if (entry.after_lane < 0 || entry.after_lane >= set.lane_offsets[table + 1] - first) return false;
  const Lane& other = set.lanes[first + entry.after_lane];
  const bool comes_later = other.channel == set.lanes[lane].channel && other.batch > set.lanes[lane].batch;
  return first + entry.after_lane != lane && !comes_later && entry.after_entry >= -1 &&
         entry.after_entry < other.entry_count;
}

bool entry_fits(const ScheduleSet& set, const Cutting& cutting, int32_t table, int32_t lane, int32_t at) {
  const Entry& entry = set.entries[at];
  const bool sends = (entry.kind & kEntrySend) != 0;
  const bool receives = (entry.kind & kEntryRecv) != 0;
  if (entry.kind > (kEntrySend | kEntryRecv | kEntryReduce | kEntryCopy | kEntryMore | kEntryInTurn)) return false;
  if ((entry.kind & kEntryInTurn) != 0 && !receives) return false;
  if (entry.chunk < 0 || entry.chunk >= cutting.chunks_per_loop) return false;
  if (!sends && !receives && (entry.kind != 0 || entry.after_lane < 0)) return false;
  if ((sends && set.lanes[lane].send_to < 0) || (receives && set.lanes[lane].recv_from < 0)) return false;
  return goes_on(set, set.lanes[lane], at) && waits_well(set, table, lane, entry);
}

bool lane_fits(const Lane& lane, int32_t size, size_t entries) {
  const bool peers = lane.send_to >= -1 && lane.send_to < size && lane.recv_from >= -1 && lane.recv_from < size;
  const bool part = lane.parts > 0 && lane.part >= 0 && lane.span > 0 &&
                    int64_t{lane.part} + lane.span <= int64_t{lane.parts} * kMaxPositions;
  const bool share = lane.shares > 0 && lane.share >= 0 && lane.share < lane.shares && lane.shares <= kMaxChannels;
  const bool range = lane.first_entry >= 0 && lane.entry_count >= 0 &&
                     static_cast<size_t>(lane.first_entry) + static_cast<size_t>(lane.entry_count) <= entries;
  return lane.batch >= 0 && peers && part && share && range && lane.bytes >= -1 && lane.bytes <= kMaxOpBytes &&
         lane.channel >= 0 && lane.channel < kMaxChannels;
}

// Check each lane and entry against its schedule.
void check_ranges(const ScheduleSet& set) {
  int64_t lane_entries = 0;
  for (size_t s = 0; s < set.cutting.size(); ++s) {
    for (int32_t t = set.table_offsets[s]; t < set.table_offsets[s + 1]; ++t) {
      const int32_t position = set.table_positions[t];
      if (position < 0 || position >= set.sizes[s] || (t > set.table_offsets[s] && position <= set.table_positions[t - 1])) {
        refuse("schedules.table_position[" + std::to_string(t) + "]: does not rise within its schedule");
      }
      for (int32_t l = set.lane_offsets[t]; l < set.lane_offsets[t + 1]; ++l) {
        const Lane& lane = set.lanes[l];
        if (!lane_fits(lane, set.sizes[s], set.entries.size())) {
          refuse("schedules.lanes[" + std::to_string(l) + "]: batch, peer, part, bytes or entries are out of range");
        }
        lane_entries += lane.entry_count;
        if (lane_entries > kMaxLaneEntries) refuse("schedules: the lanes have more than 2^28 entries");
        for (int32_t e = lane.first_entry; e < lane.first_entry + lane.entry_count; ++e) {
          if (!entry_fits(set, set.cutting[s], t, l, e)) {
            refuse("schedules.entries[" + std::to_string(e) + "]: kind, chunk or wait does not fit its lane");
          }
        }
      }
    }
  }
}

// Invert the dependencies: the lanes that wait, by the lane that they wait for.
void derive_dependents(ScheduleSet& set) {
  std::vector<std::pair<int32_t, int32_t>> waits;  // (lane of the set, lane of the table that waits for it)
  for (size_t t = 0; t + 1 < set.lane_offsets.size(); ++t) {
    for (int32_t l = set.lane_offsets[t]; l < set.lane_offsets[t + 1]; ++l) {
      const Lane& lane = set.lanes[l];
      for (int32_t e = lane.first_entry; e < lane.first_entry + lane.entry_count; ++e) {
        if (set.entries[e].after_lane < 0) continue;
        waits.emplace_back(set.lane_offsets[t] + set.entries[e].after_lane, l - set.lane_offsets[t]);
      }
    }
  }
  if (waits.empty()) return;
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  set.dependent_offsets.assign(set.lanes.size() + 1, 0);
  for (const auto& [lane, dependent] : waits) {
    ++set.dependent_offsets[static_cast<size_t>(lane) + 1];
    set.dependents.push_back(dependent);
  }
  for (size_t l = 0; l < set.lanes.size(); ++l) set.dependent_offsets[l + 1] += set.dependent_offsets[l];
}

template <typename T, size_t kColumns>
nb::tuple to_arrays(std::array<std::vector<T>, kColumns>&& columns) {
  nb::list arrays;
  for (auto& column : columns) {
    auto owned = std::make_unique<std::vector<T>>(std::move(column));
    T* values = owned->data();
    const size_t length = owned->size();
    nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    arrays.append(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values, {length}, owner));
  }
  return nb::tuple(arrays);
}

// Step tables with queries for planning; built once per plan.
class StepTables {
 public:
  explicit StepTables(nb::handle tables) : set_(schedule_set_from(tables)) {}

  nb::tuple lane_messages(int32_t schedule, int32_t position, int32_t lane, int64_t op_bytes, int64_t limit) const {
    std::array<std::vector<int64_t>, 4> columns;
    each_step(schedule, position, lane, op_bytes, limit, [&](const LaneCursor&, const LaneStep& step) {
      columns[0].push_back(step.kind);
      columns[1].push_back(step.chunk);
      columns[2].push_back(step.loop);
      columns[3].push_back(step.bytes);
    });
    return to_arrays(std::move(columns));
  }

  nb::tuple lane_steps(int32_t schedule, int32_t position, int32_t lane, int64_t op_bytes, int64_t limit) const {
    std::array<std::vector<int64_t>, 6> columns;
    each_step(schedule, position, lane, op_bytes, limit, [&](const LaneCursor& cursor, const LaneStep& step) {
      columns[0].push_back(step.kind);
      columns[1].push_back(cursor.entry());
      columns[2].push_back(step.loop);
      columns[3].push_back(step.slice);
      columns[4].push_back(step.bytes);
      columns[5].push_back(step.wire_bytes);
    });
    return to_arrays(std::move(columns));
  }

  // Return the bytes that each step moves: its slice of each chunk of its message.
  nb::tuple lane_pieces(int32_t schedule, int32_t position, int32_t lane, int64_t op_bytes, int64_t limit) const {
    std::array<std::vector<int64_t>, 4> columns;
    const Cutting& cutting = set_.cutting[schedule];
    int64_t before = 0;  // bytes of the message in earlier slices
    int64_t number = 0;
    each_step(schedule, position, lane, op_bytes, limit, [&](const LaneCursor& cursor, const LaneStep& step) {
      const Lane& row = set_.lanes[set_.lane_offsets[set_.table(schedule, position)] + lane];
      const LaneCut cut = lane_cut(row, cutting, op_bytes);
      if (step.slice == 0) before = 0;
      int64_t begin = 0;  // offset of the chunk in the message
      for (int32_t e = cursor.entry();; ++e) {
        const Entry& entry = set_.entries[row.first_entry + e];
        const int64_t size = cut.bytes(step.loop, entry.chunk);
        const int64_t from = std::max(begin, before);
        const int64_t to = std::min(begin + size, before + step.bytes);
        if (from < to) {
          columns[0].push_back(number);
          columns[1].push_back(e);
          columns[2].push_back(chunk_address(row, cutting, op_bytes, step.loop, entry.chunk) + from - begin);
          columns[3].push_back(to - from);
        }
        begin += size;
        if ((entry.kind & kEntryMore) == 0) break;
      }
      before += step.bytes;
      ++number;
    });
    return to_arrays(std::move(columns));
  }

  nb::tuple lane_totals_of(int32_t schedule, int32_t position, int64_t op_bytes) const {
    const int32_t table = checked_table(schedule, position, op_bytes);
    LaneColumns columns;
    append_lanes(columns, schedule, table, op_bytes);
    return to_arrays(std::move(columns));
  }

  nb::tuple schedule_totals(int32_t schedule, int64_t op_bytes) const {
    check_asked(schedule, op_bytes);
    LaneColumns columns;
    for (int32_t table = set_.table_offsets[schedule]; table < set_.table_offsets[schedule + 1]; ++table) {
      append_lanes(columns, schedule, table, op_bytes);
    }
    return to_arrays(std::move(columns));
  }

  nb::tuple schedule_sends(int32_t schedule, int64_t op_bytes) const {
    check_asked(schedule, op_bytes);
    std::array<std::vector<int64_t>, 6> columns;
    for (int32_t table = set_.table_offsets[schedule]; table < set_.table_offsets[schedule + 1]; ++table) {
      for (int32_t l = set_.lane_offsets[table]; l < set_.lane_offsets[table + 1]; ++l) {
        const Lane& lane = set_.lanes[l];
        if (lane.send_to < 0) continue;
        const LaneTotals totals = lane_totals(lane, set_.entries.data(), set_.cutting[schedule], op_bytes);
        const std::array<int64_t, 6> row = {set_.table_positions[table], lane.send_to,    lane.channel,
                                            totals.tx_messages,          totals.tx_bytes, totals.tx_data_bytes};
        for (size_t c = 0; c < row.size(); ++c) columns[c].push_back(row[c]);
      }
    }
    return to_arrays(std::move(columns));
  }

  nb::tuple position_totals(const Column<int32_t>& schedule, const Column<int32_t>& position,
                            const Column<int64_t>& op_bytes) const {
    const size_t n = schedule.shape(0);
    if (position.shape(0) != n || op_bytes.shape(0) != n) refuse("schedule, position and op_bytes differ in length");
    std::array<std::vector<int64_t>, 4> columns;
    for (auto& column : columns) column.resize(n);
    // Training jobs repeat a few sizes many times.
    std::map<std::tuple<int32_t, int64_t>, LaneTotals> seen;
    for (size_t i = 0; i < n; ++i) {
      const int32_t table = checked_table(schedule.data()[i], position.data()[i], op_bytes.data()[i]);
      const auto [at, is_new] = seen.try_emplace({table, op_bytes.data()[i]});
      if (is_new) at->second = table_totals(schedule.data()[i], table, op_bytes.data()[i]);
      columns[0][i] = at->second.tx_messages;
      columns[1][i] = at->second.tx_bytes;
      columns[2][i] = at->second.rx_messages;
      columns[3][i] = at->second.rx_bytes;
    }
    return to_arrays(std::move(columns));
  }

 private:
  // position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes
  using LaneColumns = std::array<std::vector<int64_t>, 7>;

  void append_lanes(LaneColumns& columns, int32_t schedule, int32_t table, int64_t op_bytes) const {
    for (int32_t l = set_.lane_offsets[table]; l < set_.lane_offsets[table + 1]; ++l) {
      const Lane& lane = set_.lanes[l];
      const LaneTotals totals = lane_totals(lane, set_.entries.data(), set_.cutting[schedule], op_bytes);
      const std::array<int64_t, 7> row = {set_.table_positions[table], lane.send_to,    lane.recv_from,
                                          totals.tx_messages,          totals.tx_bytes, totals.rx_messages,
                                          totals.rx_bytes};
      for (size_t c = 0; c < row.size(); ++c) columns[c].push_back(row[c]);
    }
  }

  template <typename Visit>
  void each_step(int32_t schedule, int32_t position, int32_t lane, int64_t op_bytes, int64_t limit,
                 const Visit& visit) const {
    const int32_t table = checked_table(schedule, position, op_bytes);
    const int32_t index = set_.lane_offsets[table] + lane;
    if (lane < 0 || index >= set_.lane_offsets[table + 1]) refuse("lane " + std::to_string(lane) + " does not exist");
    LaneCursor cursor(set_.lanes[index], set_.entries.data(), set_.cutting[schedule], op_bytes);
    for (int64_t steps = 0; !cursor.done(); cursor.advance()) {
      if (steps++ >= limit) refuse("the lane has more than " + std::to_string(limit) + " messages");
      visit(cursor, cursor.step());
    }
  }

  void check_asked(int32_t schedule, int64_t op_bytes) const {
    if (schedule < 0 || static_cast<size_t>(schedule) >= set_.cutting.size()) {
      refuse("schedule " + std::to_string(schedule) + " does not exist");
    }
    if (op_bytes < 0 || op_bytes > kMaxOpBytes) refuse(std::to_string(op_bytes) + " bytes are outside 0 to 64 TiB");
  }

  int32_t checked_table(int32_t schedule, int32_t position, int64_t op_bytes) const {
    check_asked(schedule, op_bytes);
    const int32_t table = set_.table(schedule, position);
    if (table < 0) {
      refuse("position " + std::to_string(position) + " is outside schedule " + std::to_string(schedule));
    }
    return table;
  }

  LaneTotals table_totals(int32_t schedule, int32_t table, int64_t op_bytes) const {
    LaneTotals sum;
    for (int32_t l = set_.lane_offsets[table]; l < set_.lane_offsets[table + 1]; ++l) {
      const LaneTotals one = lane_totals(set_.lanes[l], set_.entries.data(), set_.cutting[schedule], op_bytes);
      sum.tx_messages += one.tx_messages;
      sum.tx_bytes += one.tx_bytes;
      sum.rx_messages += one.rx_messages;
      sum.rx_bytes += one.rx_bytes;
    }
    return sum;
  }

  ScheduleSet set_;
};

}  // namespace

ScheduleSet schedule_set_from(nb::handle tables) {
  const Values<int32_t> table_offsets(tables, "table_offsets");
  const Values<int32_t> table_position(tables, "table_position");
  const Values<int32_t> lane_offsets(tables, "lane_offsets");
  const nb::object schedules = nb::getattr(tables, "schedules");
  const Values<int32_t> sizes(schedules, "size");
  ScheduleSet set;
  set.cutting = read_cutting(schedules);
  set.sizes = copy(sizes);
  set.lanes = read_lanes(tables);
  set.entries = read_entries(tables);
  check_offsets(lane_offsets, set.lanes.size(), "lane_offsets");
  check_offsets(table_offsets, lane_offsets.size() - 1, "table_offsets");
  if (table_offsets.size() != set.cutting.size() + 1) refuse("schedules.table_offsets does not fit the schedules");
  if (table_position.size() != lane_offsets.size() - 1) refuse("schedules.table_position does not fit the tables");
  set.table_offsets = copy(table_offsets);
  set.table_positions = copy(table_position);
  set.lane_offsets = copy(lane_offsets);
  check_ranges(set);
  derive_dependents(set);
  return set;
}

void bind_schedule(nb::module_& module) {
  nb::class_<StepTables>(module, "StepTables", "Step tables that answer what a lane or a position moves.")
      .def(nb::init<nb::handle>(), nb::arg("tables"), "From the columns of a ScheduleTables.")
      .def("lane_messages", &StepTables::lane_messages, nb::arg("schedule"), nb::arg("position"), nb::arg("lane"),
           nb::arg("op_bytes"), nb::arg("limit") = int64_t{1} << 22,
           "(kind, chunk, loop, bytes) of the lane's steps in order. ValueError beyond `limit` steps.")
      .def("lane_steps", &StepTables::lane_steps, nb::arg("schedule"), nb::arg("position"), nb::arg("lane"),
           nb::arg("op_bytes"), nb::arg("limit") = int64_t{1} << 22,
           "(kind, first entry, loop, slice, bytes, wire_bytes) of the lane's steps in order. ValueError beyond `limit`.")
      .def("lane_pieces", &StepTables::lane_pieces, nb::arg("schedule"), nb::arg("position"), nb::arg("lane"),
           nb::arg("op_bytes"), nb::arg("limit") = int64_t{1} << 22,
           "(step, entry, address, bytes) of everything that the lane's steps move, empty pieces left out.")
      .def("lane_totals_of", &StepTables::lane_totals_of, nb::arg("schedule"), nb::arg("position"),
           nb::arg("op_bytes"),
           "(position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes), a row per lane of the "
           "position.")
      .def("schedule_totals", &StepTables::schedule_totals, nb::arg("schedule"), nb::arg("op_bytes"),
           "(position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes), a row per lane of the "
           "schedule.")
      .def("schedule_sends", &StepTables::schedule_sends, nb::arg("schedule"), nb::arg("op_bytes"),
           "(position, send_to, channel, tx_messages, tx_bytes, tx_data_bytes), a row per sending lane of the tables that "
           "are here. Bytes are those of the wire, data bytes those that a protocol has not yet expanded.")
      .def("position_totals", &StepTables::position_totals, nb::arg("schedule"), nb::arg("position"),
           nb::arg("op_bytes"), "(tx_messages, tx_bytes, rx_messages, rx_bytes), a row per op asked for.");
}

}  // namespace etloop
