// A plan in which two ranks exchange messages, in collectives that follow each other.
#pragma once

#include <cstdint>
#include <utility>

#include "plan/plan.h"
#include "support/core_parts.h"

namespace etloop::test {

// Its connections, as rank 0 has them.
inline constexpr int32_t kOut = 0;
inline constexpr int32_t kIn = 1;

// Two collectives an iteration, each one message to and one from the other rank; the second depends on the first.
inline EnginePlan exchanges(int32_t iterations, Handshake of_second = Handshake::clear_to_send) {
  EnginePlan plan = one_send(kMessageBytes);
  plan.iterations = iterations;
  plan.schedules.lanes = {{0, 1, 1, 0, 1, 0, 2}, {0, 0, 0, 0, 1, 0, 2}};
  plan.schedules.entries = {{kEntrySend, 0}, {kEntryRecv, 0}};
  // The same again as a schedule of its own.
  plan.schedules.cutting.push_back(plan.schedules.cutting[0]);
  plan.schedules.cutting[1].handshake = of_second;
  plan.schedules.sizes = {2, 2};
  plan.schedules.table_offsets = {0, 2, 4};
  plan.schedules.table_positions = {0, 1, 0, 1};
  plan.schedules.lane_offsets = {0, 1, 2, 3, 4};
  plan.schedules.lanes.insert(plan.schedules.lanes.end(), {{0, 1, 1, 0, 1, 0, 2}, {0, 0, 0, 0, 1, 0, 2}});
  plan.communicator_offsets = {0, 2};
  plan.communicator_members = {0, 1};
  plan.connections[0].communicator = 0;
  PlannedConnection back = plan.connections[0];
  std::swap(back.src_rank, back.dst_rank);
  std::swap(back.src_ip, back.dst_ip);
  back.first_qp = plan.connections[0].qp_count;
  plan.connections.push_back(back);
  for (int32_t q = 0; q < back.qp_count; ++q) {
    const auto number = static_cast<uint32_t>(q);
    plan.qps.push_back({0x210 + number, 0x110 + number, 50'000, 50'001});
  }
  for (PlannedPort& port : plan.ports) port.qpn_count = 32;
  for (PlannedRank& rank : plan.ranks) {
    rank.communicators = {0};
    rank.peers = {};
  }
  for (Program& program : plan.programs) {
    program = {};
    program.kind = {OpKind::collective, OpKind::collective};
    program.schedule = {0, 1};
    program.slot = {0, 0};
    program.sequence = {0, 1};
    program.message_bytes = {kMessageBytes, kMessageBytes};
    program.delay_ns = {0, 0};
    program.dep_offsets = {0, 0, 1};
    program.deps = {0};
    finish_program(program);
  }
  return plan;
}

}  // namespace etloop::test
