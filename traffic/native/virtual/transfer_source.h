// Transfers that a model outside the engine starts while a run lasts: each decision depends on those that have arrived.
//
// Each is one more use of a SEND and a RECV that the programs of two ranks describe (`Ops::post`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"
#include "plan/records.h"

namespace etloop {

// The two ops of a transfer between two ranks.
struct TransferPair {
  int32_t src_rank;
  int32_t send_op;
  int32_t dst_rank;
  int32_t recv_op;
};

struct StartedTransfer {
  uint32_t pair;
  int64_t bytes;
  int32_t id;  // at least 0
};

struct ArrivedTransfer {
  int32_t id;
  Nanos at_ns;
};

class TransferSource {
 public:
  static constexpr int32_t kSendId = -1;  // of the record of a SEND; a RECV has the transfer's id

  virtual ~TransferSource() = default;
  // Return the pairs between which it starts transfers; no other op of their ranks takes place.
  virtual std::span<const TransferPair> pairs() const = 0;
  // Return when it acts next without an arrival; kNever: only after one.
  virtual Nanos next_ns() const = 0;
  // Act at `now`: append the transfers that begin. Times are since the start of the run.
  virtual void act(Nanos now, std::span<const ArrivedTransfer> arrived, std::vector<StartedTransfer>& started) = 0;
  // Whether it will start no more transfers and wait for none.
  virtual bool over() const = 0;
};

// Return why the pairs do not fit the plan; empty if they do.
inline std::string validate(std::span<const TransferPair> pairs, const EnginePlan& plan) {
  const auto has = [&plan](int32_t number, int32_t op, OpKind kind) {
    for (const PlannedRank& rank : plan.ranks) {
      if (rank.rank != number) continue;
      const Program& program = plan.programs[static_cast<size_t>(rank.program)];
      return op >= 0 && static_cast<size_t>(op) < program.size() && program.kind[static_cast<size_t>(op)] == kind;
    }
    return false;
  };
  for (const TransferPair& pair : pairs) {
    if (!has(pair.src_rank, pair.send_op, OpKind::send) || !has(pair.dst_rank, pair.recv_op, OpKind::recv)) {
      return "transfers: no such send and receive from rank " + std::to_string(pair.src_rank) + " to rank " +
             std::to_string(pair.dst_rank);
    }
  }
  return {};
}

// Starts the transfers of a source in a run of one or several cores. `Poster` has expect_posts(rank), post(rank, op, bytes, id,
// now) and end_posts().
class TransferTurns {
 public:
  explicit TransferTurns(TransferSource* source) : source_(source) {}

  bool present() const { return source_ != nullptr; }
  template <typename Poster>
  void begin(Poster& poster, Nanos start_ns) {
    start_ns_ = start_ns;
    has_begun_ = true;
    if (source_ == nullptr) return;
    for (const TransferPair& pair : source_->pairs()) {
      for (const int32_t rank : {pair.src_rank, pair.dst_rank}) {
        if (is_posted_.size() <= static_cast<size_t>(rank)) is_posted_.resize(static_cast<size_t>(rank) + 1);
        if (!is_posted_[static_cast<size_t>(rank)]) poster.expect_posts(rank);
        is_posted_[static_cast<size_t>(rank)] = true;
      }
    }
  }
  // When the source acts next; not before `begin`, such as during the probe.
  Nanos due_ns() const {
    if (!has_begun_ || source_ == nullptr || over_) return kNever;
    const Nanos next_ns = source_->next_ns();
    if (!arrived_.empty()) return start_ns_;
    return next_ns == kNever ? kNever : start_ns_ + next_ns;
  }
  // Note a record. Return whether it is of a transfer, and not of an op of another rank's program.
  bool note(const OpRecord& record) {
    const auto rank = static_cast<size_t>(record.rank);
    if (rank >= is_posted_.size() || !is_posted_[rank]) return false;
    if (record.iteration != TransferSource::kSendId) arrived_.push_back({record.iteration, record.completed_ns - start_ns_});
    return true;
  }
  // Let the source act at `now`.
  template <typename Poster>
  void act(Poster& poster, Nanos now) {
    started_.clear();
    handed_.swap(arrived_);
    arrived_.clear();
    source_->act(now - start_ns_, handed_, started_);
    for (const StartedTransfer& transfer : started_) {
      const TransferPair& pair = source_->pairs()[transfer.pair];
      poster.post(pair.dst_rank, pair.recv_op, transfer.bytes, transfer.id, now);
      poster.post(pair.src_rank, pair.send_op, transfer.bytes, TransferSource::kSendId, now);
    }
    if (!source_->over()) return;
    over_ = true;
    poster.end_posts();
  }

 private:
  TransferSource* source_;
  Nanos start_ns_ = 0;
  bool has_begun_ = false;
  bool over_ = false;
  std::vector<bool> is_posted_;  // by rank
  std::vector<ArrivedTransfer> arrived_;
  std::vector<ArrivedTransfer> handed_;
  std::vector<StartedTransfer> started_;
};

}  // namespace etloop
