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

}  // namespace

int main() {
  the_next_collective_is_granted_when_nothing_of_this_one_is_to_come();
  an_op_opened_ahead_takes_what_comes_and_sends_nothing();
  a_grant_that_was_due_before_its_op_began_is_followed_when_it_begins();
  the_first_of_the_next_iteration_follows_the_last_of_this_one();
  what_needs_no_grant_is_not_opened_ahead();
  return test::failures();
}
