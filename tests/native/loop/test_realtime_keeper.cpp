// A real-time thread that became an ordinary one is brought back, also when it does nothing for it.
#include "loop/realtime_keeper.h"

#include <sched.h>

#include <string>
#include <thread>

#include "port/system_clock.h"
#include "support/check.h"

using namespace etloop;

namespace {

constexpr int32_t kPriority = 1;
constexpr Nanos kPatienceNs = 10'000'000'000;

int policy() { return sched_getscheduler(0); }

bool comes_back_within(Nanos patience_ns) {
  const Nanos until_ns = monotonic_ns() + patience_ns;
  while (policy() != SCHED_FIFO && monotonic_ns() < until_ns) {
  }
  return policy() == SCHED_FIFO;
}

void kept(RealtimeKeeper& keeper) {
  become_realtime(kPriority);
  CHECK_EQ(policy(), SCHED_FIFO);
  for (int times = 0; times < 3; ++times) {
    const Nanos begin_ns = monotonic_ns();
    keeper.become_ordinary();
    CHECK(comes_back_within(kPatienceNs));
    CHECK(monotonic_ns() - begin_ns >= RealtimeKeeper::kLongestNs);
    keeper.become_realtime();
  }
  // By itself: the timer does not run on.
  keeper.become_ordinary();
  keeper.become_realtime();
  CHECK_EQ(policy(), SCHED_FIFO);
  become_ordinary();
  CHECK(!comes_back_within(3 * RealtimeKeeper::kLongestNs));
}

}  // namespace

int main() {
  {
    const auto made = RealtimeKeeper::make({-1, kPriority});
    if (!made) {
      const std::string& why = made.error().text;
      CHECK(why.starts_with("the keeper of a real-time thread: "));
      test::skipped(test::Missing::kernel_or_right, "real-time threads", why);
      return test::failures();
    }
    const std::unique_ptr<RealtimeKeeper>& keeper = *made;
    std::thread([&keeper] { kept(*keeper); }).join();
    // One that ended while it was away is nobody's loss.
    std::thread([&keeper] {
      become_realtime(kPriority);
      keeper->become_ordinary();
    }).join();
  }
  return test::failures();
}
