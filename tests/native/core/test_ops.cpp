// When ops begin, and what of them is opened ahead: rank 0 exchanges messages with rank 1 in collectives that follow each other.
#include "core/ops.h"

#include <algorithm>
#include <vector>

#include "support/check.h"
#include "support/core_parts.h"
#include "support/exchanges.h"
#include "support/recording_network.h"

using namespace etloop;

namespace {

// Rank 0, and what it hears of rank 1.
struct Rank : test::CoreParts {
  explicit Rank(const EnginePlan& of) : CoreParts(of, 0) {
    paths.set_network(network);
    ops.start(0);
    ops.issue(0);
  }
  void hear_grant(uint32_t tag, Nanos now) { lanes.on_grant(test::kOut, tag, {buffer_address(tag, 0), 0, 0}, now); }
  void hear_message(uint32_t tag, Nanos now) {
    lanes.on_message({test::kIn, tag, 0, test::kMessageBytes, test::kMessageBytes}, now);
  }
  void hear_acknowledgement(size_t message, Nanos now) {
    lanes.on_acknowledged(network.messages[message].lane, 0, now);
    ops.issue(now);
  }

  test::RecordingNetwork network;
};

void the_next_collective_is_granted_when_nothing_of_this_one_is_to_come() {
  Rank rank(test::exchanges(1));
  CHECK(rank.network.tags == (std::vector<uint32_t>{0}));
  rank.hear_grant(0, 10);
  CHECK_EQ(rank.network.messages.size(), 1u);
  CHECK_EQ(rank.network.tags.size(), 1u);  // what it receives is still to come
  rank.hear_message(0, 20);
  CHECK(rank.network.tags == (std::vector<uint32_t>{0, 1}));
  CHECK_EQ(rank.records.completed().size(), 0u);  // for what it sent is not acknowledged
}

void an_op_opened_ahead_takes_what_comes_and_sends_nothing() {
  Rank rank(test::exchanges(1));
  rank.hear_grant(0, 10);
  rank.hear_message(0, 20);
  rank.hear_grant(1, 30);
  rank.hear_message(1, 40);
  CHECK_EQ(rank.network.messages.size(), 1u);
  CHECK(!rank.lanes.may_go_unanswered(test::kIn, 1, test::kMessageBytes).ends_op);  // its own message is still to be sent
  std::vector<WaitRecord> waits;
  rank.lanes.add_waits(rank.queue_pairs, waits);
  CHECK_EQ(waits.size(), 1u);  // the first op alone
  CHECK(waits[0].kind == WaitKind::acknowledgement);

  rank.hear_acknowledgement(0, 50);
  CHECK_EQ(rank.network.messages.size(), 2u);
  CHECK_EQ(rank.network.messages[1].tag, 1u);
  CHECK(!rank.ops.finished());
  rank.hear_acknowledgement(1, 60);
  CHECK(rank.ops.finished());
  const OpRecord& second = rank.records.completed()[1];
  CHECK_EQ(second.op, 1);
  CHECK_EQ(second.intended_ns, 50);
  CHECK_EQ(second.issued_ns, 50);
  CHECK_EQ(second.rx_messages, 1);
  CHECK_EQ(second.completed_ns, 60);
}

void a_grant_that_was_due_before_its_op_began_is_followed_when_it_begins() {
  Rank rank(test::exchanges(1));
  rank.hear_grant(0, 10);
  rank.hear_message(0, 20);
  rank.hear_acknowledgement(0, 50);
  rank.hear_grant(1, 45);  // inside a host: due while the turn was on that began the op
  rank.hear_message(1, 60);
  rank.hear_acknowledgement(1, 70);
  CHECK(rank.ops.finished());
  const OpRecord& second = rank.records.completed()[1];
  CHECK_EQ(second.issued_ns, 50);
  CHECK_EQ(second.first_tx_ns, 50);
}

void the_first_of_the_next_iteration_follows_the_last_of_this_one() {
  Rank rank(test::exchanges(2));
  for (uint32_t tag = 0; tag < 4; ++tag) {
    const Nanos now = 10 + tag * 10;
    rank.hear_grant(tag, now);
    rank.hear_message(tag, now);
    // Of the last op of the last iteration nothing follows.
    CHECK_EQ(rank.network.tags.size(), std::min<size_t>(tag + 2, 4));
    CHECK_EQ(rank.network.tags.back(), std::min(tag + 1, 3U));
    rank.hear_acknowledgement(tag, now + 1);
  }
  CHECK(rank.ops.finished());
  CHECK_EQ(rank.records.completed().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    CHECK_EQ(rank.records.completed()[i].iteration, static_cast<int32_t>(i / 2));
    CHECK_EQ(rank.records.completed()[i].op, static_cast<int32_t>(i % 2));
  }
}

void what_needs_no_grant_is_not_opened_ahead() {
  Rank rank(test::exchanges(1, Handshake::one_sided));
  rank.hear_grant(0, 10);
  rank.hear_message(0, 20);
  CHECK_EQ(rank.network.tags.size(), 1u);
  rank.hear_acknowledgement(0, 30);
  CHECK_EQ(rank.network.messages.size(), 3u);  // its message and what closes it
  CHECK(rank.failure.none());
}

// The same, of ops that complete when their messages have left.
EnginePlan posted_exchanges(int32_t iterations, int32_t connection_slots = 64) {
  EnginePlan plan = test::exchanges(iterations);
  for (Cutting& cutting : plan.schedules.cutting) {
    cutting.completion = Completion::posted;
    cutting.eager_bytes = test::kMessageBytes;
    cutting.connection_slots = connection_slots;
  }
  return plan;
}

void a_posted_op_is_over_when_its_message_left_and_its_record_when_it_is_acknowledged() {
  Rank rank(posted_exchanges(1));
  rank.hear_grant(0, 10);
  rank.hear_message(0, 20);
  rank.hear_grant(1, 20);
  CHECK(rank.network.messages[0].reports_departure);
  CHECK_EQ(rank.network.messages.size(), 1u);  // what it sent has not left
  rank.lanes.on_left(rank.network.messages[0].lane, 0, 25);
  rank.ops.issue(25);
  CHECK_EQ(rank.network.messages.size(), 2u);  // the next op began without an acknowledgement
  CHECK_EQ(rank.records.completed().size(), 0u);
  rank.hear_acknowledgement(0, 90);
  CHECK_EQ(rank.records.completed().size(), 1u);
  CHECK_EQ(rank.records.completed()[0].completed_ns, 25);
  CHECK_EQ(rank.records.completed()[0].acknowledged_ns, 90);
  rank.hear_message(1, 30);
  rank.lanes.on_left(rank.network.messages[1].lane, 0, 35);
  CHECK(!rank.ops.finished());  // its last message is not acknowledged
  rank.hear_acknowledgement(1, 95);
  CHECK(rank.ops.finished());
}

// NVIDIA/nccl:src/transport/net.cc: the sender stops when NCCL_STEPS slots of a connection are taken, whatever ops took them; a
// slot is free when the send of its message completed.
void consecutive_ops_share_the_slots_of_a_connection() {
  constexpr uint32_t kSteps = 8;
  Rank rank(posted_exchanges(8, kSteps));
  for (uint32_t tag = 0; tag < kSteps + 1; ++tag) {
    rank.hear_grant(tag, 10 + tag);
    rank.hear_message(tag, 10 + tag);
    if (rank.network.messages.size() <= tag) break;
    rank.lanes.on_left(rank.network.messages[tag].lane, 0, 10 + tag);
    rank.ops.issue(10 + tag);
  }
  CHECK_EQ(rank.network.messages.size(), size_t{kSteps});  // the ninth waits for a slot
  std::vector<WaitRecord> waits;
  rank.lanes.add_waits(rank.queue_pairs, waits);
  CHECK(std::ranges::any_of(waits, [](const WaitRecord& wait) {
    return wait.op == 0 && wait.iteration == 4 && wait.kind == WaitKind::acknowledgement;
  }));
  rank.hear_acknowledgement(0, 50);
  CHECK_EQ(rank.network.messages.size(), size_t{kSteps} + 1);
  CHECK_EQ(rank.network.messages.back().tag, kSteps);
}

void small_ops_are_granted_eight_ops_ahead_and_more() {
  Rank rank(posted_exchanges(20));
  CHECK_EQ(rank.network.tags.size(), 17u);  // of the first op, and of the 16 after it
  uint32_t least_ahead = 40;
  for (uint32_t tag = 0; tag < 40; ++tag) {
    least_ahead = std::min(least_ahead, rank.network.tags.back() - tag);
    if (tag == 24) break;
    rank.hear_grant(tag, 10 + tag);
    rank.hear_message(tag, 10 + tag);
    rank.lanes.on_left(rank.network.messages[tag].lane, 0, 10 + tag);
    rank.ops.issue(10 + tag);
  }
  CHECK(least_ahead >= 8);
  for (uint32_t i = 0; i < rank.network.tags.size(); ++i) CHECK_EQ(rank.network.tags[i], i);
}

// A receive in turn (recursive doubling) is granted before the rank's own send if it is small, after it if it is large.
void small_receives_are_granted_ahead_of_their_turn() {
  for (const bool small : {true, false}) {
    EnginePlan plan = test::exchanges(1);
    plan.schedules.entries[1].kind |= kEntryInTurn;
    for (Cutting& cutting : plan.schedules.cutting) cutting.eager_bytes = small ? test::kMessageBytes : test::kMessageBytes - 1;
    Rank rank(plan);
    CHECK_EQ(rank.network.tags.size(), small ? 2u : 1u);
  }
}

}  // namespace

int main() {
  the_next_collective_is_granted_when_nothing_of_this_one_is_to_come();
  an_op_opened_ahead_takes_what_comes_and_sends_nothing();
  a_grant_that_was_due_before_its_op_began_is_followed_when_it_begins();
  the_first_of_the_next_iteration_follows_the_last_of_this_one();
  what_needs_no_grant_is_not_opened_ahead();
  a_posted_op_is_over_when_its_message_left_and_its_record_when_it_is_acknowledged();
  consecutive_ops_share_the_slots_of_a_connection();
  small_ops_are_granted_eight_ops_ahead_and_more();
  small_receives_are_granted_ahead_of_their_turn();
  return test::failures();
}
