// Python's view of step tables: the messages of one lane, and totals for planning, from the one implementation.
#include "bind_schedule.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace nb = nanobind;

namespace etloop {

namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;
constexpr int64_t kMaxOpBytes = int64_t{1} << 46;
constexpr int32_t kMaxChunks = 1 << 16;
constexpr int32_t kMaxSlices = 64;
constexpr int32_t kMaxSlots = 64;

template <typename T>
using Column = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

// A column held alive while its values are read.
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
  T operator[](size_t i) const { return column_.data()[i]; }

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
  const size_t n = rule.size();
  for (const size_t other : {chunk.size(), chunks.size(), shrink.size(), slices.size(), min_slice.size(),
                             slots.size(), empty.size(), align.size()}) {
    if (other != n) refuse("schedules: the columns of the schedules differ in length");
  }
  std::vector<Cutting> cutting(n);
  for (size_t s = 0; s < n; ++s) {
    const bool chunks_fit = rule[s] <= static_cast<uint8_t>(ChunkRule::blocks) && chunk[s] > 0 &&
                            chunk[s] <= kMaxChunkBytes && chunks[s] > 0 && chunks[s] <= kMaxChunks;
    const bool slices_fit = slices[s] > 0 && slices[s] <= kMaxSlices && min_slice[s] >= 0 &&
                            min_slice[s] <= kMaxChunkBytes && align[s] > 0 && align[s] <= kMaxChunkBytes;
    const bool fits = chunks_fit && slices_fit && slots[s] > 0 && slots[s] <= kMaxSlots;
    if (!fits) refuse("schedules[" + std::to_string(s) + "]: rule, chunk, slice or slot numbers are out of range");
    cutting[s] = Cutting{static_cast<ChunkRule>(rule[s]), chunk[s], chunks[s], shrink[s] != 0, slices[s],
                         min_slice[s], slots[s], empty[s] != 0, align[s]};
  }
  return cutting;
}

std::vector<Lane> read_lanes(nb::handle tables, const Values<int32_t>& entry_offsets) {
  const Values<int32_t> batch(tables, "lane_batch");
  const Values<int32_t> send_to(tables, "lane_send_to");
  const Values<int32_t> recv_from(tables, "lane_recv_from");
  const Values<int32_t> part(tables, "lane_part");
  const Values<int32_t> parts(tables, "lane_parts");
  const Values<int64_t> bytes(tables, "lane_bytes");
  const size_t n = batch.size();
  for (const size_t other :
       {send_to.size(), recv_from.size(), part.size(), parts.size(), bytes.size(), entry_offsets.size() - 1}) {
    if (other != n) refuse("schedules: the columns of the lanes differ in length");
  }
  std::vector<Lane> lanes(n);
  for (size_t l = 0; l < n; ++l) {
    lanes[l] = Lane{batch[l], send_to[l], recv_from[l], part[l], parts[l], entry_offsets[l],
                    entry_offsets[l + 1] - entry_offsets[l], bytes[l]};
  }
  return lanes;
}

// Whether an entry whose message goes on is followed, in its lane, by one of the same direction.
bool goes_on(const ScheduleSet& set, const Lane& lane, int32_t entry) {
  constexpr int kDirection = kEntrySend | kEntryRecv;
  if ((set.entries[entry].kind & kEntryMore) == 0) return true;
  if (entry + 1 == lane.first_entry + lane.entry_count) return false;
  return ((set.entries[entry].kind ^ set.entries[entry + 1].kind) & kDirection) == 0;
}

// Peers and parts of every lane, and the kind and chunk of every entry, against the schedule they belong to.
void check_ranges(const ScheduleSet& set) {
  for (size_t s = 0; s < set.cutting.size(); ++s) {
    const int32_t size = set.table_offsets[s + 1] - set.table_offsets[s];
    const int32_t last_lane = set.lane_offsets[set.table_offsets[s + 1]];
    for (int32_t l = set.lane_offsets[set.table_offsets[s]]; l < last_lane; ++l) {
      const Lane& lane = set.lanes[l];
      if (lane.batch < 0 || lane.send_to < -1 || lane.send_to >= size || lane.recv_from < -1 ||
          lane.recv_from >= size || lane.parts <= 0 || lane.part < 0 || lane.part >= lane.parts || lane.bytes < -1 ||
          lane.bytes > kMaxOpBytes) {
        refuse("schedules.lanes[" + std::to_string(l) + "]: batch, peer, part or bytes is out of range");
      }
      for (int32_t e = lane.first_entry; e < lane.first_entry + lane.entry_count; ++e) {
        const Entry& entry = set.entries[e];
        const bool sends = (entry.kind & kEntrySend) != 0;
        const bool receives = (entry.kind & kEntryRecv) != 0;
        if (entry.chunk < 0 || entry.chunk >= set.cutting[s].chunks_per_loop || (!sends && !receives) ||
            (sends && lane.send_to < 0) || (receives && lane.recv_from < 0) || !goes_on(set, lane, e)) {
          refuse("schedules.entries[" + std::to_string(e) + "]: kind or chunk does not fit its lane");
        }
      }
    }
  }
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

// Step tables that answer questions; made once per plan.
class StepTables {
 public:
  explicit StepTables(nb::handle tables) : set_(schedule_set_from(tables)) {}

  nb::tuple lane_messages(int32_t schedule, int32_t position, int32_t lane, int64_t op_bytes, int64_t limit) const {
    const int32_t table = checked_table(schedule, position, op_bytes);
    const int32_t index = set_.lane_offsets[table] + lane;
    if (lane < 0 || index >= set_.lane_offsets[table + 1]) refuse("lane " + std::to_string(lane) + " does not exist");
    std::array<std::vector<int64_t>, 4> columns;
    LaneCursor cursor(set_.lanes[index], set_.entries.data(), set_.cutting[schedule], op_bytes);
    for (; !cursor.done(); cursor.advance()) {
      if (static_cast<int64_t>(columns[0].size()) >= limit) {
        refuse("the lane has more than " + std::to_string(limit) + " messages");
      }
      const LaneStep step = cursor.step();
      columns[0].push_back(step.kind);
      columns[1].push_back(step.chunk);
      columns[2].push_back(step.loop);
      columns[3].push_back(step.bytes);
    }
    return to_arrays(std::move(columns));
  }

  nb::tuple lane_totals_of(int32_t schedule, int32_t position, int64_t op_bytes) const {
    const int32_t table = checked_table(schedule, position, op_bytes);
    LaneColumns columns;
    append_lanes(columns, schedule, table, op_bytes);
    return to_arrays(std::move(columns));
  }

  nb::tuple schedule_totals(int32_t schedule, int64_t op_bytes) const {
    const int32_t first = checked_table(schedule, 0, op_bytes);
    LaneColumns columns;
    for (int32_t table = first; table < set_.table_offsets[schedule + 1]; ++table) {
      append_lanes(columns, schedule, table, op_bytes);
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
      const std::array<int64_t, 7> row = {table - set_.table_offsets[schedule], lane.send_to,     lane.recv_from,
                                          totals.tx_messages,                   totals.tx_bytes, totals.rx_messages,
                                          totals.rx_bytes};
      for (size_t c = 0; c < row.size(); ++c) columns[c].push_back(row[c]);
    }
  }

  int32_t checked_table(int32_t schedule, int32_t position, int64_t op_bytes) const {
    if (schedule < 0 || static_cast<size_t>(schedule) >= set_.cutting.size()) {
      refuse("schedule " + std::to_string(schedule) + " does not exist");
    }
    const int32_t size = set_.table_offsets[schedule + 1] - set_.table_offsets[schedule];
    if (position < 0 || position >= size) {
      refuse("position " + std::to_string(position) + " is outside schedule " + std::to_string(schedule));
    }
    if (op_bytes < 0 || op_bytes > kMaxOpBytes) refuse(std::to_string(op_bytes) + " bytes are outside 0 to 64 TiB");
    return set_.table_offsets[schedule] + position;
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
  const Values<int32_t> lane_offsets(tables, "lane_offsets");
  const Values<int32_t> entry_offsets(tables, "entry_offsets");
  const Values<uint8_t> kind(tables, "entry_kind");
  const Values<int32_t> chunk(tables, "entry_chunk");
  if (chunk.size() != kind.size()) refuse("schedules: the columns of the entries differ in length");
  check_offsets(entry_offsets, kind.size(), "entry_offsets");

  ScheduleSet set;
  set.cutting = read_cutting(tables);
  set.lanes = read_lanes(tables, entry_offsets);
  check_offsets(lane_offsets, set.lanes.size(), "lane_offsets");
  check_offsets(table_offsets, lane_offsets.size() - 1, "table_offsets");
  if (table_offsets.size() != set.cutting.size() + 1) refuse("schedules.table_offsets does not fit the schedules");
  set.table_offsets = copy(table_offsets);
  set.lane_offsets = copy(lane_offsets);
  set.entries.resize(kind.size());
  for (size_t e = 0; e < set.entries.size(); ++e) set.entries[e] = Entry{kind[e], chunk[e]};
  check_ranges(set);
  return set;
}

void bind_schedule(nb::module_& module) {
  nb::class_<StepTables>(module, "StepTables", "Step tables that answer what a lane or a position moves.")
      .def(nb::init<nb::handle>(), nb::arg("tables"), "From the columns of a ScheduleTables.")
      .def("lane_messages", &StepTables::lane_messages, nb::arg("schedule"), nb::arg("position"), nb::arg("lane"),
           nb::arg("op_bytes"), nb::arg("limit") = int64_t{1} << 22,
           "(kind, chunk, loop, bytes) of the lane's messages in order. ValueError beyond `limit` messages.")
      .def("lane_totals_of", &StepTables::lane_totals_of, nb::arg("schedule"), nb::arg("position"),
           nb::arg("op_bytes"),
           "(position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes), a row per lane of the "
           "position.")
      .def("schedule_totals", &StepTables::schedule_totals, nb::arg("schedule"), nb::arg("op_bytes"),
           "(position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes), a row per lane of the "
           "schedule.")
      .def("position_totals", &StepTables::position_totals, nb::arg("schedule"), nb::arg("position"),
           nb::arg("op_bytes"), "(tx_messages, tx_bytes, rx_messages, rx_bytes), a row per op asked for.");
}

}  // namespace etloop
