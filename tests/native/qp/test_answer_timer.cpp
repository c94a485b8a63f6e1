// How long a requester waits: the specification's timeout, or what round trips say, doubled in silence until one is measured.
#include "qp/answer_timer.h"

#include "support/check.h"

using namespace etloop;

namespace {

TransportSettings params(bool adaptive) {
  TransportSettings made;
  made.recovery.adaptive_timeout = adaptive;
  made.timeout_ns = 1'000'000;
  made.recovery.timeout_floor_ns = 8'192;
  made.retry_limit = 2;
  return made;
}

void a_fixed_timeout_is_the_specifications() {
  AnswerTimer timer(params(false));
  timer.restart(100);
  CHECK_EQ(timer.deadline(), 1'000'100);
  timer.expire();
  CHECK_EQ(timer.deadline(), 1'000'100);
  CHECK(!timer.is_short());
}

void silence_doubles_the_wait_until_a_round_trip_is_measured() {
  AnswerTimer timer(params(true));
  CHECK_EQ(timer.deadline(), 8'192);
  timer.expire();
  CHECK_EQ(timer.deadline(), 16'384);
  timer.note_sent(5, 1'000);
  Nanos rtt_ns = -1;
  timer.measure(5, 3'000, rtt_ns);
  CHECK_EQ(rtt_ns, -1);  // number 5 is not acknowledged yet
  timer.measure(6, 3'000, rtt_ns);
  CHECK_EQ(rtt_ns, 2'000);
  CHECK_EQ(timer.smoothed_rtt_ns(), 2'000);
  CHECK_EQ(timer.deadline(), 8'192);
  for (int i = 0; i < 30; ++i) timer.expire();
  CHECK_EQ(timer.deadline(), 1'000'000);
  CHECK(!timer.is_short());
}

void what_was_sent_twice_measures_nothing() {
  AnswerTimer timer(params(true));
  timer.note_sent(1, 0);
  timer.forget_sent();
  Nanos rtt_ns = -1;
  timer.measure(2, 500, rtt_ns);
  CHECK_EQ(rtt_ns, -1);
  CHECK_EQ(timer.smoothed_rtt_ns(), -1);
}

void fixed_tries_are_counted_and_adaptive_ones_last_as_long() {
  AnswerTimer fixed(params(false));
  CHECK(fixed.may_retry(1));
  CHECK(fixed.may_retry(2));
  CHECK(!fixed.may_retry(3));
  AnswerTimer adaptive(params(true));
  adaptive.note_start(0);
  for (Nanos now = 1; now < 10; ++now) CHECK(adaptive.may_retry(now));
  CHECK(!adaptive.may_retry(2'000'000));
  adaptive.note_progress(2'000'000);
  CHECK_EQ(adaptive.retries(), 0u);
  CHECK(adaptive.may_retry(2'000'001));
}

}  // namespace

int main() {
  a_fixed_timeout_is_the_specifications();
  silence_doubles_the_wait_until_a_round_trip_is_measured();
  what_was_sent_twice_measures_nothing();
  fixed_tries_are_counted_and_adaptive_ones_last_as_long();
  return test::failures();
}
