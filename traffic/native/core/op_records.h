// Measurements of ops: records of open and completed ops, progress, and the host's turnaround: the time from the arrival of a
// message to the departure of a message that it released.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "base/turnarounds.h"
#include "core/record_log.h"
#include "plan/records.h"

namespace etloop {

struct CoreStatus {
  int64_t ops_done = 0;
  int64_t wire_tx_bytes = 0;
  int64_t wire_rx_bytes = 0;
  Nanos last_progress_ns = 0;
};

class OpRecords {
 public:
  OpRecords() : turnarounds_(kTurnaroundBuckets, 0) {}

  // Reserve for at most `ops` completed ops.
  void reserve(size_t ops) { completed_.reserve(ops); }

  // Open a record. Its number identifies the op until `close`, and is then reused.
  uint32_t open(int32_t rank, int32_t op, int32_t iteration, bool awaited);
  OpRecord& operator[](uint32_t run) { return open_[run].record; }
  const OpRecord& operator[](uint32_t run) const { return open_[run].record; }
  // Complete a record; returns the completion time. `now` is when the last input of the op reached this host, which can be before
  // the op's issue (an eager receive) or before its last send call returned; an op completes no earlier than either.
  Nanos close(uint32_t run, Nanos now);

  void start(Nanos now) { status_.last_progress_ns = now; }
  // `awaited`: the rank counts for the run; progress of background ranks is ignored.
  void note_progress(bool awaited, Nanos now) {
    if (awaited) status_.last_progress_ns = std::max(status_.last_progress_ns, now);
  }
  void note_progress(uint32_t run, Nanos now) { note_progress(open_[run].awaited, now); }
  void note_sent(uint32_t run, int64_t bytes, bool on_wire) {
    OpRecord& record = open_[run].record;
    ++record.tx_messages;
    (on_wire ? record.wire_tx_bytes : record.local_tx_bytes) += bytes;
    if (on_wire) status_.wire_tx_bytes += bytes;
  }
  void note_received(uint32_t run, int32_t messages, int64_t bytes, bool on_wire) {
    OpRecord& record = open_[run].record;
    record.rx_messages += messages;
    (on_wire ? record.wire_rx_bytes : record.local_rx_bytes) += bytes;
    if (on_wire) status_.wire_rx_bytes += bytes;
  }
  // Note a departure of the op; the first one counts.
  void note_departure(uint32_t run, Nanos leaves_ns) {
    OpRecord& record = open_[run].record;
    if (record.first_tx_ns == 0) record.first_tx_ns = leaves_ns;
  }
  // Note a departure on another queue, which may be reported later than a departure after it.
  void note_far_departure(uint32_t run, Nanos leaves_ns) {
    OpRecord& record = open_[run].record;
    if (record.first_tx_ns == 0 || leaves_ns < record.first_tx_ns) record.first_tx_ns = leaves_ns;
  }
  // Count the turnaround of a message released by an arrival at `trigger_ns`; 0: released by none.
  void note_turnaround(Nanos trigger_ns, Nanos leaves_ns) {
    if (trigger_ns != 0) ++turnarounds_[turnaround_bucket(leaves_ns - trigger_ns)];
  }
  // Keep the parts of turnarounds as well.
  void measure_parts() {
    for (std::vector<uint64_t>& part : parts_) part.assign(kTurnaroundBuckets, 0);
  }
  void note_part(TurnaroundPart part, Nanos duration_ns) {
    std::vector<uint64_t>& counts = parts_[static_cast<size_t>(part)];
    if (!counts.empty()) ++counts[turnaround_bucket(duration_ns)];
  }

  // The port reads packets at this time.
  void note_read(Nanos now) { read_ns_ = now; }
  // Arrival of the message being processed, if one is.
  Trigger trigger() const { return trigger_; }
  void set_trigger(Trigger trigger) { trigger_ = trigger; }
  // Set it to an arrival in the packets read last.
  void set_arrival(Nanos arrived_ns) {
    trigger_ = {arrived_ns, static_cast<uint32_t>(std::clamp<Nanos>(read_ns_ - arrived_ns, 0, UINT32_MAX))};
  }

  // Completed ops in order of completion.
  const RecordLog& completed() const { return completed_; }
  RecordLog& completed() { return completed_; }
  const CoreStatus& status() const { return status_; }
  const std::vector<uint64_t>& turnarounds() const { return turnarounds_; }
  // Histogram of a part of the turnarounds; empty: not measured.
  const std::vector<uint64_t>& turnaround_part(TurnaroundPart part) const { return parts_[static_cast<size_t>(part)]; }

 private:
  struct Open {
    OpRecord record{};
    bool awaited = false;
  };

  CoreStatus status_;
  Trigger trigger_;
  Nanos read_ns_ = 0;
  std::vector<Open> open_;
  std::vector<uint32_t> free_;
  RecordLog completed_;
  std::vector<uint64_t> turnarounds_;
  std::array<std::vector<uint64_t>, kTurnaroundParts> parts_;
};

}  // namespace etloop
