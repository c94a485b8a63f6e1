#include "plan/carrier_needs.h"

#include <algorithm>
#include <vector>

#include "plan/schedule.h"

namespace etloop {

namespace {

// The first loop has the largest messages of a lane, and the first slice of each is its largest.
int64_t largest_message(const Lane& lane, const ScheduleSet& set, const Cutting& cutting, int64_t op_bytes) {
  int64_t largest = 0;
  LaneCursor cursor(lane, set.entries.data(), cutting, op_bytes);
  for (; !cursor.done() && cursor.step().loop == 0; cursor.advance()) {
    largest = std::max(largest, cursor.step().wire_bytes);
  }
  return largest;
}

// The largest bytes per schedule of the port's ops that use it; -1: none uses it.
std::vector<int64_t> most_op_bytes(const EnginePlan& plan, int32_t port) {
  std::vector<int64_t> most(plan.schedules.cutting.size(), -1);
  std::vector<bool> seen(plan.programs.size(), false);
  for (const PlannedRank& rank : plan.ranks) {
    const auto index = static_cast<size_t>(rank.program);
    if (rank.port != port || seen[index]) continue;
    seen[index] = true;
    const Program& program = plan.programs[index];
    for (size_t op = 0; op < program.size(); ++op) {
      if (program.kind[op] == OpKind::delay) continue;
      int64_t& bytes = most[static_cast<size_t>(program.schedule[op])];
      bytes = std::max(bytes, program.message_bytes[op]);
    }
  }
  return most;
}

}  // namespace

CarrierNeeds carrier_needs(const EnginePlan& plan, int32_t port) {
  CarrierNeeds needs;
  const std::vector<IpAddress>& addresses = plan.ports[static_cast<size_t>(port)].addresses;
  const auto here = [&addresses](const IpAddress& ip) {
    return std::find(addresses.begin(), addresses.end(), ip) != addresses.end();
  };
  for (const PlannedConnection& connection : plan.connections) {
    if (connection.path != Path::wire) continue;
    if (here(connection.src_ip)) {
      ++needs.sending_connections;
      needs.sending_ends += static_cast<size_t>(connection.qp_count);
    }
    if (here(connection.dst_ip)) {
      ++needs.receiving_connections;
      needs.receiving_ends += static_cast<size_t>(connection.qp_count);
    }
  }
  const std::vector<int64_t> most = most_op_bytes(plan, port);
  const ScheduleSet& set = plan.schedules;
  for (size_t schedule = 0; schedule < most.size(); ++schedule) {
    if (most[schedule] < 0) continue;
    const Cutting& cutting = set.cutting[schedule];
    needs.one_sided = needs.one_sided || cutting.handshake == Handshake::one_sided;
    const auto first_table = static_cast<size_t>(set.table_offsets[schedule]);
    const auto end_table = static_cast<size_t>(set.table_offsets[schedule + 1]);
    for (int32_t lane = set.lane_offsets[first_table]; lane < set.lane_offsets[end_table]; ++lane) {
      const int64_t bytes = largest_message(set.lanes[static_cast<size_t>(lane)], set, cutting, most[schedule]);
      needs.largest_message_bytes = std::max(needs.largest_message_bytes, bytes);
    }
  }
  return needs;
}

}  // namespace etloop
