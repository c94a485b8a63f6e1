// When the PAUSE frames of rules are due.
#include "core/pause_timer.h"

#include <utility>
#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr Nanos kStart = 1'000;

struct Sent {
  std::vector<std::pair<uint8_t, Nanos>> frames;  // priority, time
  void look(PauseTimer& timer, Nanos now, bool leaves = true) {
    if (now < timer.next_ns()) return;
    timer.send_due(now, [&](const PauseRule& rule) {
      frames.emplace_back(rule.priority, now);
      return leaves;
    });
  }
};

void without_rules_nothing_is_due() {
  PauseTimer timer;
  timer.start({}, kStart);
  CHECK_EQ(timer.next_ns(), kNever);
}

void each_rule_keeps_its_own_times() {
  PauseTimer timer;
  timer.start({{.priority = 3, .quanta = 9, .first_ns = 0, .every_ns = 100, .count = 2},
               {.priority = 5, .quanta = 9, .first_ns = 30, .every_ns = 40, .count = 0}},
              kStart);
  Sent sent;
  for (Nanos now = kStart; now <= kStart + 150; now += 10) sent.look(timer, now);
  const std::vector<std::pair<uint8_t, Nanos>> expected{{3, 1'000}, {5, 1'030}, {5, 1'070}, {3, 1'100}, {5, 1'110}, {5, 1'150}};
  CHECK(sent.frames == expected);
  CHECK_EQ(timer.next_ns(), kStart + 190);
}

void missed_frames_are_not_made_up_for() {
  PauseTimer timer;
  timer.start({{.priority = 1, .quanta = 9, .first_ns = 0, .every_ns = 100, .count = 0}}, kStart);
  Sent sent;
  sent.look(timer, kStart + 350);
  CHECK_EQ(sent.frames.size(), size_t{1});
  CHECK_EQ(timer.next_ns(), kStart + 400);
}

void a_frame_that_did_not_leave_does_not_count() {
  PauseTimer timer;
  timer.start({{.priority = 1, .quanta = 9, .first_ns = 0, .every_ns = 100, .count = 1}}, kStart);
  Sent sent;
  sent.look(timer, kStart, false);
  CHECK_EQ(timer.next_ns(), kStart + 100);
  sent.look(timer, kStart + 100);
  CHECK_EQ(timer.next_ns(), kNever);
}

void none_is_due_after_the_end() {
  PauseTimer timer;
  timer.start({{.priority = 1, .quanta = 9, .first_ns = 0, .every_ns = 100, .count = 0}}, kStart);
  timer.stop();
  CHECK_EQ(timer.next_ns(), kNever);
}

}  // namespace

int main() {
  without_rules_nothing_is_due();
  each_rule_keeps_its_own_times();
  missed_frames_are_not_made_up_for();
  a_frame_that_did_not_leave_does_not_count();
  none_is_due_after_the_end();
  return test::failures();
}
