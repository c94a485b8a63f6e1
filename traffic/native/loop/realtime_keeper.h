// Brings a real-time thread back that became an ordinary one for a moment. An ordinary thread is left waiting by others until
// the kernel's tick, which is 1 to 4 ms later; a timer of the keeper's, which is real-time, is there sooner. It runs only when
// the kept thread was not back by itself.
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
  // How long the kept thread may be an ordinary one.
  static constexpr Nanos kLongestNs = RealtimeShare::kOrdinaryNs + 5'000;

  // Of a thread of this process at that place, which is real-time.
  static Result<std::unique_ptr<RealtimeKeeper>> make(const ThreadPlace& place);
  ~RealtimeKeeper();
  RealtimeKeeper(const RealtimeKeeper&) = delete;
  RealtimeKeeper& operator=(const RealtimeKeeper&) = delete;

  // By the kept thread, of itself.
  void become_ordinary();
  void become_realtime();

 private:
  RealtimeKeeper(int32_t priority, Descriptor timer, Descriptor end)
      : priority_(priority), timer_(std::move(timer)), end_(std::move(end)) {}
  void run();
  void arm(Nanos after_ns);  // 0: not at all

  int32_t priority_;
  Descriptor timer_;
  Descriptor end_;
  std::atomic<pid_t> kept_{0};
  std::thread thread_;
};

}  // namespace etloop
