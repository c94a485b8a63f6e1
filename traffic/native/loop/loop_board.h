// Shared by the loops of one agent: the rings between them, and the descriptors that wake them. Ranks of one host on different
// ports, and queues of one port that share addresses, communicate over these rings.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "core/port.h"
#include "core/queues/queue_links.h"
#include "core/scale_up.h"
#include "loop/port_mesh.h"
#include "plan/plan.h"

namespace etloop {

// A datagram passed on to the queue of its queue pair.
struct StrayDatagram {
  // A path MTU of 4096 with the longest headers of any transport; longer datagrams are foreign.
  static constexpr size_t kMostBytes = 4096 + 256;

  Datagram datagram;  // its `bytes` are those below
  Nanos arrived_ns = 0;
  size_t stored = 0;
  std::array<uint8_t, kMostBytes> bytes;
};

class LoopBoard {
 public:
  static Result<std::shared_ptr<LoopBoard>> make(const EnginePlan& plan);
  ~LoopBoard();
  LoopBoard(const LoopBoard&) = delete;
  LoopBoard& operator=(const LoopBoard&) = delete;

  PortMesh<ScaleUpMessage>& scale_up() { return scale_up_; }
  PortMesh<QueueMessage>& queues() { return queues_; }
  // Pass a datagram on. False: it is lost, as in a socket with a full buffer.
  bool pass(size_t from, size_t to, const Datagram& datagram, Nanos arrived_ns);
  // Deliver stray datagrams to `sink(datagram, arrival time)`. True: there were some.
  template <typename Sink>
  bool take_strays(size_t to, size_t budget, Sink&& sink) {
    return strays_.take(to, budget, [&](const StrayDatagram& stray) {
      Datagram datagram = stray.datagram;
      datagram.bytes = std::span(stray.bytes).first(stray.stored);
      sink(datagram, stray.arrived_ns);
    });
  }
  // Retry waiting messages. True: none of this port waits any more.
  bool flush(size_t from) {
    const bool scale_up = scale_up_.flush(from);
    return queues_.flush(from) && scale_up;
  }

  // Wake a port's loop; any thread may call it.
  void wake(size_t port) const;
  int wake_fd(size_t port) const { return wake_fds_[port]; }
  // Call `until_woken` unless messages wait for the port; a poster wakes the sleeper.
  void sleep(size_t port, const std::function<void()>& until_woken);

 private:
  static constexpr size_t kStraySlots = 128;

  explicit LoopBoard(const EnginePlan& plan);
  void wake_if_asleep(size_t port) {
    if (sleeping_[port].load(std::memory_order_seq_cst)) wake(port);
  }

  std::vector<int> wake_fds_;
  std::vector<std::atomic<bool>> sleeping_;
  PortMesh<ScaleUpMessage> scale_up_;
  PortMesh<QueueMessage> queues_;
  PortMesh<StrayDatagram, kStraySlots> strays_;
};

// The outgoing links of one loop.
class LoopLinks final : public ScaleUpLinks, public QueueLinks {
 public:
  // `board` outlives this.
  LoopLinks(LoopBoard& board, size_t port) : board_(board), port_(port) {}

  void post(int32_t port, const ScaleUpMessage& message) override {
    board_.scale_up().post(port_, static_cast<size_t>(port), message);
  }
  void post(int32_t port, const QueueMessage& message) override {
    board_.queues().post(port_, static_cast<size_t>(port), message);
  }
  void pass(int32_t port, const Datagram& datagram, Nanos arrived_ns) override {
    if (!board_.pass(port_, static_cast<size_t>(port), datagram, arrived_ns)) ++lost_strays_;
  }
  // Datagrams lost on their way to another queue.
  int64_t lost_strays() const { return lost_strays_; }

 private:
  LoopBoard& board_;
  size_t port_;
  int64_t lost_strays_ = 0;
};

}  // namespace etloop
