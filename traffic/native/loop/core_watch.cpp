#include "loop/core_watch.h"

#include <sys/prctl.h>

#include <ctime>

#include "loop/thread_place.h"
#include "port/system_clock.h"

namespace etloop {

Result<std::unique_ptr<CoreWatch>> CoreWatch::start(int32_t processor, int32_t priority) {
  auto keeper = RealtimeKeeper::make({processor, priority});
  if (!keeper) return Error{"the core is not watched: " + keeper.error().text};
  std::unique_ptr<CoreWatch> watch(new CoreWatch(*std::move(keeper)));
  watch->watch_.begin();
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  const std::vector<std::string> refused = place_thread(watch->thread_.native_handle(), {processor, priority});
  if (refused.empty()) return watch;
  return Error{"the core is not watched: " + refused.front()};
}

CoreWatch::~CoreWatch() { stop(); }

const std::vector<LateTurn>& CoreWatch::stop() {
  over_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  return watch_.late();
}

void CoreWatch::run() {
  prctl(PR_SET_TIMERSLACK, 1);
  be_first_of_ordinary();
  RealtimeShare share;
  while (!over_.load(std::memory_order_relaxed)) {
    const Nanos now = monotonic_ns();
    watch_.look(now, 0);
    if (share.changes(now)) share.ordinary() ? keeper_->become_ordinary() : keeper_->become_realtime();
  }
}

}  // namespace etloop
