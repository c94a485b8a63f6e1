// The ranks of a port according to the plan: their programs, and the connection that each step of an op uses, by channel and
// position of the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/connections.h"
#include "core/rank.h"
#include "plan/plan.h"

namespace etloop {

inline constexpr int32_t kEveryPort = -1;
inline constexpr uint32_t kNotOpened = UINT32_MAX;  // in place of an op's record index

// (channel, position) -> connection.
class ConnectionIndex {
 public:
  void add(int32_t channel, int32_t position, int32_t connection) { items_.push_back({key(channel, position), connection}); }
  // Sort the index; call after the last `add` and before the first `find`.
  void finish();
  // Return the connection, -1 if there is none.
  int32_t find(int32_t channel, int32_t position) const;

 private:
  struct Item {
    uint64_t key;
    int32_t connection;
  };
  static uint64_t key(int32_t channel, int32_t position) {
    return static_cast<uint64_t>(channel) << 32 | static_cast<uint32_t>(position);
  }
  std::vector<Item> items_;
};

struct CommunicatorSlot {
  int32_t communicator = 0;
  int32_t position = 0;
  uint32_t ops = 0;  // collectives per iteration
  ConnectionIndex send_to;
  ConnectionIndex recv_from;
  std::vector<int32_t> collectives;  // ops of an iteration, by sequence
  // Collectives that were opened ahead and have not begun, and the first that was not considered for it (set by `Ops`).
  // Collectives are numbered over all iterations.
  struct Ahead {
    uint64_t number;
    uint32_t run;
  };
  std::vector<Ahead> ahead;
  uint64_t next_ahead = 0;
};

struct PeerSlot {
  int32_t peer = 0;
  uint32_t sends = 0;  // per iteration
  uint32_t recvs = 0;
  uint32_t posted_sends = 0;  // so far, of a rank whose ops are posted
  uint32_t posted_recvs = 0;
  ConnectionIndex send_to;  // by channel; position 0
  ConnectionIndex recv_from;
};

// Receives of one rank pair, by sequence; some are granted ahead of their op.
struct EagerQueue {
  uint32_t slot;
  std::vector<int32_t> ops;
  size_t next = 0;
};

struct LocalRank {
  int32_t rank;
  RankRun run;
  std::vector<CommunicatorSlot> communicators;
  std::vector<PeerSlot> peers;
  std::vector<EagerQueue> eager;
  std::vector<uint32_t> ahead_run;  // by op, of RECVs: record index if opened ahead (set by `Ops`)
  bool awaited = true;  // false: a background rank, whose progress does not count
  bool posted = false;  // its program only describes ops: they begin when they are posted (`Ops::post`)
  uint8_t traffic_class = 0;
};

class LocalRanks {
 public:
  // Load the ranks of `port`, or of every port. Fails if the engine cannot hold them.
  Result<void> load(const EnginePlan& plan, int32_t port);
  // Load the ranks in these rows of the plan. Fails likewise.
  Result<void> load(const EnginePlan& plan, std::span<const uint32_t> rows);
  // Find each rank's connections. Fails on duplicates in the plan.
  Result<void> connect(const EnginePlan& plan, const Connections& connections);

  size_t size() const { return ranks_.size(); }
  LocalRank& operator[](size_t index) { return ranks_[index]; }
  const LocalRank& operator[](size_t index) const { return ranks_[index]; }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }
  std::map<int32_t, uint32_t> indices() const;
  size_t awaited() const { return awaited_; }
  // Network ops of the awaited ranks over all iterations, and the number of records that all ranks produce.
  int64_t total_ops() const { return total_ops_; }
  int64_t total_records() const { return total_records_; }

 private:
  void add(const EnginePlan& plan, const PlannedRank& planned);
  Result<void> check_records() const;

  using Positions = std::map<int32_t, std::map<int32_t, int32_t>>;  // communicator -> rank -> position
  Positions positions(const EnginePlan& plan) const;

  std::vector<LocalRank> ranks_;
  size_t awaited_ = 0;
  int64_t total_ops_ = 0;
  int64_t total_records_ = 0;
};

}  // namespace etloop
