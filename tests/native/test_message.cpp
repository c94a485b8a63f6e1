// Lanes under execution, grants that come early, and the prober's patience.
#include "message.h"

#include "check.h"
#include "probe.h"

using namespace etloop;

namespace {

constexpr Entry kForward[] = {{kEntrySend, 0}, {static_cast<uint8_t>(kEntryRecv | kEntrySend), 0}, {kEntryRecv, 0}};

LaneRun forwarding_lane(int64_t op_bytes, int32_t slots) {
  const Lane shape{0, 1, 2, 0, 1, 0, 3};
  const Cutting cutting{ChunkRule::fixed, 1000, 1, false, 2, 0, slots, false, 1};
  LaneRun lane;
  lane.slots = static_cast<uint32_t>(slots);
  lane.execution = LaneCursor(shape, kForward, cutting, op_bytes);
  lane.posting = lane.execution;
  lane.granting = lane.execution;
  seek(lane.posting, kEntrySend);
  seek(lane.granting, kEntryRecv);
  return lane;
}

void addresses_spell_tag_and_index() {
  for (const uint32_t tag : {0u, 1u, 0x12345678u, 0xFFFFFFFFu}) {
    for (const uint32_t index : {0u, 7u, kMaxMessagesPerLane - 1}) {
      const uint64_t va = buffer_address(tag, index);
      CHECK_EQ(address_tag(va), tag);
      CHECK_EQ(address_index(va), index);
    }
  }
}

void a_receive_releases_the_send_behind_it() {
  LaneRun lane = forwarding_lane(1000, 4);
  int64_t bytes = 0;
  while (lane.may_execute()) lane.execute();
  CHECK_EQ(lane.handed, 2u);  // both slices of the first entry; the second waits for data
  CHECK(!lane.may_post());    // nothing is granted to us yet
  while (lane.may_grant()) lane.grant(bytes);
  CHECK_EQ(lane.granted, 4u);
  lane.credits = 4;
  CHECK(lane.may_post());
  CHECK_EQ(lane.post(bytes), 0u);
  CHECK_EQ(bytes, 500);
  CHECK(lane.arrive(0, 500) == LaneRun::Arrival::accepted);
  CHECK(lane.may_execute());
  lane.execute();
  CHECK_EQ(lane.handed, 3u);
  CHECK_EQ(lane.consumed, 1u);
  CHECK(!lane.may_execute());  // slice 1 has not arrived
}

void slots_bound_what_is_unacknowledged() {
  LaneRun lane = forwarding_lane(10'000, 2);
  while (lane.may_execute()) lane.execute();
  CHECK_EQ(lane.handed, 2u);
  lane.credits = 8;
  int64_t bytes = 0;
  while (lane.may_post()) lane.post(bytes);
  lane.acknowledged = 1;
  CHECK(!lane.may_execute());  // its next entry needs data first
  CHECK(!lane.over());
}

void what_was_not_granted_or_is_wrong_is_told_apart() {
  LaneRun lane = forwarding_lane(1000, 4);
  int64_t bytes = 0;
  CHECK(lane.arrive(0, 500) == LaneRun::Arrival::not_granted);
  while (lane.may_grant()) lane.grant(bytes);
  CHECK(lane.arrive(1, 499) == LaneRun::Arrival::wrong_size);
  CHECK(lane.arrive(1, 500) == LaneRun::Arrival::accepted);  // ahead of its turn, over another queue pair
  CHECK(lane.arrive(1, 500) == LaneRun::Arrival::repeated);
  CHECK(!lane.may_execute() || (lane.execution.step().kind & kEntryRecv) == 0);
}

void grants_that_come_early_wait_for_their_op() {
  EarlyGrants early;
  CHECK(early.add(5, {.va = 50, .rkey = 1, .number = 1}));
  CHECK(early.add(9, {.va = 90, .rkey = 1, .number = 2}));
  CHECK(early.add(5, {.va = 51, .rkey = 1, .number = 3}));
  LaneRun lane;
  CHECK(early.take(5, lane));
  CHECK_EQ(lane.credits, 2u);
  CHECK_EQ(lane.places[0].va, 50u);
  CHECK_EQ(lane.places[1].number, 3u);
  CHECK(early.take(5, lane));
  CHECK_EQ(lane.credits, 2u);
  LaneRun other;
  CHECK(early.take(9, other));
  CHECK_EQ(other.credits, 1u);
  for (uint32_t tag = 0; tag < EarlyGrants::kLimit; ++tag) CHECK(early.add(tag, {}));
  CHECK(!early.add(UINT32_MAX, {}));  // a hostile peer is bounded
}

void a_lane_has_room_for_so_many_grants() {
  LaneRun lane;
  for (uint32_t i = 0; i < 64; ++i) CHECK(lane.credit({.va = i, .rkey = 1, .number = i}));
  CHECK(!lane.credit({}));
  lane.posted = 1;
  CHECK(lane.credit({.va = 64, .rkey = 1, .number = 64}));
  CHECK_EQ(lane.places[0].va, 64u);
}

void lanes_are_reused() {
  LanePool pool;
  const uint32_t first = pool.open();
  const uint32_t second = pool.open();
  CHECK(first != second);
  pool[first].handed = 3;
  pool.close(first);
  const uint32_t again = pool.open();
  CHECK_EQ(again, first);
  CHECK_EQ(pool[again].handed, 0u);
}

void probes_are_repeated_and_then_given_up() {
  Prober prober;
  for (uint32_t qp = 0; qp < 10; ++qp) prober.add(0, static_cast<int32_t>(qp), qp);
  CHECK_EQ(prober.next(0), -1);  // not started
  prober.start();
  Nanos now = 1;
  const auto send_due = [&prober, &now] {
    uint32_t sent = 0;
    for (int64_t target = prober.next(now); target >= 0; target = prober.next(now), ++sent) {
      prober.sent(static_cast<size_t>(target), now);
    }
    return sent;
  };
  CHECK_EQ(send_due(), kProbesAtOnce);
  CHECK_EQ(prober.deadline(), now + kProbeTimeoutNs);
  prober.on_reply(3, 0x6A, 0x6A, now + 10);
  prober.on_reply(4, 0x6B, 0x6A, now + 10);  // congestion marked on the way: still the same class
  prober.on_reply(5, 0x00, 0x6A, now + 10);
  prober.on_reply(99, 0x6A, 0x6A, now + 10);  // nobody asked
  CHECK(prober.result(3).verdict == ProbeVerdict::good);
  CHECK(prober.result(4).verdict == ProbeVerdict::good);
  CHECK(prober.result(5).verdict == ProbeVerdict::wrong_traffic_class);
  CHECK_EQ(send_due(), 2u);  // the last two take the places that came free
  prober.too_large(9);
  prober.on_reply(8, 0x6A, 0x6A, now + 20);
  for (int turn = 0; turn < 20 && !prober.over(); ++turn) {
    now += kProbeTimeoutNs;
    send_due();
  }
  CHECK(prober.over());
  CHECK(prober.result(0).verdict == ProbeVerdict::no_reply);
  CHECK(prober.result(9).verdict == ProbeVerdict::too_large);
}

}  // namespace

int main() {
  addresses_spell_tag_and_index();
  a_receive_releases_the_send_behind_it();
  slots_bound_what_is_unacknowledged();
  what_was_not_granted_or_is_wrong_is_told_apart();
  grants_that_come_early_wait_for_their_op();
  a_lane_has_room_for_so_many_grants();
  lanes_are_reused();
  probes_are_repeated_and_then_given_up();
  return test::failures();
}
