// What a plan asks of a network card: counted over the connections of one port, and the largest message of any op on it.
#include "plan/carrier_needs.h"

#include <string>
#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr int32_t kSender = 0;
constexpr int32_t kReceiver = 1;

PlannedConnection connection(int32_t src, int32_t dst, int32_t qps, Path path = Path::wire) {
  PlannedConnection made{};
  made.src_rank = src;
  made.dst_rank = dst;
  made.path = path;
  if (path == Path::wire) {
    made.src_ip = IpAddress::v4(static_cast<uint32_t>(1 + src));
    made.dst_ip = IpAddress::v4(static_cast<uint32_t>(1 + dst));
  }
  made.qp_count = qps;
  return made;
}

// Rank r is alone on port r and has one op of schedule `schedule[r]`; schedules are cut as given, into two slices.
EnginePlan plan_of(const std::vector<int32_t>& schedule, const std::vector<Cutting>& cuttings, int64_t op_bytes) {
  EnginePlan plan;
  plan.schedules.cutting = cuttings;
  plan.schedules.table_offsets = {0};
  plan.schedules.lane_offsets = {0};
  plan.schedules.entries = {{kEntrySend, 0}, {kEntryRecv, 0}};
  for (size_t s = 0; s < cuttings.size(); ++s) {
    for (const int32_t entry : {0, 1}) {
      plan.schedules.lanes.push_back({0, entry == 0 ? 1 : -1, entry == 0 ? -1 : 0, 0, 1, entry, 1});
      plan.schedules.lane_offsets.push_back(static_cast<int32_t>(plan.schedules.lanes.size()));
    }
    plan.schedules.table_offsets.push_back(static_cast<int32_t>(plan.schedules.lane_offsets.size() - 1));
  }
  for (size_t r = 0; r < schedule.size(); ++r) {
    plan.ports.emplace_back();
    plan.ports.back().addresses = {IpAddress::v4(static_cast<uint32_t>(1 + r))};
    Program program;
    program.kind = {OpKind::delay, OpKind::collective};
    program.schedule = {-1, schedule[r]};
    program.message_bytes = {0, op_bytes};
    plan.programs.push_back(program);
    PlannedRank rank{};
    rank.rank = rank.program = rank.port = static_cast<int32_t>(r);
    plan.ranks.push_back(rank);
  }
  return plan;
}

Cutting cut(int64_t chunk_bytes, Handshake handshake = Handshake::clear_to_send) {
  Cutting cutting{ChunkRule::fixed, chunk_bytes, 1, false, 2, 0, 8, true, 1};
  cutting.handshake = handshake;
  return cutting;
}

void ends_and_connections_of_the_port_are_counted() {
  EnginePlan plan = plan_of({0, 0, 0}, {cut(1000)}, 10'000);
  plan.connections = {connection(kSender, kReceiver, 3), connection(kReceiver, kSender, 2), connection(kSender, 2, 4),
                      connection(kSender, 2, 7, Path::scale_up)};
  const CarrierNeeds needs = carrier_needs(plan, kSender);
  CHECK_EQ(needs.sending_connections, 2u);
  CHECK_EQ(needs.sending_ends, 7u);
  CHECK_EQ(needs.receiving_connections, 1u);
  CHECK_EQ(needs.receiving_ends, 2u);
  CHECK_EQ(carrier_needs(plan, 2).receiving_ends, 4u);
  CHECK_EQ(carrier_needs(plan, 2).sending_ends, 0u);
}

void the_largest_message_is_that_of_the_ops_on_the_port() {
  struct Row {
    int64_t chunk_bytes;
    int64_t op_bytes;
    int64_t largest;
  };
  // A chunk goes in two slices, rounded up to whole bytes here.
  for (const Row& row : {Row{1000, 10'000, 500}, Row{1001, 10'000, 501}, Row{1000, 600, 300}, Row{1000, 0, 0}}) {
    const EnginePlan plan = plan_of({0, 1}, {cut(row.chunk_bytes), cut(1 << 20)}, row.op_bytes);
    CHECK_EQ(carrier_needs(plan, 0).largest_message_bytes, row.largest);
  }
  const EnginePlan both = plan_of({0, 1}, {cut(1000), cut(4000)}, 10'000);
  CHECK_EQ(carrier_needs(both, 0).largest_message_bytes, 500);
  CHECK_EQ(carrier_needs(both, 1).largest_message_bytes, 2000);
  Cutting expanding = cut(1200);
  expanding.line_data_bytes = 120;  // as LL128
  expanding.line_wire_bytes = 128;
  CHECK_EQ(carrier_needs(plan_of({0}, {expanding}, 10'000), 0).largest_message_bytes, 640);
}

void atomics_are_needed_where_an_op_of_the_port_is_one_sided() {
  const EnginePlan plan = plan_of({0, 1}, {cut(1000), cut(1000, Handshake::one_sided)}, 10'000);
  CHECK(!carrier_needs(plan, 0).one_sided);
  CHECK(carrier_needs(plan, 1).one_sided);
}

}  // namespace

int main() {
  ends_and_connections_of_the_port_are_counted();
  the_largest_message_is_that_of_the_ops_on_the_port();
  atomics_are_needed_where_an_op_of_the_port_is_one_sided();
  return test::failures();
}
