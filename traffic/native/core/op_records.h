// What is measured of ops: the records of those under way and of those that are over, progress, and how long a message
// that a host sends came after the one that released it.
#pragma once

#include <algorithm>
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

  // How many ops will complete at most.
  void reserve(size_t ops) { completed_.reserve(ops); }

  // Begins a record. Its number is the op's until `close`, after which another op may have it.
  uint32_t open(int32_t rank, int32_t op, int32_t iteration, bool awaited);
  OpRecord& operator[](uint32_t run) { return open_[run].record; }
  const OpRecord& operator[](uint32_t run) const { return open_[run].record; }
  // `now` is when the last thing the op waited for reached this host, which can be before the op began (an eager
  // receive) or before its last send call returned; an op is over no earlier than either. Returns when it was over.
  Nanos close(uint32_t run, Nanos now);

  void start(Nanos now) { status_.last_progress_ns = now; }
  // `awaited`: by the run; the progress of other ranks is none.
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
  // A message of the op leaves. The first counts.
  void note_departure(uint32_t run, Nanos leaves_ns) {
    OpRecord& record = open_[run].record;
    if (record.first_tx_ns == 0) record.first_tx_ns = leaves_ns;
  }
  // The same of a message that another queue sends, which may hear of it later than of one that left after it.
  void note_far_departure(uint32_t run, Nanos leaves_ns) {
    OpRecord& record = open_[run].record;
    if (record.first_tx_ns == 0 || leaves_ns < record.first_tx_ns) record.first_tx_ns = leaves_ns;
  }
  // The message was released by one that arrived at `trigger_ns`; 0: by none.
  void note_turnaround(Nanos trigger_ns, Nanos leaves_ns) {
    if (trigger_ns != 0) ++turnarounds_[turnaround_bucket(leaves_ns - trigger_ns)];
  }

  // Arrival of the message whose consequences are being worked out, 0 if there is none.
  Nanos trigger_ns() const { return trigger_ns_; }
  void set_trigger(Nanos arrived_ns) { trigger_ns_ = arrived_ns; }

  // Completed ops in order of completion.
  const RecordLog& completed() const { return completed_; }
  RecordLog& completed() { return completed_; }
  const CoreStatus& status() const { return status_; }
  const std::vector<uint64_t>& turnarounds() const { return turnarounds_; }

 private:
  struct Open {
    OpRecord record{};
    bool awaited = false;
  };

  CoreStatus status_;
  Nanos trigger_ns_ = 0;
  std::vector<Open> open_;
  std::vector<uint32_t> free_;
  RecordLog completed_;
  std::vector<uint64_t> turnarounds_;
};

}  // namespace etloop
