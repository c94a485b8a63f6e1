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

Nanos OpRecords::close(uint32_t run, Nanos now) {
  Open& over = open_[run];
  over.record.completed_ns = std::max({now, over.record.issued_ns, over.record.first_tx_ns});
  completed_.push_back(over.record);
  if (over.awaited) ++status_.ops_done;
  free_.push_back(run);
  return over.record.completed_ns;
}

}  // namespace etloop
