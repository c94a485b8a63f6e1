// Lanes under execution, grants that come early, and the prober's patience.
#include "core/message.h"

#include <vector>

#include "core/packets/probe.h"
#include "support/check.h"

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
  CHECK_EQ(lane.sending.handed, 2u);  // both slices of the first entry; the second waits for data
  CHECK(!lane.may_post());    // nothing is granted to us yet
  while (lane.may_grant()) lane.grant(bytes);
  CHECK_EQ(lane.receiving.granted, 4u);
  lane.sending.credits = 4;
  CHECK(lane.may_post());
  CHECK_EQ(lane.post(bytes, 1), 0u);
  CHECK_EQ(bytes, 500);
  CHECK(lane.arrive(0, 500) == LaneRun::Arrival::accepted);
  CHECK(lane.may_execute());
  lane.execute();
  CHECK_EQ(lane.sending.handed, 3u);
  CHECK_EQ(lane.receiving.consumed, 1u);
  CHECK(!lane.may_execute());  // slice 1 has not arrived
}

void slots_bound_what_is_unacknowledged() {
  LaneRun lane = forwarding_lane(10'000, 2);
  while (lane.may_execute()) lane.execute();
  CHECK_EQ(lane.sending.handed, 2u);
  lane.sending.credits = 8;
  int64_t bytes = 0;
  while (lane.may_post()) lane.post(bytes, 1);
  lane.acknowledge(0);
  CHECK_EQ(lane.sending.acknowledged, 1u);
  CHECK(!lane.may_execute());  // its next entry needs data first
  CHECK(!lane.done());
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
  CHECK(early.add(5, {100, 1}));
  CHECK(early.add(9, {200, 2}));
  CHECK(early.add(5, {300, 3}));
  LaneRun five;
  five.tag = 5;
  CHECK(early.take(five));
  CHECK_EQ(five.sending.credits, 2u);
  CHECK_EQ(five.sending.grants[0].va, 100u);  // in the order in which they came
  CHECK_EQ(five.sending.grants[1].va, 300u);
  CHECK_EQ(five.sending.grants[1].rkey, 3u);
  CHECK(early.take(five));
  CHECK_EQ(five.sending.credits, 2u);
  LaneRun nine;
  nine.tag = 9;
  CHECK(early.take(nine));
  CHECK_EQ(nine.sending.credits, 1u);
  for (uint32_t i = 0; i <= kMaxSlots; ++i) CHECK(early.add(7, {}));
  LaneRun seven;
  seven.tag = 7;
  CHECK(!early.take(seven));  // more than any receiver may grant
  EarlyGrants many;
  for (uint32_t tag = 0; tag < EarlyGrants::kLimit; ++tag) CHECK(many.add(tag, {}));
  CHECK(!many.add(UINT32_MAX, {}));  // a hostile peer is bounded
}

void a_slot_is_free_when_all_before_it_are_and_all_parts_are_acknowledged() {
  LaneRun lane = forwarding_lane(10'000, 4);
  lane.sending.handed = 4;
  lane.sending.credits = 4;
  int64_t bytes = 0;
  while (lane.may_post()) lane.post(bytes, 2);
  lane.acknowledge(1);
  lane.acknowledge(1);
  CHECK_EQ(lane.sending.acknowledged, 0u);  // message 0 is still under way on another queue pair
  lane.acknowledge(0);
  CHECK_EQ(lane.sending.acknowledged, 0u);
  lane.acknowledge(0);
  CHECK_EQ(lane.sending.acknowledged, 2u);
  lane.acknowledge(2);
  lane.acknowledge(2);
  CHECK_EQ(lane.sending.acknowledged, 3u);
}

void a_message_in_parts_is_here_when_all_its_parts_are() {
  LaneRun lane = forwarding_lane(1000, 4);
  lane.receiving.parts = 3;
  int64_t bytes = 0;
  while (lane.may_grant()) lane.grant(bytes);
  while (lane.may_execute()) lane.execute();
  for (int part = 0; part < 3; ++part) {
    CHECK(!lane.may_execute());
    CHECK(lane.arrive(0, 500) == LaneRun::Arrival::accepted);
  }
  CHECK(lane.may_execute());
  CHECK(lane.arrive(0, 500) == LaneRun::Arrival::repeated);
}

void parts_are_multiples_of_128_bytes_and_the_last_ones_are_shorter_or_empty() {
  struct Row {
    int64_t bytes;
    uint32_t parts;
    std::vector<uint32_t> sizes;
  };
  for (const Row& row : {Row{1000, 3, {384, 384, 232}}, Row{129, 4, {128, 1, 0, 0}}, Row{0, 2, {0, 0}},
                         Row{1 << 20, 4, {262144, 262144, 262144, 262144}}, Row{100, 1, {100}}}) {
    uint32_t offset = 0;
    for (uint32_t part = 0; part < row.parts; ++part) {
      const MessagePart piece = message_part(row.bytes, part, row.parts);
      CHECK_EQ(piece.bytes, row.sizes[part]);
      CHECK_EQ(piece.offset, offset);
      offset += piece.bytes;
    }
    CHECK_EQ(offset, static_cast<uint32_t>(row.bytes));
  }
}

LaneRun one_sided_receiver(int64_t op_bytes) {
  static constexpr Entry kReceive[] = {{kEntryRecv, 0}};
  const Lane shape{0, -1, 1, 0, 1, 0, 1};
  Cutting cutting{ChunkRule::fixed, 1000, 1, false, 1, 0, 8, true, 1};
  cutting.handshake = Handshake::one_sided;
  LaneRun lane;
  lane.one_sided = true;
  lane.receiving.closed = false;
  lane.slots = 8;
  lane.execution = LaneCursor(shape, kReceive, cutting, op_bytes);
  lane.granting = lane.execution;
  return lane;
}

void one_sided_messages_come_in_order_and_end_with_a_closing_one() {
  LaneRun lane = one_sided_receiver(2500);
  CHECK(!lane.may_grant());
  CHECK(lane.arrive(0, 1000) == LaneRun::Arrival::not_granted);  // an immediate belongs to the other handshake
  CHECK(lane.arrive_next(1000) == LaneRun::Arrival::accepted);
  CHECK(lane.may_execute());
  lane.execute();
  CHECK(!lane.may_execute());
  CHECK(lane.arrive_next(500) == LaneRun::Arrival::wrong_size);
  CHECK(lane.close() == LaneRun::Arrival::not_granted);  // two messages are missing
  LaneRun other = one_sided_receiver(2500);
  CHECK(other.arrive_early(2, 2000));
  CHECK(other.arrive_next(500) == LaneRun::Arrival::accepted);
  while (other.may_execute()) other.execute();
  CHECK(!other.done());
  CHECK(other.close() == LaneRun::Arrival::accepted);
  CHECK(other.done());
  CHECK(other.arrive_next(1) == LaneRun::Arrival::not_granted);
  CHECK(!one_sided_receiver(2500).arrive_early(2, 1500));
  CHECK(!one_sided_receiver(2500).arrive_early(4, 2500));
}

void a_closing_speaks_for_messages_that_nobody_saw_arrive() {
  LaneRun lane = one_sided_receiver(2500);
  int64_t bytes = 0;
  CHECK(lane.arrive_unseen(3, bytes));
  CHECK_EQ(bytes, 2500);
  while (lane.may_execute()) lane.execute();
  CHECK(lane.done());
  CHECK(!lane.arrive_unseen(3, bytes));  // closed is closed
  CHECK(!one_sided_receiver(2500).arrive_unseen(2, bytes));
  CHECK(!one_sided_receiver(2500).arrive_unseen(4, bytes));
  CHECK(one_sided_receiver(0).arrive_unseen(0, bytes));  // an empty message is not written
  CHECK_EQ(bytes, 0);
  LaneRun granting = forwarding_lane(1000, 4);
  CHECK(!granting.arrive_unseen(2, bytes));  // belongs to the other handshake
}

void an_empty_one_sided_message_is_only_closed() {
  LaneRun lane = one_sided_receiver(0);
  CHECK(lane.close() == LaneRun::Arrival::accepted);
  CHECK(lane.may_execute());
  lane.execute();
  CHECK(lane.done());
}

void what_is_written_ahead_is_counted_and_bounded() {
  EarlyArrivals early;
  CHECK(early.add(3, 100, false));
  CHECK(early.add(3, 50, false));
  CHECK(early.add(3, 0, true));
  CHECK(!early.add(3, 1, false));  // nothing comes after the closing
  const EarlyArrivals::Item item = early.take(3);
  CHECK_EQ(item.messages, 2u);
  CHECK_EQ(item.bytes, 150);
  CHECK(item.closed);
  CHECK_EQ(early.take(3).messages, 0u);
}

void lanes_are_reused() {
  LanePool pool;
  const uint32_t first = pool.open();
  const uint32_t second = pool.open();
  CHECK(first != second);
  pool[first].sending.handed = 3;
  pool.close(first);
  const uint32_t again = pool.open();
  CHECK_EQ(again, first);
  CHECK_EQ(pool[again].sending.handed, 0u);
}

void probes_are_repeated_and_then_given_up() {
  Prober prober;
  for (uint32_t qp = 0; qp < 10; ++qp) prober.add(0, static_cast<int32_t>(qp), qp);
  CHECK_EQ(prober.next(0), -1);  // not started
  prober.start(ProbeRounds::one);
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
  for (uint32_t turn = 1; turn < kFirstAttempts + kShortAttempts; ++turn) {
    now += kProbeTimeoutNs;
    CHECK_EQ(send_due(), 5u);  // nobody is given up before the first has had all its attempts
  }
  now += kProbeTimeoutNs;
  CHECK_EQ(send_due(), 0u);
  CHECK(prober.over());
  CHECK(prober.result(0).verdict == ProbeVerdict::no_reply);
  CHECK(prober.result(9).verdict == ProbeVerdict::too_large);
}

void after_the_first_that_was_given_up_others_have_fewer_attempts() {
  Prober prober;
  for (uint32_t qp = 0; qp < kProbesAtOnce + 1; ++qp) prober.add(0, static_cast<int32_t>(qp), qp);
  prober.start(ProbeRounds::one);
  Nanos now = 1;
  uint32_t last_attempts = 0;
  for (; !prober.over(); now += kProbeTimeoutNs) {
    for (int64_t target = prober.next(now); target >= 0; target = prober.next(now)) {
      prober.sent(static_cast<size_t>(target), now);
      if (target == kProbesAtOnce) ++last_attempts;
    }
  }
  CHECK_EQ(last_attempts, kLaterAttempts + kShortAttempts);
  CHECK_EQ(now, 1 + (kFirstAttempts + kLaterAttempts + 2 * kShortAttempts + 1) * kProbeTimeoutNs);
}

}  // namespace

int main() {
  addresses_spell_tag_and_index();
  a_receive_releases_the_send_behind_it();
  slots_bound_what_is_unacknowledged();
  what_was_not_granted_or_is_wrong_is_told_apart();
  grants_that_come_early_wait_for_their_op();
  a_slot_is_free_when_all_before_it_are_and_all_parts_are_acknowledged();
  a_message_in_parts_is_here_when_all_its_parts_are();
  parts_are_multiples_of_128_bytes_and_the_last_ones_are_shorter_or_empty();
  one_sided_messages_come_in_order_and_end_with_a_closing_one();
  a_closing_speaks_for_messages_that_nobody_saw_arrive();
  an_empty_one_sided_message_is_only_closed();
  what_is_written_ahead_is_counted_and_bounded();
  lanes_are_reused();
  probes_are_repeated_and_then_given_up();
  after_the_first_that_was_given_up_others_have_fewer_attempts();
  return test::failures();
}
