// Restores the real-time policy of a thread that became an ordinary one for a moment. An ordinary thread may have to wait for the
// kernel's next tick, 1 to 4 ms later; the keeper's timer, in a real-time thread, fires sooner. The keeper runs only if the
// thread did not come back by itself.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/time.h"
#include "loop/thread_place.h"
#include "port/udp_socket.h"

namespace etloop {

class RealtimeKeeper {
 public:
  // Longest time of the kept thread as an ordinary one.
  static constexpr Nanos kLongestNs = RealtimeShare::kOrdinaryNs + 5'000;

  // For a real-time thread of this process at that place.
  static Result<std::unique_ptr<RealtimeKeeper>> make(const ThreadPlace& place);
  ~RealtimeKeeper();
  RealtimeKeeper(const RealtimeKeeper&) = delete;
  RealtimeKeeper& operator=(const RealtimeKeeper&) = delete;

  // Called by the kept thread for itself.
  void become_ordinary();
  void become_realtime();

 private:
  RealtimeKeeper(int32_t priority, Descriptor timer, Descriptor end)
      : priority_(priority), timer_(std::move(timer)), end_(std::move(end)) {}
  void run();
  void arm(Nanos after_ns);  // 0: disarm

  int32_t priority_;
  Descriptor timer_;
  Descriptor end_;
  std::atomic<pid_t> kept_{0};
  std::atomic<bool> is_leaving_{false};  // the kept thread is about to become an ordinary one
  std::thread thread_;
};

}  // namespace etloop
