// Lanes over a network that takes messages whole: what is granted, sent and acknowledged when, and when an op is over.
#include "core/lanes.h"

#include <string>
#include <vector>

#include "support/check.h"
#include "support/core_parts.h"
#include "support/exchanges.h"
#include "support/recording_network.h"

using namespace etloop;

namespace {

struct Ends {
  explicit Ends(const EnginePlan& plan) : sender(plan, 0), receiver(plan, 1) {
    sender.paths.set_network(network);
    receiver.paths.set_network(network);
  }

  static void begin(test::CoreParts& end) {
    end.ops.start(0);
    end.ops.issue(0);
  }

  test::RecordingNetwork network;
  test::CoreParts sender;
  test::CoreParts receiver;
};

void a_receiver_grants_as_many_as_it_has_slots() {
  Ends ends(test::one_send(6 * test::kMessageBytes));
  Ends::begin(ends.receiver);
  CHECK(ends.network.grants == (std::vector<uint32_t>{0, 1, 2, 3}));
  ends.receiver.lanes.on_message({0, 0, 0, test::kMessageBytes, test::kMessageBytes}, 10);
  CHECK_EQ(ends.network.grants.size(), 5u);
  CHECK_EQ(ends.receiver.records.status().wire_rx_bytes, test::kMessageBytes);
}

void a_sender_waits_for_grants_and_takes_queue_pairs_in_turn() {
  Ends ends(test::one_send(3 * test::kMessageBytes));
  Ends::begin(ends.sender);
  CHECK_EQ(ends.network.messages.size(), 0u);
  for (uint32_t index = 0; index < 3; ++index) ends.sender.lanes.on_grant(0, 0, {buffer_address(0, index), 0, 0}, 5);
  CHECK_EQ(ends.network.messages.size(), 3u);
  CHECK(ends.network.queue_pairs == (std::vector<uint32_t>{0, 1, 0}));
  CHECK_EQ(ends.network.messages[2].index, 2u);
  CHECK(!ends.sender.ops.finished());
  for (uint32_t index = 0; index < 3; ++index) ends.sender.lanes.on_acknowledged(ends.network.messages[index].lane, index, 20);
  CHECK(ends.sender.ops.finished());
  CHECK_EQ(ends.sender.records.completed().size(), 1u);
  CHECK_EQ(ends.sender.records.completed()[0].completed_ns, 20);
  CHECK_EQ(ends.sender.records.completed()[0].tx_messages, 3);
  CHECK_EQ(ends.sender.records.completed()[0].first_tx_ns, 5);
}

void grants_that_come_before_the_op_are_kept() {
  Ends ends(test::one_send(2 * test::kMessageBytes));
  ends.sender.lanes.on_grant(0, 0, {buffer_address(0, 0), 0, 0}, 1);
  CHECK_EQ(ends.network.messages.size(), 0u);
  Ends::begin(ends.sender);
  CHECK_EQ(ends.network.messages.size(), 1u);
}

void one_sided_messages_need_no_grant_and_end_with_a_closing() {
  Ends ends(test::one_send(2 * test::kMessageBytes, 2, Handshake::one_sided));
  Ends::begin(ends.sender);
  CHECK_EQ(ends.network.messages.size(), 3u);
  CHECK_EQ(ends.network.messages[2].index, kClosingIndex);
  CHECK(ends.network.queue_pairs[0] == ends.network.queue_pairs[2]);  // behind the others
  // What is here before the receiver's op is counted for it.
  ends.receiver.lanes.on_one_sided(0, 0, 0, test::kMessageBytes, 3);
  Ends::begin(ends.receiver);
  ends.receiver.lanes.on_one_sided(0, 0, 1, test::kMessageBytes, 4);
  CHECK(!ends.receiver.ops.finished());
  ends.receiver.lanes.on_one_sided(0, 0, kClosingIndex, 0, 5);
  CHECK(ends.receiver.ops.finished());
  CHECK_EQ(ends.receiver.records.completed()[0].rx_messages, 2);
}

void a_message_that_nobody_granted_ends_the_run() {
  Ends ends(test::one_send(test::kMessageBytes));
  ends.receiver.lanes.on_message({0, 9, 0, 100, 100}, 1);
  CHECK_EQ(ends.receiver.failure.reason(),
           std::string("rank 0 -> rank 1 (10.0.0.1 -> 10.0.0.2): message 0 of op #9 (100 bytes) was never granted"));
  CHECK_EQ(ends.receiver.failure.connection(), 0);
}

void too_large_a_message_is_refused() {
  EnginePlan plan = test::one_send(int64_t{1} << 32);
  plan.schedules.cutting[0].chunk_bytes = int64_t{1} << 32;
  Ends ends(plan);
  Ends::begin(ends.receiver);
  CHECK(!ends.receiver.failure.none());
  CHECK_EQ(ends.network.grants.size(), 0u);
}

void who_waits_says_for_what() {
  Ends ends(test::one_send(2 * test::kMessageBytes));
  Ends::begin(ends.sender);
  std::vector<WaitRecord> waits;
  ends.sender.lanes.add_waits(ends.sender.queue_pairs, waits);
  CHECK_EQ(waits.size(), 1u);
  CHECK(waits[0].kind == WaitKind::clear_to_send);
  CHECK_EQ(waits[0].peer_rank, 1);
  CHECK_EQ(waits[0].messages_total, 2);
  Ends::begin(ends.receiver);
  waits.clear();
  ends.receiver.lanes.add_waits(ends.receiver.queue_pairs, waits);
  CHECK_EQ(waits.size(), 1u);
  CHECK(waits[0].kind == WaitKind::data);
  CHECK_EQ(waits[0].peer_rank, 0);
}

// The peer's op waits for the answer to its last message.
void the_last_message_of_an_op_ends_the_op_of_its_sender() {
  const auto ends_op = [](const test::CoreParts& end, int32_t connection) {
    return end.lanes.may_go_unanswered(connection, 0, test::kMessageBytes).ends_op;
  };
  Ends exchange(test::exchanges(1));
  Ends::begin(exchange.sender);
  CHECK(!ends_op(exchange.sender, test::kIn));
  exchange.sender.lanes.on_message({test::kIn, 0, 0, test::kMessageBytes, test::kMessageBytes}, 10);
  CHECK(ends_op(exchange.sender, test::kIn));
  CHECK(!exchange.sender.ops.finished());  // it waits for a grant

  Ends one_way(test::one_send(2 * test::kMessageBytes));
  Ends::begin(one_way.receiver);
  one_way.receiver.lanes.on_message({0, 0, 0, test::kMessageBytes, test::kMessageBytes}, 10);
  CHECK(!ends_op(one_way.receiver, 0));
  one_way.receiver.lanes.on_message({0, 0, 1, test::kMessageBytes, test::kMessageBytes}, 20);
  CHECK(ends_op(one_way.receiver, 0));  // the lane is over, and with it the op
}

}  // namespace

int main() {
  a_receiver_grants_as_many_as_it_has_slots();
  a_sender_waits_for_grants_and_takes_queue_pairs_in_turn();
  grants_that_come_before_the_op_are_kept();
  one_sided_messages_need_no_grant_and_end_with_a_closing();
  a_message_that_nobody_granted_ends_the_run();
  too_large_a_message_is_refused();
  who_waits_says_for_what();
  the_last_message_of_an_op_ends_the_op_of_its_sender();
  return test::failures();
}
