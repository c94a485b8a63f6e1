#include "core/op_records.h"

namespace etloop {

uint32_t OpRecords::open(int32_t rank, int32_t op, int32_t iteration, bool awaited) {
  uint32_t run;
  if (free_.empty()) {
    run = static_cast<uint32_t>(open_.size());
    open_.emplace_back();
  } else {
    run = free_.back();
    free_.pop_back();
    open_[run] = Open{};
  }
  Open& opened = open_[run];
  opened.awaited = awaited;
  opened.record.rank = rank;
  opened.record.op = op;
  opened.record.iteration = iteration;
  return run;
}

Nanos OpRecords::complete(uint32_t run, Nanos now) {
  OpRecord& record = open_[run].record;
  record.completed_ns = std::max({now, record.issued_ns, record.first_tx_ns});
  return record.completed_ns;
}

void OpRecords::close(uint32_t run) {
  const Open& over = open_[run];
  completed_.push_back(over.record);
  if (over.awaited) ++status_.ops_done;
  free_.push_back(run);
}

}  // namespace etloop
