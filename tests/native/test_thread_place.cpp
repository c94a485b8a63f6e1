// What a real-time loop leaves of its core, and that what cannot be had of a place is told.
#include "thread_place.h"

#include <sched.h>

#include <string>
#include <vector>

#include "check.h"

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

}  // namespace

int main() {
  more_than_a_twentieth_is_rested_however_long_a_rest_takes();
  sleep_for_other_reasons_counts();
  what_was_slept_long_ago_does_not_count_for_ever();
  a_rest_is_put_off_while_there_is_work_but_not_for_ever();
  a_core_that_is_not_there_is_told();
  return test::failures();
}
