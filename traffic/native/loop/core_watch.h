// Measures whether a processor core is really available: a real-time thread polls the clock there, shares the core as an engine
// thread does, and records late turns. It runs in place of an engine thread, never next to one: the two would compete for the
// core, and every wake-up of a thread above the engine's cost 20 to 70 us of the engine's time on a virtual machine.
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
  // Needs the permission for real-time scheduling.
  static Result<std::unique_ptr<CoreWatch>> start(int32_t processor, int32_t priority);
  ~CoreWatch();
  CoreWatch(const CoreWatch&) = delete;
  CoreWatch& operator=(const CoreWatch&) = delete;

  // Stop the watch; return the late turns, ascending.
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
