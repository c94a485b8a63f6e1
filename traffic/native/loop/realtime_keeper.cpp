#include "loop/realtime_keeper.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace etloop {

Result<std::unique_ptr<RealtimeKeeper>> RealtimeKeeper::make(const ThreadPlace& place) {
  Descriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  Descriptor end(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (timer.get() < 0 || end.get() < 0) {
    return Error{"cannot make a timer for a real-time thread: " + errno_text(errno)};
  }
  std::unique_ptr<RealtimeKeeper> keeper(new RealtimeKeeper(place.realtime_priority, std::move(timer), std::move(end)));
  keeper->thread_ = std::thread([raw = keeper.get()] { raw->run(); });
  // On the same core: its timer fires there; on another core it might wait for a running loop.
  if (const auto refused = place_thread(keeper->thread_.native_handle(), place); !refused.empty()) {
    return Error{"the keeper of a real-time thread: " + refused.front()};
  }
  return keeper;
}

RealtimeKeeper::~RealtimeKeeper() {
  const uint64_t one = 1;
  // The counter of an event descriptor cannot overflow here.
  [[maybe_unused]] const ssize_t written = write(end_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void RealtimeKeeper::arm(Nanos after_ns) {
  itimerspec when{};
  when.it_value.tv_nsec = after_ns;
  timerfd_settime(timer_.get(), 0, &when, nullptr);  // fails only for an invalid time
}

void RealtimeKeeper::become_ordinary() {
  kept_.store(gettid(), std::memory_order_relaxed);
  is_leaving_.store(true, std::memory_order_relaxed);
  arm(kLongestNs);  // first: as an ordinary thread it may not get to run
  etloop::become_ordinary();
  is_leaving_.store(false, std::memory_order_relaxed);
}

void RealtimeKeeper::become_realtime() {
  etloop::become_realtime(priority_);
  arm(0);
}

void RealtimeKeeper::run() {
  pthread_setname_np(pthread_self(), "etloop-keeper");
  std::array<pollfd, 2> polled{{{timer_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  while ((polled[1].revents & POLLIN) == 0) {
    if (poll(polled.data(), polled.size(), -1) <= 0) continue;
    uint64_t times = 0;
    if (read(timer_.get(), &times, sizeof times) != sizeof times) continue;  // it came back by itself meanwhile
    const sched_param wanted{priority_};
    // By thread id, which is unused after the thread has ended.
    const bool is_leaving = is_leaving_.load(std::memory_order_relaxed);
    sched_setscheduler(kept_.load(std::memory_order_relaxed), SCHED_FIFO, &wanted);
    // The timer may fire before the thread has become an ordinary one: look again.
    if (is_leaving) arm(kLongestNs);
  }
}

}  // namespace etloop
