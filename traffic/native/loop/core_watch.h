// Whether a core is to be had: a real-time thread that does nothing but look at the clock there, shares the core as a loop
// does, and notes when it came late. It stands where an engine's thread would, and never beside one: two would take the core from
// each other, and every wake-up of a thread above the engine's cost a virtual machine 20 to 70 us of the engine's time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "loop/realtime_keeper.h"
#include "loop/turn_watch.h"

namespace etloop {

class CoreWatch {
 public:
  // Needs the right to be real-time.
  static Result<std::unique_ptr<CoreWatch>> start(int32_t processor, int32_t priority);
  ~CoreWatch();
  CoreWatch(const CoreWatch&) = delete;
  CoreWatch& operator=(const CoreWatch&) = delete;

  // Ends it; ascending.
  const std::vector<LateTurn>& stop();

 private:
  explicit CoreWatch(std::unique_ptr<RealtimeKeeper> keeper) : keeper_(std::move(keeper)) {}
  void run();

  std::unique_ptr<RealtimeKeeper> keeper_;
  std::atomic<bool> over_{false};
  TurnWatch watch_;
  std::thread thread_;
};

}  // namespace etloop
