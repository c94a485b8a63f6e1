// Which queue pairs of a port carry short messages only, and the numbers at which they begin and end.
#include "plan/short_messages.h"

#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr int64_t kShortBytes = int64_t{kShortPackets} * 4096;
const IpAddress kHere = IpAddress::v4(1);
const IpAddress kSecond = IpAddress::v4(2);
const IpAddress kThere = IpAddress::v4(9);

struct PlanMaker {
  PlanMaker() {
    plan.ports.emplace_back();
    plan.ports[0].addresses = {kHere, kSecond};
    plan.ranks.emplace_back();
    plan.programs.emplace_back();
    plan.transport.path_mtu_bytes = 4096;
  }
  void op(OpKind kind, int32_t slot, int64_t bytes) {
    plan.programs[0].kind.push_back(kind);
    plan.programs[0].slot.push_back(slot);
    plan.programs[0].message_bytes.push_back(bytes);
  }
  // A connection from rank 0 at `ip`, whose queue pairs begin with number `qpn` here.
  void sends(int32_t communicator, int32_t peer, uint32_t qpn, int32_t qps = 1, const IpAddress& ip = kHere) {
    connect({communicator, 0, 0, peer, Path::wire, ip, kThere, 0, qps}, qpn, 0x800);
  }
  void receives(int32_t communicator, int32_t peer, uint32_t qpn, int32_t qps = 1) {
    connect({communicator, 0, peer, 0, Path::wire, kThere, kHere, 0, qps}, 0x800, qpn);
  }
  void connect(PlannedConnection connection, uint32_t src_qpn, uint32_t dst_qpn) {
    connection.first_qp = static_cast<int32_t>(plan.qps.size());
    plan.connections.push_back(connection);
    for (int32_t i = 0; i < connection.qp_count; ++i) {
      const auto port = static_cast<uint16_t>(0xC000 + plan.qps.size());
      plan.qps.push_back({src_qpn + static_cast<uint32_t>(i), dst_qpn + static_cast<uint32_t>(i), port, port});
    }
  }
  EnginePlan plan;
};

using Bounds = std::vector<ShortBounds>;

void queue_pairs_are_short_if_no_op_of_their_communicator_is_long() {
  PlanMaker made;
  made.plan.ranks[0].communicators = {5, 6};
  made.op(OpKind::collective, 0, kShortBytes);
  made.op(OpKind::collective, 1, 64);
  made.op(OpKind::collective, 1, kShortBytes + 1);
  made.sends(5, 1, 0x100, 2);
  made.receives(5, 1, 0x102);
  made.sends(6, 1, 0x103);
  made.receives(6, 1, 0x104, 3);
  made.sends(5, 2, 0x107);
  CHECK(short_bounds(made.plan, 0) == (Bounds{{0, 0x103, 0x107}, {}}));
}

void each_direction_of_a_pair_of_ranks_is_judged_by_itself() {
  PlanMaker made;
  made.plan.ranks[0].peers = {1};
  made.op(OpKind::send, 0, 1 << 20);
  made.op(OpKind::recv, 0, 4096);
  made.op(OpKind::delay, -1, 0);
  made.sends(-1, 1, 0x100);
  made.receives(-1, 1, 0x101);
  CHECK(short_bounds(made.plan, 0) == (Bounds{{0x101}, {}}));
}

void each_address_has_bounds_of_its_own() {
  PlanMaker made;
  made.plan.ranks[0].communicators = {5, 6};
  made.op(OpKind::collective, 0, 1 << 20);
  made.op(OpKind::collective, 1, 8);
  made.sends(5, 1, 0x100);
  made.sends(6, 1, 0x101, 1, kSecond);
  CHECK(short_bounds(made.plan, 0) == (Bounds{{}, {0}}));
}

void queue_pairs_that_share_a_source_port_with_long_ones_are_long() {
  PlanMaker made;
  made.plan.ranks[0].communicators = {5, 6};
  made.op(OpKind::collective, 0, 1 << 20);
  made.op(OpKind::collective, 1, 8);
  made.receives(5, 1, 0x100);
  made.receives(6, 1, 0x101, 2);
  made.plan.qps[1].src_udp_port = made.plan.qps[0].src_udp_port;
  CHECK(short_bounds(made.plan, 0) == (Bounds{{0x102}, {}}));
}

}  // namespace

int main() {
  queue_pairs_are_short_if_no_op_of_their_communicator_is_long();
  each_direction_of_a_pair_of_ranks_is_judged_by_itself();
  each_address_has_bounds_of_its_own();
  queue_pairs_that_share_a_source_port_with_long_ones_are_long();
  return test::failures();
}
