#include "core/local_ranks.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace etloop {

void ConnectionIndex::finish() {
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.key < b.key; });
}

int32_t ConnectionIndex::find(int32_t channel, int32_t position) const {
  const uint64_t wanted = key(channel, position);
  const auto at = std::lower_bound(items_.begin(), items_.end(), wanted,
                                   [](const Item& item, uint64_t value) { return item.key < value; });
  return at == items_.end() || at->key != wanted ? -1 : at->connection;
}

Result<void> LocalRanks::load(const EnginePlan& plan, int32_t port) {
  for (const PlannedRank& planned : plan.ranks) {
    if (port == kEveryPort || planned.port == port) add(plan, planned);
  }
  return check_records();
}

Result<void> LocalRanks::load(const EnginePlan& plan, std::span<const uint32_t> rows) {
  for (const uint32_t row : rows) add(plan, plan.ranks[row]);
  return check_records();
}

Result<void> LocalRanks::check_records() const {
  constexpr int64_t kMostRecords = 1LL << 26;
  if (total_records_ <= kMostRecords) return {};
  return Error{"a port would record " + std::to_string(total_records_) + " ops, more than 2^26; run fewer iterations"};
}

void LocalRanks::add(const EnginePlan& plan, const PlannedRank& planned) {
  const auto index = static_cast<uint32_t>(ranks_.size());
  const Program& program = plan.programs[static_cast<size_t>(planned.program)];
  const int32_t iterations = planned.background ? 1 : plan.iterations;
  LocalRank rank{planned.rank, RankRun(index, program, iterations), {}, {}, {}, {}};
  for (const int32_t c : planned.communicators) {
    const auto first = plan.communicator_members.begin() + plan.communicator_offsets[static_cast<size_t>(c)];
    const auto last = plan.communicator_members.begin() + plan.communicator_offsets[static_cast<size_t>(c) + 1];
    rank.communicators.push_back({c, static_cast<int32_t>(std::find(first, last, planned.rank) - first), 0, {}, {}, {}, {}});
  }
  for (const int32_t peer : planned.peers) rank.peers.push_back({.peer = peer, .send_to = {}, .recv_from = {}});
  const auto in_sequence = [&program](int32_t a, int32_t b) {
    return program.sequence[static_cast<size_t>(a)] < program.sequence[static_cast<size_t>(b)];
  };
  std::map<uint32_t, std::vector<int32_t>> receives;  // slot -> ops
  for (size_t op = 0; op < program.size(); ++op) {
    const auto slot = static_cast<size_t>(program.slot[op]);
    switch (program.kind[op]) {
      case OpKind::delay: break;
      case OpKind::collective:
        ++rank.communicators[slot].ops;
        rank.communicators[slot].collectives.push_back(static_cast<int32_t>(op));
        break;
      case OpKind::send: ++rank.peers[slot].sends; break;
      case OpKind::recv:
        ++rank.peers[slot].recvs;
        receives[static_cast<uint32_t>(slot)].push_back(static_cast<int32_t>(op));
        break;
    }
  }
  for (auto& [slot, ops] : receives) {
    std::stable_sort(ops.begin(), ops.end(), in_sequence);
    rank.eager.push_back({slot, std::move(ops), 0});
  }
  for (CommunicatorSlot& slot : rank.communicators) {
    std::stable_sort(slot.collectives.begin(), slot.collectives.end(), in_sequence);
  }
  rank.awaited = !planned.background;
  rank.traffic_class = traffic_class_of(plan, planned);
  awaited_ += rank.awaited ? 1 : 0;
  total_ops_ += rank.awaited ? program.network_ops * plan.iterations : 0;
  total_records_ += program.network_ops * iterations;
  ranks_.push_back(std::move(rank));
}

std::map<int32_t, uint32_t> LocalRanks::indices() const {
  std::map<int32_t, uint32_t> local;
  for (uint32_t i = 0; i < ranks_.size(); ++i) local[ranks_[i].rank] = i;
  return local;
}

LocalRanks::Positions LocalRanks::positions(const EnginePlan& plan) const {
  Positions positions;
  for (const LocalRank& rank : ranks_) {
    for (const CommunicatorSlot& slot : rank.communicators) {
      const auto [at, is_new] = positions.try_emplace(slot.communicator);
      const int32_t first = plan.communicator_offsets[static_cast<size_t>(slot.communicator)];
      const int32_t last = plan.communicator_offsets[static_cast<size_t>(slot.communicator) + 1];
      for (int32_t m = first; is_new && m < last; ++m) at->second[plan.communicator_members[static_cast<size_t>(m)]] = m - first;
    }
  }
  return positions;
}

Result<void> LocalRanks::connect(const EnginePlan& plan, const Connections& connections) {
  // Ignore connections without an end here: their ports check them.
  std::vector<int32_t> here;
  std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> keys;
  for (int32_t row = 0; row < static_cast<int32_t>(connections.size()); ++row) {
    if (connections.place(row) == 0) continue;
    const PlannedConnection& c = connections.planned(row);
    here.push_back(row);
    keys.emplace_back(c.communicator, c.channel, c.src_rank, c.dst_rank);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return Error{"connections: rank " + std::to_string(std::get<2>(*twice)) + " -> rank " +
                 std::to_string(std::get<3>(*twice)) + " of one channel twice"};
  }
  const Positions known = positions(plan);
  for (const int32_t row : here) {
    const PlannedConnection& c = connections.planned(row);
    for (const bool sends : {true, false}) {
      const uint32_t index = sends ? connections[row].src_index : connections[row].dst_index;
      if (index == kNotHere) continue;
      const int32_t peer = sends ? c.dst_rank : c.src_rank;
      for (PeerSlot& slot : ranks_[index].peers) {
        if (c.communicator < 0 && slot.peer == peer) (sends ? slot.send_to : slot.recv_from).add(c.channel, 0, row);
      }
      for (CommunicatorSlot& slot : ranks_[index].communicators) {
        if (slot.communicator != c.communicator) continue;
        const auto& members = known.at(c.communicator);
        if (const auto position = members.find(peer); position != members.end()) {
          (sends ? slot.send_to : slot.recv_from).add(c.channel, position->second, row);
        }
      }
    }
  }
  for (LocalRank& rank : ranks_) {
    for (CommunicatorSlot& slot : rank.communicators) slot.send_to.finish(), slot.recv_from.finish();
    for (PeerSlot& slot : rank.peers) slot.send_to.finish(), slot.recv_from.finish();
  }
  return {};
}

}  // namespace etloop
