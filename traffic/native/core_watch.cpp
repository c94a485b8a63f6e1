#include "core_watch.h"

#include <sys/prctl.h>

#include <ctime>

#include "system_clock.h"
#include "thread_place.h"

namespace etloop {
namespace {

constexpr size_t kMostNoted = 1 << 20;  // more cannot happen in half a minute

}  // namespace

std::unique_ptr<CoreWatch> CoreWatch::start(int32_t processor, int32_t priority, std::string& error) {
  std::unique_ptr<CoreWatch> watch(new CoreWatch());
  watch->withheld_.reserve(4096);
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  const std::vector<std::string> refused = place_thread(watch->thread_.native_handle(), {processor, priority + 1});
  if (refused.empty()) return watch;
  error = "the core is not watched: " + refused.front();
  return nullptr;
}

CoreWatch::~CoreWatch() { stop(); }

const std::vector<Withheld>& CoreWatch::stop() {
  over_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  return withheld_;
}

void CoreWatch::run() {
  prctl(PR_SET_TIMERSLACK, 1);
  Nanos due_ns = monotonic_ns() + kEveryNs;
  while (!over_.load(std::memory_order_relaxed)) {
    const timespec until{due_ns / 1'000'000'000, due_ns % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    const Nanos now = monotonic_ns();
    if (now - due_ns > kLateNs && withheld_.size() < kMostNoted) withheld_.push_back({due_ns, now});
    due_ns += kEveryNs * (1 + (now - due_ns) / kEveryNs);
  }
}

}  // namespace etloop
