#include "plan/short_messages.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

namespace etloop {

namespace {

// Communicator, or -1, source and destination of a point-to-point connection.
using Carriage = std::tuple<int32_t, int32_t, int32_t>;

Carriage carriage_of(const PlannedConnection& connection) {
  if (connection.communicator >= 0) return {connection.communicator, 0, 0};
  return {-1, connection.src_rank, connection.dst_rank};
}

Carriage carriage_of(const PlannedRank& rank, OpKind kind, int32_t slot) {
  const auto index = static_cast<size_t>(slot);
  if (kind == OpKind::collective) return {rank.communicators[index], 0, 0};
  const int32_t peer = rank.peers[index];
  return kind == OpKind::send ? Carriage{-1, rank.rank, peer} : Carriage{-1, peer, rank.rank};
}

// Communicators and pairs of ranks that have an op of more than `short_bytes` on the port.
std::set<Carriage> long_ops(const EnginePlan& plan, int32_t port) {
  std::set<Carriage> is_long;
  const uint32_t most_bytes = short_bytes(plan.transport);
  for (const PlannedRank& rank : plan.ranks) {
    if (rank.port != port) continue;
    const Program& program = plan.programs[static_cast<size_t>(rank.program)];
    for (size_t op = 0; op < program.size(); ++op) {
      if (program.kind[op] == OpKind::delay || program.message_bytes[op] <= most_bytes) continue;
      is_long.insert(carriage_of(rank, program.kind[op], program.slot[op]));
    }
  }
  return is_long;
}

struct End {
  uint32_t qpn;
  std::pair<IpAddress, uint16_t> source;  // address and UDP port of the peer
  bool is_short;
};

// The kernel joins datagrams from one source, whatever their queue pair, so that a long one's would draw a short one's along.
void keep_sources_together(std::vector<End>& ends) {
  std::set<std::pair<IpAddress, uint16_t>> long_sources;
  for (const End& end : ends) {
    if (!end.is_short) long_sources.insert(end.source);
  }
  for (End& end : ends) end.is_short = end.is_short && !long_sources.contains(end.source);
}

ShortBounds bounds_of(std::vector<End>& ends) {
  keep_sources_together(ends);
  std::sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.qpn < b.qpn; });
  ShortBounds bounds;
  for (const End& end : ends) {
    const bool was_short = bounds.size() % 2 == 1;
    if (end.is_short != was_short) bounds.push_back(&end == &ends.front() ? 0 : end.qpn);
  }
  return bounds;
}

}  // namespace

std::vector<ShortBounds> short_bounds(const EnginePlan& plan, int32_t port) {
  const std::vector<IpAddress>& addresses = plan.ports[static_cast<size_t>(port)].addresses;
  const std::set<Carriage> is_long = long_ops(plan, port);
  std::vector<std::vector<End>> ends(addresses.size());
  const auto add = [&](const IpAddress& ip, const End& end) {
    const auto at = std::find(addresses.begin(), addresses.end(), ip);
    if (at != addresses.end()) ends[static_cast<size_t>(at - addresses.begin())].push_back(end);
  };
  for (const PlannedConnection& connection : plan.connections) {
    if (connection.path != Path::wire) continue;
    const bool is_short = is_long.find(carriage_of(connection)) == is_long.end();
    for (int32_t i = 0; i < connection.qp_count; ++i) {
      const PlannedQp& qp = plan.qps[static_cast<size_t>(connection.first_qp + i)];
      add(connection.src_ip, {qp.src_qpn, {connection.dst_ip, qp.dst_udp_port}, is_short});
      add(connection.dst_ip, {qp.dst_qpn, {connection.src_ip, qp.src_udp_port}, is_short});
    }
  }
  std::vector<ShortBounds> bounds;
  bounds.reserve(ends.size());
  for (std::vector<End>& of_address : ends) bounds.push_back(bounds_of(of_address));
  return bounds;
}

}  // namespace etloop
