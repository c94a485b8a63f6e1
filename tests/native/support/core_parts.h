// The parts of a core over a small plan, joined as the core joins them, for tests of one of them: rank 0 on port 0 sends one
// op to rank 1 on port 1, in messages of `kMessageBytes`, over two queue pairs.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "core/card_ends.h"
#include "core/connections.h"
#include "core/events.h"
#include "core/failure.h"
#include "core/lanes.h"
#include "core/local_ranks.h"
#include "core/message_paths.h"
#include "core/op_records.h"
#include "core/ops.h"
#include "core/packets/flows.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "core/packets/transmission.h"
#include "core/queues/message_departures.h"
#include "plan/plan.h"
#include "support/check.h"
#include "support/failure_of.h"

namespace etloop::test {

inline constexpr int64_t kMessageBytes = 2048;
inline constexpr uint32_t kMtu = 1024;

inline EnginePlan one_send(int64_t op_bytes, int32_t queue_pairs = 2, Handshake handshake = Handshake::clear_to_send) {
  EnginePlan plan;
  plan.transport.path_mtu_bytes = kMtu;
  plan.transport.window_packets = 8;
  plan.transport.ack_every_packets = 4;
  plan.transport.timeout_ns = 1'000'000;
  plan.transport.recovery.timeout_floor_ns = 1'000'000;
  Cutting cutting{ChunkRule::fixed, kMessageBytes, 1, false, 1, 0, 4, true, 1};
  cutting.handshake = handshake;
  plan.schedules.cutting = {cutting};
  plan.schedules.sizes = {2};
  plan.schedules.table_offsets = {0, 2};
  plan.schedules.table_positions = {0, 1};
  plan.schedules.lane_offsets = {0, 1, 2};
  plan.schedules.lanes = {{0, 1, -1, 0, 1, 0, 1}, {0, -1, 0, 0, 1, 1, 1}};
  plan.schedules.entries = {{kEntrySend, 0}, {kEntryRecv, 0}};
  plan.communicator_offsets = {0};
  PlannedConnection connection{};
  connection.communicator = -1;
  connection.dst_rank = 1;
  connection.path = Path::wire;
  connection.src_ip = IpAddress::v4(0x0A000001);
  connection.dst_ip = IpAddress::v4(0x0A000002);
  connection.qp_count = queue_pairs;
  plan.connections = {connection};
  for (int32_t q = 0; q < queue_pairs; ++q) {
    const auto number = static_cast<uint32_t>(q);
    plan.qps.push_back({0x100 + number, 0x200 + number, 50'000, 50'001});
  }
  for (const int32_t rank : {0, 1}) {
    PlannedPort port{};
    port.name = std::string("p").append(std::to_string(rank));  // gcc 12 warns of `+` without need
    port.addresses = {rank == 0 ? connection.src_ip : connection.dst_ip};
    port.link_bps = 100'000'000'000;
    port.qpn_base = rank == 0 ? 0x100 : 0x200;
    port.qpn_count = static_cast<uint32_t>(queue_pairs);
    plan.ports.push_back(port);
    Program program;
    program.kind = {rank == 0 ? OpKind::send : OpKind::recv};
    program.schedule = {0};
    program.slot = {0};
    program.sequence = {0};
    program.message_bytes = {op_bytes};
    program.delay_ns = {0};
    program.dep_offsets = {0, 0};
    finish_program(program);
    plan.programs.push_back(program);
    PlannedRank planned{};
    planned.rank = planned.program = planned.port = rank;
    planned.peers = {1 - rank};
    plan.ranks.push_back(planned);
  }
  return plan;
}

// Opens every five-tuple as the next flow.
class FlowCounter {
 public:
  FlowOpener opener() {
    return [this](uint16_t, const IpAddress&, uint16_t, uint8_t) { return Result<FlowId>(next_++); };
  }

 private:
  FlowId next_ = 0;
};

struct CoreParts {
  CoreParts(EnginePlan from, int32_t port)
      : plan(std::move(from)),
        connections(plan),
        queue_pairs(plan, port, connections, events, *std::pmr::new_delete_resource()),
        flows(plan, port, queue_pairs, events, *std::pmr::new_delete_resource()),
        cards(plan, connections, queue_pairs, records, failure),
        probing(plan, queue_pairs, cards),
        departures(records),
        transmission({plan, connections, queue_pairs, flows, probing, departures, failure}),
        paths({plan, port, connections, transmission, cards, events, records, failure}),
        lanes({plan, connections, paths, records, failure}),
        ops(plan, ranks, lanes, records, events, failure) {
    CHECK_EQ(validate(plan), std::string());
    CHECK_EQ(failure_of(ranks.load(plan, port)), std::string());
    connections.load(ranks.indices());
    CHECK_EQ(failure_of(ranks.connect(plan, connections)), std::string());
    paths.load(ranks.size());
    lanes.load(ops);
  }

  // Queue pairs of ours.
  void open() {
    FlowCounter flows_opened;
    CHECK_EQ(failure_of(queue_pairs.open(ranks, flows_opened.opener())), std::string());
    queue_pairs.offer_windows(8 << 20);
    probing.load();
    transmission.load();
    flows.load();
  }

  EnginePlan plan;
  EventHeap events;
  Failure failure;
  OpRecords records;
  LocalRanks ranks;
  Connections connections;
  QueuePairs queue_pairs;
  Flows flows;
  CardEnds cards;
  Probing probing;
  MessageDepartures departures;
  Transmission transmission;
  MessagePaths paths;
  Lanes lanes;
  Ops ops;
};

}  // namespace etloop::test
