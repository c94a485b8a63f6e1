// Execution state of one rank's program: which op may begin when. Pure; independent of packets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/turnarounds.h"
#include "plan/plan.h"

namespace etloop {

// An op whose dependencies are met, the last of them at `intended_ns`; a delay begins then.
struct ReadyOp {
  uint32_t rank_index;
  int32_t op;
  Nanos intended_ns;
  Trigger trigger;  // arrival of the message that met the last dependency, if one did
};

class RankRun {
 public:
  RankRun(uint32_t rank_index, const Program& program, int32_t iterations);

  // Begin the next iteration: ops without dependencies become ready at `at_ns`.
  void begin_iteration(Nanos at_ns, std::vector<ReadyOp>& ready);
  // Complete op `op` at `at_ns`; append the ops that become ready to `ready`.
  void complete(int32_t op, Nanos at_ns, std::vector<ReadyOp>& ready);

  bool iteration_over() const { return unfinished_ == 0; }
  bool finished() const { return started_ == iterations_ && unfinished_ == 0; }
  int32_t iteration() const { return started_ - 1; }
  bool last_iteration() const { return started_ == iterations_; }
  bool started() const { return started_ > 0; }
  Nanos last_completion_ns() const { return last_ns_; }
  // Whether op `op` is unfinished in the current iteration.
  bool pending(int32_t op) const { return remaining_[static_cast<size_t>(op)] != kDone; }
  bool waits_for_dependency(int32_t op) const {
    const uint32_t remaining = remaining_[static_cast<size_t>(op)];
    return remaining != kDone && remaining != 0;
  }
  // Return an unfinished dependency of `op`, -1 if none.
  int32_t blocking_dependency(int32_t op) const;
  const Program& program() const { return *program_; }

 private:
  static constexpr uint32_t kDone = UINT32_MAX;
  uint32_t rank_index_;
  const Program* program_;
  int32_t iterations_;
  int32_t started_ = 0;
  size_t unfinished_ = 0;
  Nanos last_ns_ = 0;
  std::vector<uint32_t> remaining_;
  std::vector<Nanos> met_ns_;
};

}  // namespace etloop
