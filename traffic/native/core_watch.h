// Whether a core is to be had: a thread above all others there that asks for it five thousand times a second and notes when it
// came late. What kept it, kept everything else on that core: a hypervisor, interrupts, work inside the kernel that is not
// interrupted (on kernels without preemption that of any process).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "port.h"

namespace etloop {

struct Withheld {
  Nanos from_ns;
  Nanos until_ns;
};

class CoreWatch {
 public:
  static constexpr Nanos kEveryNs = 200'000;
  // 1 % of the 10 ms over which rates are judged. What is shorter than both together may go unseen; asking more often would
  // itself take the core, for a wake-up costs a virtual machine some 20 us.
  static constexpr Nanos kLateNs = 100'000;

  // Needs the right to be real-time, above `priority`. On failure returns nullptr and says why in `error`.
  static std::unique_ptr<CoreWatch> start(int32_t processor, int32_t priority, std::string& error);
  ~CoreWatch();
  CoreWatch(const CoreWatch&) = delete;
  CoreWatch& operator=(const CoreWatch&) = delete;

  // Ends it; ascending, from when the core was asked for.
  const std::vector<Withheld>& stop();

 private:
  CoreWatch() = default;
  void run();

  std::atomic<bool> over_{false};
  std::vector<Withheld> withheld_;
  std::thread thread_;
};

}  // namespace etloop
