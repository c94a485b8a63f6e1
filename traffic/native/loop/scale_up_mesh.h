// Messages between ranks of one host whose ports differ: from one port's loop to another's, in order, without a lock.
// Bounded rings of one writer and one reader each; what does not fit waits with the writer, who hands it on later.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/scale_up.h"
#include "plan/plan.h"

namespace etloop {

class ScaleUpRing {
 public:
  static constexpr size_t kSlots = 1024;
  static_assert((kSlots & (kSlots - 1)) == 0, "positions wrap by a mask");

  // For the writer. False: full.
  bool push(const ScaleUpMessage& message);
  // For the reader. False: empty.
  bool pop(ScaleUpMessage& out);
  bool empty() const;

 private:
  // On lines of their own: writer and reader would otherwise take the line from each other at every message.
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) std::array<ScaleUpMessage, kSlots> slots_{};
};

// A ring for every two ports of an agent that a connection inside a host joins.
// Only the loop of port p calls post and flush as `from` = p, take and sleep as `to` = p.
class ScaleUpMesh {
 public:
  // `wake` ends the sleep of a port's loop; any thread may call it.
  ScaleUpMesh(const EnginePlan& plan, std::function<void(size_t)> wake);

  void post(size_t from, size_t to, const ScaleUpMessage& message);
  // True: nothing of this port waits for room any more.
  bool flush(size_t from);
  // Hands what came to `sink`, at most `budget` a source. True: something came.
  bool take(size_t to, size_t budget, const std::function<void(const ScaleUpMessage&)>& sink);
  // Calls `until_woken` unless something is there; whoever posts meanwhile wakes the sleeper.
  void sleep(size_t to, const std::function<void()>& until_woken);

 private:
  struct Link {
    size_t from;
    size_t to;
    ScaleUpRing ring;
    std::deque<ScaleUpMessage> waiting;  // the writer's; no longer than the slots of all lanes allow
  };
  void wake_if_asleep(size_t port);

  std::vector<std::vector<Link*>> outbound_;  // by port
  std::vector<std::vector<Link*>> inbound_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::atomic<bool>> sleeping_;
  std::function<void(size_t)> wake_;
};

}  // namespace etloop
