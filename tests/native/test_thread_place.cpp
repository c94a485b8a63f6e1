// What a real-time loop leaves of its core, when it was late for a turn, and that what cannot be had of a place is told.
#include "thread_place.h"

#include <sched.h>

#include <string>
#include <vector>

#include "check.h"
#include "turn_watch.h"

using namespace etloop;

namespace {

// Turns of a microsecond for a second, with rests that take `rest_ns`; the share of time that was rested, in thousandths.
int64_t rested_of_a_second(Nanos rest_ns, bool work) {
  RestAccount account;
  Nanos now = 1;
  Nanos rested = 0;
  while (now < 1'000'000'000) {
    now += 1'000;
    if (!account.due(now, work)) continue;
    now += rest_ns;
    rested += rest_ns;
    account.rested(rest_ns);
  }
  return rested / 1'000'000;
}

void more_than_a_twentieth_is_rested_however_long_a_rest_takes() {
  for (const Nanos rest_ns : {10'000, 30'000, 60'000, 300'000}) {
    for (const bool work : {false, true}) {
      const int64_t share = rested_of_a_second(rest_ns, work);
      CHECK(share > 55 && share < 75);
    }
  }
}

void sleep_for_other_reasons_counts() {
  RestAccount account;
  Nanos now = 1'000'000'000;
  CHECK(!account.due(now, false));
  account.rested(500'000);
  now += 500'000 * RestAccount::kRestEvery;
  CHECK(!account.due(now, false));
  now += 2 * RestAccount::kRestNs * RestAccount::kRestEvery;
  CHECK(account.due(now, false));
}

void what_was_slept_long_ago_does_not_count_for_ever() {
  RestAccount account;
  CHECK(!account.due(1'000'000'000, false));
  account.rested(10'000'000'000);
  const Nanos later = 1'000'000'000 + (RestAccount::kMostSavedNs + 2 * RestAccount::kRestNs) * RestAccount::kRestEvery;
  CHECK(account.due(later, false));
}

void a_rest_is_put_off_while_there_is_work_but_not_for_ever() {
  RestAccount account;
  CHECK(!account.due(1, true));
  CHECK(!account.due(1 + 2 * RestAccount::kRestNs * RestAccount::kRestEvery, true));
  CHECK(account.due(2 + 5 * RestAccount::kRestNs * RestAccount::kRestEvery, true));
}

void a_core_that_is_not_there_is_told() {
  const std::vector<std::string> refused = place_thread(pthread_self(), {CPU_SETSIZE - 1, 0});
  CHECK_EQ(refused.size(), 1U);
  CHECK(refused[0].starts_with("its thread is not held on core 1023: Invalid argument"));
}

// One look at 1 ms, a second one `after` it; what is noted of that.
std::vector<LateTurn> noted(Nanos after, int64_t packets, Nanos slept = 0) {
  TurnWatch watch;
  watch.begin();
  watch.look(1'000'000, 0);
  if (slept != 0) watch.sleeps_until(slept == kNever ? kNever : 1'000'000 + slept);
  watch.look(1'000'000 + after, packets);
  return watch.late();
}

void a_turn_is_late_where_nothing_that_was_done_accounts_for_it() {
  CHECK(noted(100'000, 0).empty());
  const std::vector<LateTurn> hole = noted(100'001, 0);
  CHECK_EQ(hole.size(), 1U);
  CHECK_EQ(hole[0].from_ns, 1'000'000);
  CHECK_EQ(hole[0].until_ns, 1'100'001);
  CHECK(noted(100'000 + 30 * TurnWatch::kPacketNs, 30).empty());
  CHECK_EQ(noted(100'001 + 30 * TurnWatch::kPacketNs, 30).size(), 1U);
}

void sleep_that_was_meant_is_not_late() {
  CHECK(noted(700'000, 0, 600'000).empty());
  const std::vector<LateTurn> overslept = noted(700'001, 0, 600'000);
  CHECK_EQ(overslept.size(), 1U);
  CHECK_EQ(overslept[0].from_ns, 1'600'000);
  CHECK(noted(50'000, 0, 600'000).empty());         // woken by a packet
  CHECK(noted(90'000'000, 0, kNever).empty());      // nothing was due
  CHECK(TurnWatch().late().empty());
}

void what_is_noted_is_bounded() {
  TurnWatch watch;
  watch.begin();
  Nanos now = 0;
  for (size_t turn = 0; turn < TurnWatch::kMostNoted + 10; ++turn) watch.look(now += 1'000'000, 0);
  CHECK_EQ(watch.late().size(), TurnWatch::kMostNoted);
}

}  // namespace

int main() {
  more_than_a_twentieth_is_rested_however_long_a_rest_takes();
  sleep_for_other_reasons_counts();
  what_was_slept_long_ago_does_not_count_for_ever();
  a_rest_is_put_off_while_there_is_work_but_not_for_ever();
  a_turn_is_late_where_nothing_that_was_done_accounts_for_it();
  sleep_that_was_meant_is_not_late();
  what_is_noted_is_bounded();
  a_core_that_is_not_there_is_told();
  return test::failures();
}
