#include "virtual/alike_ranks.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/connections.h"
#include "core/local_ranks.h"
#include "plan/schedule.h"

namespace etloop {

namespace {

constexpr uint32_t kNone = UINT32_MAX;
// Rounds after which the classes of a job without symmetry are given up, far more than any collective needs.
constexpr int kMostRounds = 64;

uint64_t mixed(uint64_t value) {  // splitmix64, Steele, Lea and Flood 2014
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebULL;
  return value ^ value >> 31;
}

// A digest of a sequence of numbers, in 128 bits: different sequences have different ones.
struct Digest {
  uint64_t a = 0x9e3779b97f4a7c15ULL;
  uint64_t b = 0xd1b54a32d192ed03ULL;

  Digest& add(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    a = mixed(a + bits) + 0x9e3779b97f4a7c15ULL;
    b = mixed(b ^ mixed(bits + 0x632be59bd9b4e019ULL)) * 3 + 1;
    return *this;
  }
  Digest& add(const Digest& other) { return add(static_cast<int64_t>(other.a)).add(static_cast<int64_t>(other.b)); }
  // Add a member of a set, in any order.
  void join(const Digest& other) {
    a += other.a;
    b += other.b;
  }
  bool operator==(const Digest&) const = default;
};

struct DigestHash {
  size_t operator()(const Digest& digest) const { return digest.a; }
};

// Numbers classes in order of their first member.
class Classes {
 public:
  uint32_t number(const Digest& digest) {
    return numbers_.try_emplace(digest, static_cast<uint32_t>(numbers_.size())).first->second;
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<Digest, uint32_t, DigestHash> numbers_;
};

// The messages of a lane, and the dependencies of each within its op.
Digest digest_of(const Lane& lane, const std::vector<Entry>& entries, const Cutting& cutting, int64_t op_bytes) {
  const LaneCut cut = lane_cut(lane, cutting, op_bytes);
  Digest digest;
  digest.add(lane.batch).add(lane.channel).add(lane.send_to >= 0).add(lane.recv_from >= 0);
  digest.add(cut.blocks).add(cut.chunks_per_loop).add(cut.lane_bytes == 0).add(cut.loops).add(cut.chunk_bytes);
  digest.add(lane.entry_count);
  for (int32_t i = lane.first_entry; i < lane.first_entry + lane.entry_count; ++i) {
    const Entry& entry = entries[static_cast<size_t>(i)];
    digest.add(entry.kind).add(entry.after_lane).add(entry.after_entry);
    // All loops but the last have the same bytes of a chunk (`LaneCut::bytes`); those of a block follow from its size.
    if (cut.loops > 0) digest.add(cut.blocks ? cut.block(entry.chunk) : cut.bytes(cut.loops - 1, entry.chunk));
  }
  return digest;
}

}  // namespace

class RankRefinement {
 public:
  RankRefinement(const EnginePlan& plan, const FlowNetwork& network) : plan_(plan), network_(network), connections_(plan) {}

  std::optional<AlikeRanks> find() {
    if (plan_.ranks.size() < 2 || !load()) return std::nullopt;
    for (int round = 0; round < kMostRounds; ++round) {
      const size_t before = sizes();
      refine();
      if (too_many()) return std::nullopt;
      if (sizes() == before) return result();
    }
    return std::nullopt;
  }

 private:
  // An op of a program without its sequence and dependencies: ops that are equal in this use connections alike.
  struct Use {
    OpKind kind;
    int32_t slot;
    int32_t schedule;
    int64_t bytes;
    auto operator<=>(const Use&) const = default;
  };

  size_t sizes() const { return rank_classes_ + connection_classes_ + link_classes_; }
  bool too_many() const { return 4 * rank_classes_ > 3 * plan_.ranks.size(); }
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  bool load();
  bool load_rank(size_t row, Digest& digest);
  bool load_use(size_t row, const Use& use, Digest& digest);
  const std::vector<Use>& uses_of(int32_t program);
  const std::vector<Digest>& lanes_of(int32_t table, int32_t schedule, int64_t bytes);
  Digest own_digest(size_t row);
  const Digest& program_digest(int32_t number);
  bool load_connections();
  void refine();
  void refine_connections();
  void refine_links();
  void refine_ranks();
  AlikeRanks result();
  void choose_ranks(AlikeRanks& out) const;
  void match_connections(AlikeRanks& out) const;
  void fold_network(AlikeRanks& out) const;
  template <typename Take>
  void each_part(Take take) const;

  const EnginePlan& plan_;
  const FlowNetwork& network_;
  Connections connections_;
  LocalRanks ranks_;
  std::vector<AlikeRanks::Ends> ends_;
  std::vector<uint32_t> send_end_;
  std::vector<uint32_t> receive_end_;
  std::vector<uint32_t> row_of_rank_;
  std::vector<uint32_t> first_way_;
  std::vector<Digest> fixed_;  // by connection: its properties that do not depend on classes
  std::vector<uint32_t> rank_class_;
  std::vector<uint32_t> connection_class_;  // kNone: unused
  std::vector<uint32_t> link_class_;
  size_t rank_classes_ = 0;
  size_t connection_classes_ = 0;
  size_t link_classes_ = 0;
  std::map<int32_t, Digest> programs_;
  std::map<int32_t, std::vector<Use>> uses_;
  std::map<std::pair<int32_t, int64_t>, std::vector<Digest>> lanes_;  // by table and bytes of the op
  std::map<int32_t, int64_t> ranks_on_port_;
};

// Compare the ranks by themselves: their ops in order, and the connections of each.
bool RankRefinement::load() {
  if (!ranks_.load(plan_, kEveryPort)) return false;
  connections_.load(ranks_.indices());
  if (!ranks_.connect(plan_, connections_)) return false;
  ends_.resize(plan_.ranks.size());
  send_end_.assign(plan_.connections.size(), kNone);
  receive_end_.assign(plan_.connections.size(), kNone);
  Classes classes;
  for (size_t row = 0; row < plan_.ranks.size(); ++row) {
    Digest digest = own_digest(row);
    if (!load_rank(row, digest)) return false;
    rank_class_.push_back(classes.number(digest));
    const auto rank = at(plan_.ranks[row].rank);
    if (rank >= row_of_rank_.size()) row_of_rank_.resize(rank + 1, kNone);
    row_of_rank_[rank] = static_cast<uint32_t>(row);
  }
  rank_classes_ = classes.size();
  lanes_.clear();
  Classes rates;
  for (const int64_t link_bps : network_.link_bps) link_class_.push_back(rates.number(Digest{}.add(link_bps)));
  link_classes_ = rates.size();
  return !too_many() && load_connections();
}

Digest RankRefinement::own_digest(size_t row) {
  const PlannedRank& rank = plan_.ranks[row];
  const PlannedPort& port = plan_.ports[at(rank.port)];
  Digest digest;
  digest.add(program_digest(rank.program)).add(rank.background).add(rank.traffic_class).add(rank.sends);
  digest.add(static_cast<int64_t>(port.transport)).add(port.around_bytes());
  // Ranks of one port take turns on it, so they differ (`FlowLevel::take_turns`).
  digest.add(ranks_on_port_[rank.port]++);
  return digest;
}

const Digest& RankRefinement::program_digest(int32_t number) {
  const auto [found, is_new] = programs_.try_emplace(number);
  if (!is_new) return found->second;
  const Program& program = plan_.programs[at(number)];
  Digest& digest = found->second;
  for (size_t op = 0; op < program.size(); ++op) {
    digest.add(static_cast<int64_t>(program.kind[op])).add(program.schedule[op]).add(program.slot[op]);
    digest.add(program.sequence[op]).add(program.message_bytes[op]).add(program.delay_ns[op]).add(program.dep_offsets[op + 1]);
  }
  for (const int32_t dep : program.deps) digest.add(dep);
  return digest;
}

bool RankRefinement::load_rank(size_t row, Digest& digest) {
  for (const Use& use : uses_of(plan_.ranks[row].program)) {
    if (!load_use(row, use, digest)) return false;
  }
  return true;
}

const std::vector<RankRefinement::Use>& RankRefinement::uses_of(int32_t number) {
  const auto [found, is_new] = uses_.try_emplace(number);
  if (!is_new) return found->second;
  const Program& program = plan_.programs[at(number)];
  std::vector<Use>& uses = found->second;
  for (size_t op = 0; op < program.size(); ++op) {
    if (program.kind[op] == OpKind::delay) continue;
    uses.push_back({program.kind[op], program.slot[op], program.schedule[op], program.message_bytes[op]});
  }
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  return uses;
}

const std::vector<Digest>& RankRefinement::lanes_of(int32_t table, int32_t schedule, int64_t bytes) {
  const auto [found, is_new] = lanes_.try_emplace({table, bytes});
  if (!is_new) return found->second;
  const ScheduleSet& set = plan_.schedules;
  for (int32_t row = set.lane_offsets[at(table)]; row < set.lane_offsets[at(table) + 1]; ++row) {
    found->second.push_back(digest_of(set.lanes[at(row)], set.entries, set.cutting[at(schedule)], bytes));
  }
  return found->second;
}

// Number the connections that an op uses in the order of its lanes, as `Lanes::find_connections` finds them.
bool RankRefinement::load_use(size_t row, const Use& use, Digest& digest) {
  const LocalRank& rank = ranks_[row];
  const bool collective = use.kind == OpKind::collective;
  const ConnectionIndex* send_to = nullptr;
  const ConnectionIndex* receive_from = nullptr;
  int32_t position = use.kind == OpKind::recv ? 1 : 0;
  if (collective) {
    const CommunicatorSlot& slot = rank.communicators[at(use.slot)];
    send_to = &slot.send_to;
    receive_from = &slot.recv_from;
    position = slot.position;
  } else if (use.kind == OpKind::send) {
    send_to = &rank.peers[at(use.slot)].send_to;
  } else {
    receive_from = &rank.peers[at(use.slot)].recv_from;
  }
  const ScheduleSet& set = plan_.schedules;
  const int32_t table = set.table(use.schedule, position);
  if (table < 0) return false;
  const std::vector<Digest>& digests = lanes_of(table, use.schedule, use.bytes);
  digest.add(use.schedule).add(static_cast<int64_t>(digests.size()));
  const auto number = [](std::vector<uint32_t>& numbers, std::vector<int32_t>& known, int32_t connection) {
    uint32_t& end = numbers[at(connection)];
    if (end == kNone) {
      end = static_cast<uint32_t>(known.size());
      known.push_back(connection);
    }
    return int64_t{end};
  };
  for (size_t i = 0; i < digests.size(); ++i) {
    const Lane& lane = set.lanes[at(set.lane_offsets[at(table)]) + i];
    digest.add(digests[i]);
    if (send_to != nullptr && lane.send_to >= 0) {
      const int32_t connection = send_to->find(lane.channel, collective ? lane.send_to : 0);
      if (connection < 0) return false;
      digest.add(number(send_end_, ends_[row].sends, connection));
    }
    if (receive_from != nullptr && lane.recv_from >= 0) {
      const int32_t connection = receive_from->find(lane.channel, collective ? lane.recv_from : 0);
      if (connection < 0) return false;
      digest.add(number(receive_end_, ends_[row].receives, connection));
    }
  }
  return true;
}

bool RankRefinement::load_connections() {
  connection_class_.assign(plan_.connections.size(), kNone);
  fixed_.resize(plan_.connections.size());
  uint32_t way = 0;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    first_way_.push_back(way);
    way += ways_of(c);
    // A connection with one end in use alone is for the engine to report.
    if ((send_end_[row] == kNone) != (receive_end_[row] == kNone)) return false;
    if (send_end_[row] == kNone) continue;
    Digest& digest = fixed_[row];
    digest.add(static_cast<int64_t>(c.path)).add(c.qp_count).add(c.dst_ip.is_v4()).add(send_end_[row]).add(receive_end_[row]);
    for (uint32_t w = first_way_[row]; w < way; ++w) {
      const FlowNetwork::Delay& delay = network_.delays[w];
      digest.add(delay.latency_ns).add(std::bit_cast<int64_t>(delay.store_ns_per_bit));
    }
  }
  return true;
}

// Call `take` with connection, way within it and part, for every part of a connection that is used.
template <typename Take>
void RankRefinement::each_part(Take take) const {
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    if (send_end_[row] == kNone) continue;
    const uint32_t ways = ways_of(plan_.connections[row]);
    for (uint32_t w = 0; w < ways; ++w) {
      const size_t way = first_way_[row] + w;
      for (int64_t p = network_.way_offsets[way]; p < network_.way_offsets[way + 1]; ++p) {
        take(row, w, network_.parts[static_cast<size_t>(p)]);
      }
    }
  }
}

void RankRefinement::refine() {
  refine_connections();
  refine_links();
  refine_ranks();
}

void RankRefinement::refine_connections() {
  std::vector<Digest> digests = fixed_;
  each_part([&](size_t row, uint32_t way, const LinkShare& share) {
    digests[row].add(way).add(link_class_[at(share.link)]).add(std::bit_cast<int32_t>(share.part));
  });
  Classes classes;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    if (send_end_[row] == kNone) continue;
    const PlannedConnection& c = plan_.connections[row];
    digests[row].add(rank_class_[row_of_rank_[at(c.src_rank)]]).add(rank_class_[row_of_rank_[at(c.dst_rank)]]);
    connection_class_[row] = classes.number(digests[row]);
  }
  connection_classes_ = classes.size();
}

void RankRefinement::refine_links() {
  std::vector<Digest> digests(link_class_.size());
  each_part([&](size_t row, uint32_t way, const LinkShare& share) {
    digests[at(share.link)].join(Digest{}.add(connection_class_[row]).add(way).add(std::bit_cast<int32_t>(share.part)));
  });
  Classes classes;
  for (size_t l = 0; l < link_class_.size(); ++l) link_class_[l] = classes.number(digests[l].add(link_class_[l]));
  link_classes_ = classes.size();
}

void RankRefinement::refine_ranks() {
  Classes classes;
  for (size_t row = 0; row < rank_class_.size(); ++row) {
    Digest digest;
    digest.add(rank_class_[row]);
    for (const int32_t c : ends_[row].sends) digest.add(connection_class_[at(c)]);
    for (const int32_t c : ends_[row].receives) digest.add(connection_class_[at(c)]);
    rank_class_[row] = classes.number(digest);
  }
  rank_classes_ = classes.size();
}

AlikeRanks RankRefinement::result() {
  AlikeRanks out;
  out.plan_ = &plan_;
  out.ends_ = std::move(ends_);
  out.send_end_ = std::move(send_end_);
  out.receive_end_ = std::move(receive_end_);
  choose_ranks(out);
  match_connections(out);
  fold_network(out);
  return out;
}

void RankRefinement::choose_ranks(AlikeRanks& out) const {
  out.members_.resize(rank_classes_);
  for (uint32_t row = 0; row < rank_class_.size(); ++row) {
    std::vector<uint32_t>& members = out.members_[rank_class_[row]];
    if (members.empty()) out.run_.push_back(row);  // classes are numbered by their first rank
    members.push_back(row);
  }
  out.class_of_.assign(row_of_rank_.size(), kNone);
  for (size_t rank = 0; rank < row_of_rank_.size(); ++rank) {
    if (row_of_rank_[rank] != kNone) out.class_of_[rank] = rank_class_[row_of_rank_[rank]];
  }
}

void RankRefinement::match_connections(AlikeRanks& out) const {
  out.senders_.assign(plan_.connections.size(), 0);
  out.received_on_.assign(plan_.connections.size(), -1);
  out.sent_on_.assign(plan_.connections.size(), -1);
  const auto run_for = [&](int32_t rank) { return out.run_[rank_class_[row_of_rank_[at(rank)]]]; };
  for (const uint32_t row : out.run_) {
    for (const int32_t c : out.ends_[row].sends) {
      const uint32_t receiver = run_for(plan_.connections[at(c)].dst_rank);
      out.senders_[at(c)] = static_cast<int64_t>(out.members_[rank_class_[row]].size());
      out.received_on_[at(c)] = out.ends_[receiver].receives[out.receive_end_[at(c)]];
    }
    for (const int32_t c : out.ends_[row].receives) {
      const uint32_t sender = run_for(plan_.connections[at(c)].src_rank);
      out.sent_on_[at(c)] = out.ends_[sender].sends[out.send_end_[at(c)]];
    }
  }
}

// The first link of a class represents it; the flows of a class spread evenly over its links: `flows * part / links` are on each.
void RankRefinement::fold_network(AlikeRanks& out) const {
  const auto count = [](const std::vector<uint32_t>& classes, size_t most) {
    std::vector<double> sizes(most, 0);
    for (const uint32_t c : classes) {
      if (c != kNone) ++sizes[c];
    }
    return sizes;
  };
  const std::vector<double> flows = count(connection_class_, connection_classes_);
  const std::vector<double> links = count(link_class_, link_classes_);
  std::vector<int32_t> first_link(link_classes_, -1);
  out.link_of_.assign(link_class_.size(), -1);
  for (size_t l = 0; l < link_class_.size(); ++l) {
    int32_t& first = first_link[link_class_[l]];
    if (first < 0) first = static_cast<int32_t>(l);
    out.link_of_[l] = first;
  }
  FlowNetwork& network = out.network_;
  network.link_bps = network_.link_bps;
  network.delays = network_.delays;
  network.way_offsets.push_back(0);
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const uint32_t ways = ways_of(plan_.connections[row]);
    for (uint32_t w = first_way_[row]; w < first_way_[row] + ways; ++w) {
      const auto first = static_cast<int64_t>(network.parts.size());
      for (int64_t p = network_.way_offsets[w]; out.senders_[row] > 0 && p < network_.way_offsets[w + 1]; ++p) {
        const LinkShare& share = network_.parts[static_cast<size_t>(p)];
        const uint32_t link_class = link_class_[at(share.link)];
        const auto part = static_cast<float>(flows[connection_class_[row]] * share.part / links[link_class]);
        const auto same = std::find_if(network.parts.begin() + first, network.parts.end(),
                                       [&](const LinkShare& other) { return other.link == first_link[link_class]; });
        if (same == network.parts.end()) network.parts.push_back({first_link[link_class], part});
        else same->part += part;
      }
      network.way_offsets.push_back(static_cast<int64_t>(network.parts.size()));
    }
  }
}

std::optional<AlikeRanks> AlikeRanks::find(const EnginePlan& plan, const FlowNetwork& network) {
  return RankRefinement(plan, network).find();
}

void AlikeRanks::add_all(const OpRecord& record, std::vector<OpRecord>& out) const {
  for (const uint32_t row : members_of(record.rank)) {
    out.push_back(record);
    out.back().rank = plan_->ranks[row].rank;
  }
}

void AlikeRanks::add_all(const WaitRecord& wait, std::vector<WaitRecord>& out) const {
  const auto connection = static_cast<size_t>(wait.connection);
  for (const uint32_t row : members_of(wait.rank)) {
    out.push_back(wait);
    out.back().rank = plan_->ranks[row].rank;
    if (wait.connection < 0) continue;
    const bool sends = plan_->connections[connection].src_rank == wait.rank;
    const Ends& ends = ends_[row];
    out.back().connection = sends ? ends.sends[send_end_[connection]] : ends.receives[receive_end_[connection]];
    const PlannedConnection& c = plan_->connections[static_cast<size_t>(out.back().connection)];
    out.back().peer_rank = sends ? c.dst_rank : c.src_rank;
  }
}

void AlikeRanks::spread(std::vector<int64_t>& link_bytes) const {
  for (size_t l = link_bytes.size(); l-- > 0;) link_bytes[l] = link_bytes[static_cast<size_t>(link_of_[l])];
}

}  // namespace etloop
