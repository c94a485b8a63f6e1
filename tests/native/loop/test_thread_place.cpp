// What a real-time loop leaves of its core, when it was late for a turn, and that what cannot be had of a place is told.
#include "loop/thread_place.h"

#include <sched.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "loop/turn_watch.h"
#include "support/check.h"

using namespace etloop;

namespace {

// A thread that looks at its share once in every `turn_ns`, for a second of time.
struct Thread {
  Nanos now = 1;
  Nanos ordinary_ns = 0;
  int64_t changes = 0;
  RealtimeShare share;

  void runs(Nanos turn_ns) {
    now += turn_ns;
    if (share.ordinary()) ordinary_ns += turn_ns;
    if (share.changes(now)) ++changes;
  }
  int64_t thousandths_of_a_second(Nanos turn_ns) {
    while (now < 1'000'000'000) runs(turn_ns);
    return ordinary_ns / 1'000'000;
  }
};

void more_than_the_kernel_wants_is_spent_as_an_ordinary_thread_however_long_a_turn_is() {
  for (const Nanos turn_ns : {1, 97, 1'000, 40'000}) {
    const int64_t share = Thread().thousandths_of_a_second(turn_ns);
    CHECK(share > 60 && share < 90);
  }
  for (const Nanos turn_ns : {300'000, 4'000'000}) CHECK(Thread().thousandths_of_a_second(turn_ns) > 60);
}

void it_is_ordinary_often_and_shortly() {
  Thread thread;
  thread.thousandths_of_a_second(1'000);
  CHECK(thread.changes > 5'400 && thread.changes < 5'800);
}

// The core was taken for 4 ms while the thread was an ordinary one.
void what_others_took_counts_but_not_for_ever() {
  Thread thread;
  while (!thread.share.ordinary()) thread.runs(1'000);
  thread.runs(4'000'000);
  CHECK(!thread.share.ordinary());
  const Nanos before = thread.now;
  while (!thread.share.ordinary()) thread.runs(1'000);
  const Nanos saved_ns = RealtimeShare::kMostSavedNs + RealtimeShare::kOrdinaryNs;
  CHECK_EQ((thread.now - before + 500'000) / 1'000'000, saved_ns * (RealtimeShare::kOrdinaryOf - 1) / 1'000'000);
}

// A loop that sleeps is real-time while it does; what it owed it owes on, and never more than one part.
void a_sleep_is_slept_as_a_real_time_thread() {
  Thread thread;
  while (!thread.share.ordinary()) thread.runs(1'000);
  thread.share.become_realtime();
  CHECK(!thread.share.ordinary());
  thread.now += 10'000'000'000;
  CHECK(thread.share.changes(thread.now) && thread.share.ordinary());
  const Nanos before = thread.now;
  while (thread.share.ordinary()) thread.runs(1'000);
  CHECK_EQ(thread.now - before, RealtimeShare::kOrdinaryNs);
}

void a_process_that_would_be_ended_for_it_is_not_real_time() {
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_RTTIME, &before), 0);
  const rlimit limited{200'000, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_RTTIME, &limited), 0);
  const std::vector<std::string> refused = place_thread(pthread_self(), {-1, 1});
  CHECK_EQ(setrlimit(RLIMIT_RTTIME, &before), 0);
  CHECK_EQ(refused.size(), 1U);
  CHECK_EQ(refused.at(0),
           "its thread is not real-time: the process would be ended after 200000 us of that without a sleep (RLIMIT_RTTIME); "
           "lift it (systemd: LimitRTTIME=infinity)");
  int policy = 0;
  sched_param now{};
  CHECK_EQ(pthread_getschedparam(pthread_self(), &policy, &now), 0);
  CHECK_EQ(policy, SCHED_OTHER);
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
  more_than_the_kernel_wants_is_spent_as_an_ordinary_thread_however_long_a_turn_is();
  it_is_ordinary_often_and_shortly();
  what_others_took_counts_but_not_for_ever();
  a_sleep_is_slept_as_a_real_time_thread();
  a_process_that_would_be_ended_for_it_is_not_real_time();
  a_turn_is_late_where_nothing_that_was_done_accounts_for_it();
  sleep_that_was_meant_is_not_late();
  what_is_noted_is_bounded();
  a_core_that_is_not_there_is_told();
  return test::failures();
}
