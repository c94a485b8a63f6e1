// What would go on for ever at one instant is found; what makes progress, or moves on, is not.
#include "base/instant_guard.h"

#include <cstdint>
#include <string>

#include "support/check.h"

namespace {

using namespace etloop;

int64_t none() { return 0; }

void many_turns_at_many_instants_pass() {
  InstantGuard guard(3);
  for (Nanos now = 0; now < 100; ++now) {
    for (int turn = 0; turn < 3; ++turn) CHECK(guard.passes(now, none));
  }
}

void too_many_turns_at_one_do_not() {
  InstantGuard guard(3);
  int turns = 0;
  while (guard.passes(17, none)) ++turns;
  CHECK(turns >= 3 && turns < 6);
  const std::string failure = guard.failure("port a0/p, fault rule 0");
  CHECK(failure.find("port a0/p, fault rule 0 is scheduled at 17 ns again and again") != std::string::npos);
}

void what_ends_operations_may_go_on() {
  InstantGuard guard(3);
  for (int64_t turn = 0; turn < 100; ++turn) CHECK(guard.passes(17, [turn] { return 1 + turn / 3; }));
  int64_t more = 0;
  while (guard.passes(17, [] { return int64_t{34}; })) ++more;
  CHECK(more < 8);
}

}  // namespace

int main() {
  many_turns_at_many_instants_pass();
  too_many_turns_at_one_do_not();
  what_ends_operations_may_go_on();
  return etloop::test::failures();
}
