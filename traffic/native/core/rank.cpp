#include "core/rank.h"

#include <algorithm>
#include <cassert>

namespace etloop {

RankRun::RankRun(uint32_t rank_index, const Program& program, int32_t iterations)
    : rank_index_(rank_index),
      program_(&program),
      iterations_(iterations),
      remaining_(program.size(), kDone),
      met_ns_(program.size(), 0) {}

void RankRun::begin_iteration(Nanos at_ns, std::vector<ReadyOp>& ready) {
  assert(unfinished_ == 0 && started_ < iterations_);
  ++started_;
  last_ns_ = at_ns;
  unfinished_ = program_->size();
  for (size_t op = 0; op < program_->size(); ++op) {
    remaining_[op] = program_->dep_count(op);
    met_ns_[op] = at_ns;
    if (remaining_[op] == 0) ready.push_back({rank_index_, static_cast<int32_t>(op), at_ns, 0});
  }
}

void RankRun::complete(int32_t op, Nanos at_ns, std::vector<ReadyOp>& ready) {
  const auto index = static_cast<size_t>(op);
  assert(remaining_[index] == 0 && unfinished_ > 0);
  remaining_[index] = kDone;
  --unfinished_;
  last_ns_ = std::max(last_ns_, at_ns);
  for (int64_t s = program_->successor_offsets[index]; s < program_->successor_offsets[index + 1]; ++s) {
    const auto successor = static_cast<size_t>(program_->successors[static_cast<size_t>(s)]);
    met_ns_[successor] = std::max(met_ns_[successor], at_ns);
    if (--remaining_[successor] == 0) {
      ready.push_back({rank_index_, static_cast<int32_t>(successor), met_ns_[successor], 0});
    }
  }
}

int32_t RankRun::blocking_dependency(int32_t op) const {
  const auto index = static_cast<size_t>(op);
  for (int64_t d = program_->dep_offsets[index]; d < program_->dep_offsets[index + 1]; ++d) {
    const int32_t dep = program_->deps[static_cast<size_t>(d)];
    if (pending(dep)) return dep;
  }
  return -1;
}

}  // namespace etloop
