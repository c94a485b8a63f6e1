// Ranks of a job that do the same at the same times: of those, the flow level runs one for all. Pure.
//
// Ranks are alike if their programs, messages and links are equal, and each step's peer is alike as well: the coarsest equitable
// partition of ranks, connections and links (Godsil and Royle, Algebraic Graph Theory, 9.3), found by colour refinement. Max-min
// fair rates are unique, so they are equal within a class; a link counts the flows of a class as often as it carries them. Only
// the order of events of different ranks at the same instant can differ from a run of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/records.h"
#include "virtual/flow_network.h"

namespace etloop {

class AlikeRanks {
 public:
  // Find classes of alike ranks; nullopt: too few ranks are alike to save anything, or the plan is inconsistent, which the engine
  // reports. Both arguments have passed `validate`; the plan outlives the result.
  static std::optional<AlikeRanks> find(const EnginePlan& plan, const FlowNetwork& network);

  // Rows of the ranks to run, one per class.
  std::span<const uint32_t> run() const { return run_; }
  // The network as the ranks to run see it: a part is above 1 if several flows of a class share a link.
  const FlowNetwork& network() const { return network_; }
  // Number of ranks that do the same as the sender of a connection.
  int64_t senders(int32_t connection) const { return senders_[static_cast<size_t>(connection)]; }
  // The connection on which a rank to run receives the messages that a rank to run sends on `connection`, and the reverse.
  int32_t received_on(int32_t connection) const { return received_on_[static_cast<size_t>(connection)]; }
  int32_t sent_on(int32_t connection) const { return sent_on_[static_cast<size_t>(connection)]; }

  // Append the records of every rank, given those of the ranks that ran.
  void add_all(const OpRecord& record, std::vector<OpRecord>& out) const;
  void add_all(const WaitRecord& wait, std::vector<WaitRecord>& out) const;
  // Set the bytes of every link, given those of the links of `network`.
  void spread(std::vector<int64_t>& link_bytes) const;

 private:
  friend class RankRefinement;

  // Connections of a rank, in the order in which its program uses them: they correspond to those of ranks that are alike.
  struct Ends {
    std::vector<int32_t> sends;
    std::vector<int32_t> receives;
  };

  const std::vector<uint32_t>& members_of(int32_t rank) const { return members_[class_of_[static_cast<size_t>(rank)]]; }

  const EnginePlan* plan_ = nullptr;  // outlives this
  std::vector<uint32_t> run_;
  std::vector<std::vector<uint32_t>> members_;  // by class: rows of its ranks, ascending
  std::vector<uint32_t> class_of_;              // by rank
  std::vector<Ends> ends_;                      // by row of a rank
  std::vector<uint32_t> send_end_;              // by connection: its place among those of its ranks
  std::vector<uint32_t> receive_end_;
  std::vector<int64_t> senders_;
  std::vector<int32_t> received_on_;
  std::vector<int32_t> sent_on_;
  std::vector<int32_t> link_of_;  // by link: the link of `network` that represents it
  FlowNetwork network_;
};

}  // namespace etloop
