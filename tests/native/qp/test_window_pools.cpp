// Queue pairs to one address share what it offered: none is starved, none waits for room that nobody will give back.
#include "qp/window_pools.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint32_t kPacket = WindowPools::kSharesPerPacket;

IpAddress peer(uint32_t last) { return IpAddress::v4(0x0A000000 + last); }

PacketRun run_of(uint32_t psn, uint32_t count, uint32_t ack_every) {
  PacketRun run;
  run.head.psn = psn;
  run.count = count;
  run.ack_every = ack_every;
  return run;
}

void one_uses_what_others_do_not() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 100; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, kPacket / 2);
  }
  CHECK_EQ(pools.limit_packets(7), 50U);
  CHECK_EQ(pools.allowed(7, 15), 15U);
  pools.sent(7, run_of(0, 15, 8), 15);
  CHECK_EQ(pools.allowed(7, 64), 35U);
}

void an_offer_counts_once_and_the_latest_holds() {
  WindowPools pools;
  pools.add(0, peer(1));
  pools.offer(0, 10 * kPacket);
  pools.offer(0, 12 * kPacket);
  CHECK_EQ(pools.limit_packets(0), 12U);
}

void other_addresses_and_other_queue_pairs_are_their_own() {
  WindowPools pools;
  pools.add(0, peer(1));
  pools.add(1, peer(2));
  pools.offer(0, 16 * kPacket);
  pools.offer(1, 16 * kPacket);
  pools.sent(0, run_of(0, 16, 8), 16);
  CHECK_EQ(pools.allowed(0, 4), 0U);
  CHECK_EQ(pools.allowed(1, 4), 4U);
  CHECK_EQ(pools.allowed(99, 4), 4U);  // never added: a receiving end
  CHECK_EQ(pools.limit_packets(99), 0U);
}

void those_who_wait_come_before_those_who_do_not() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 3; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 11 * kPacket);
  }
  pools.sent(0, run_of(0, 33, 8), 33);
  CHECK_EQ(pools.allowed(1, 15), 0U);
  CHECK_EQ(pools.allowed(2, 15), 0U);
  uint32_t awake = 99;
  CHECK(!pools.take_awake(0, awake));
  pools.settle(0, 24);  // room for one run of the least size, not for two
  CHECK(pools.take_awake(0, awake));
  CHECK_EQ(awake, 1U);
  CHECK(!pools.take_awake(0, awake));
  CHECK_EQ(pools.allowed(0, 9), 0U);  // it was not there first
  CHECK_EQ(pools.allowed(1, 15), 9U);
}

void a_turn_not_used_goes_to_the_next() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 3; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 11 * kPacket);
  }
  pools.sent(0, run_of(0, 33, 8), 33);
  pools.allowed(1, 15);
  pools.allowed(2, 15);
  pools.settle(0, 24);
  uint32_t awake = 99;
  CHECK(pools.take_awake(0, awake));
  pools.pass(1);
  CHECK(pools.take_awake(1, awake));
  CHECK_EQ(awake, 2U);
}

void the_last_of_a_run_asks_where_too_much_was_not_asked_for() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 2; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 16 * kPacket);
  }
  PacketRun run = run_of(1000, 12, 256);
  pools.ask(0, run);
  CHECK_EQ(last_asked(run), kNoPacket);
  pools.sent(0, run, 12);
  run = run_of(500, 12, 256);
  pools.ask(1, run);
  CHECK_EQ(last_asked(run), 511U);
  run = run_of(700, 1, 256);
  pools.sent(1, run_of(500, 4, 256), 4);
  pools.ask(1, run);
  CHECK(run.head.ack_req);
  run = run_of(wire::kPsnMask - 5, 12, 256);  // over the end of the numbers
  pools.ask(1, run);
  CHECK_EQ(last_asked(run), wire::kPsnMask);
}

// Two with turns of full runs: the first goes on until its turn is over, and only then asks.
void a_turn_is_several_runs_and_asks_once() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 3; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 200 * kPacket);
  }
  const uint32_t limit = pools.limit_packets(0);
  pools.sent(0, run_of(0, limit, 1), limit);
  CHECK_EQ(pools.allowed(1, 15), 0U);
  CHECK_EQ(pools.allowed(2, 15), 0U);
  uint32_t awake = 99;
  pools.settle(0, limit - 59);
  CHECK(!pools.take_awake(0, awake));  // room for a part of a turn
  pools.settle(0, limit - 70);
  CHECK(pools.take_awake(0, awake));
  CHECK_EQ(awake, 1U);
  for (uint32_t sent = 0; sent < 60; sent += 15) {
    CHECK_EQ(pools.goes_on(1), sent > 0);
    CHECK_EQ(pools.allowed(1, 15), 15U);
    PacketRun run = run_of(sent, 15, 256);
    pools.ask(1, run);
    CHECK_EQ(last_asked(run), sent < 45 ? kNoPacket : 59U);
    pools.sent(1, run, sent + 15);
    CHECK_EQ(pools.allowed(2, 15), 0U);
  }
  CHECK(!pools.goes_on(1));
  CHECK_EQ(pools.allowed(1, 15), 0U);
}

// What holds its turn up gives the room back before it goes on.
void a_turn_that_rests_asks() {
  WindowPools pools;
  for (uint32_t qp = 0; qp < 2; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 200 * kPacket);
  }
  const uint32_t limit = pools.limit_packets(0);
  pools.sent(0, run_of(0, limit, 1), limit);
  pools.allowed(1, 15);
  pools.allowed(0, 15);
  pools.settle(0, limit - 120);
  uint32_t awake = 99;
  CHECK(pools.take_awake(0, awake));
  CHECK_EQ(pools.allowed(1, 15), 15U);
  PacketRun run = run_of(0, 3, 256);
  pools.ask(1, run, true);  // paced: only three of them may leave now
  CHECK_EQ(last_asked(run), 2U);
}

// Each has a turn although nobody waits for room, and only its end asks; alone, a queue pair asks as it always does.
void a_kept_turn_asks_at_its_end() {
  WindowPools pools;
  pools.keep_turns();
  for (uint32_t qp = 0; qp < 2; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, 100 * kPacket);
  }
  for (uint32_t sent = 0; sent < 64; sent += 16) {
    CHECK_EQ(pools.goes_on(0), sent > 0);
    CHECK_EQ(pools.allowed(0, 16), 16U);
    PacketRun run = run_of(sent, 16, 64);
    pools.ask(0, run, false, true);
    CHECK_EQ(last_asked(run), sent < 48 ? kNoPacket : 63U);
    pools.sent(0, run, sent + 16);
  }
  CHECK(!pools.goes_on(0));
  CHECK_EQ(pools.allowed(0, 16), 16U);  // the next turn, as nobody waits
  PacketRun cut = run_of(64, 16, 64);
  pools.ask(0, cut, true, true);
  CHECK_EQ(last_asked(cut), 79U);
  PacketRun alone = run_of(64, 64, 64);
  pools.ask(0, alone, false, false);
  CHECK_EQ(last_asked(alone), 127U);
}

// What had nothing more to send begins anew.
void a_kept_turn_ends_with_its_work() {
  WindowPools pools;
  pools.keep_turns();
  pools.add(0, peer(1));
  pools.offer(0, 300 * kPacket);
  pools.allowed(0, 2);
  pools.sent(0, run_of(0, 2, 1), 2);
  CHECK(pools.goes_on(0));
  pools.pass(0);
  CHECK(!pools.goes_on(0));
}

// 64 queue pairs that send messages of random lengths, acknowledged only where they ask: every one comes to its end.
void nothing_stands_still(uint32_t seed, bool keeps_turns) {
  constexpr uint32_t kQps = 64;
  struct Sender {
    uint32_t psn = 0, una = 0, left = 0, messages = 0;
    bool queued = false;
  };
  struct Ack {
    uint32_t qp, end;
  };
  std::mt19937 random(seed);
  WindowPools pools;
  if (keeps_turns) pools.keep_turns();
  std::vector<Sender> senders(kQps);
  std::deque<uint32_t> ring;
  std::deque<Ack> acks;
  for (uint32_t qp = 0; qp < kQps; ++qp) {
    pools.add(qp, peer(1));
    pools.offer(qp, kPacket * (1 + random() % 3) / 2);
    senders[qp].left = 1 + random() % 300;
    senders[qp].psn = senders[qp].una = random() % 1000;
    senders[qp].queued = true;
    ring.push_back(qp);
  }
  const uint32_t limit = pools.limit_packets(0);
  uint32_t finished = 0;
  uint32_t most = 0;
  for (uint32_t turn = 0; turn < 200'000 && finished < kQps; ++turn) {
    uint32_t of = 0;
    if (ring.empty() || (!acks.empty() && random() % 2 == 0)) {
      if (acks.empty()) break;
      const Ack ack = acks.front();
      acks.pop_front();
      of = ack.qp;
      Sender& sender = senders[of];
      sender.una = ack.end;
      pools.settle(of, sender.psn - sender.una);
      if (sender.left == 0 && sender.una == sender.psn) {
        if (++sender.messages == 3) {
          ++finished;
        } else {
          sender.left = 1 + random() % 300;
          if (!sender.queued) ring.push_back(of);
          sender.queued = true;
        }
      }
    } else {
      of = ring.front();
      ring.pop_front();
      Sender& sender = senders[of];
      sender.queued = false;
      if (sender.left > 0) {
        PacketRun run = run_of(sender.psn, std::min(sender.left, 15U), 256);
        run.count = pools.allowed(of, run.count);
        if (run.count > 0) {
          run.head.ack_req = run.count == 1 && (run.head.psn + 1) % 256 == 0;
          pools.ask(of, run, false, !ring.empty());
          if (run.count == sender.left) ask_at_end(run);  // a message's end asks
          sender.psn += run.count;
          sender.left -= run.count;
          pools.sent(of, run, sender.psn - sender.una);
          if (const uint32_t asked = last_asked(run); asked != kNoPacket) acks.push_back({of, asked + 1});
          if (sender.left > 0) {
            pools.goes_on(of) ? ring.push_front(of) : ring.push_back(of);
            sender.queued = true;
          }
        }
      }
    }
    for (uint32_t awake = 0; pools.take_awake(of, awake);) {
      if (!senders[awake].queued) ring.push_back(awake);
      senders[awake].queued = true;
    }
    uint32_t under_way = 0;
    for (const Sender& sender : senders) under_way += sender.psn - sender.una;
    most = std::max(most, under_way);
  }
  CHECK_EQ(finished, kQps);
  CHECK(most <= limit);
  CHECK(most > limit / 2);
}

}  // namespace

int main() {
  one_uses_what_others_do_not();
  an_offer_counts_once_and_the_latest_holds();
  other_addresses_and_other_queue_pairs_are_their_own();
  those_who_wait_come_before_those_who_do_not();
  a_turn_not_used_goes_to_the_next();
  the_last_of_a_run_asks_where_too_much_was_not_asked_for();
  a_turn_is_several_runs_and_asks_once();
  a_turn_that_rests_asks();
  a_kept_turn_asks_at_its_end();
  a_kept_turn_ends_with_its_work();
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    for (const bool keeps_turns : {false, true}) nothing_stands_still(seed, keeps_turns);
  }
  return etloop::test::failures();
}
