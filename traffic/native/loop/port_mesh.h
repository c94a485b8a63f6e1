// What loops of one agent hand each other: from one port's loop to another's, in order, without a lock. Bounded rings of one
// writer and one reader each; what does not fit waits with the writer, who hands it on later, or is refused.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace etloop {

template <typename Message, size_t kRingSlots>
class PortRing {
 public:
  static constexpr size_t kSlots = kRingSlots;
  static_assert((kSlots & (kSlots - 1)) == 0, "positions wrap by a mask");

  // For the writer: `fill` writes the next slot. False: full.
  template <typename Fill>
  bool push_with(Fill&& fill) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kSlots) return false;
    fill(slots_[tail & (kSlots - 1)]);
    // In one order with a loop's word that it sleeps and its look at `empty`: writer or reader sees what the other did.
    tail_.store(tail + 1, std::memory_order_seq_cst);
    return true;
  }
  bool push(const Message& message) {
    return push_with([&](Message& slot) { slot = message; });
  }
  // For the reader: `sink` reads the oldest message, which stays where it is. False: empty.
  template <typename Sink>
  bool pop_into(Sink&& sink) {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    sink(std::as_const(slots_[head & (kSlots - 1)]));
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst); }

 private:
  // On lines of their own: writer and reader would otherwise take the line from each other at every message.
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) std::array<Message, kSlots> slots_{};
};

// Rings between ports that were joined. Only the loop of port p calls post, offer and flush as `from` = p, take as `to` = p.
template <typename Message, size_t kRingSlots = 1024>
class PortMesh {
 public:
  using Ring = PortRing<Message, kRingSlots>;

  // `handed` is called after something was put into a ring to a port.
  PortMesh(size_t ports, std::function<void(size_t)> handed) : outbound_(ports), inbound_(ports), handed_(std::move(handed)) {}

  // Before the loops begin. A second time nothing happens.
  void join(size_t from, size_t to) {
    if (find(from, to) != nullptr) return;
    links_.push_back(std::make_unique<Link>());
    links_.back()->to = to;
    outbound_[from].push_back(links_.back().get());
    inbound_[to].push_back(links_.back().get());
  }

  void post(size_t from, size_t to, const Message& message) {
    Link* const link = find(from, to);
    assert(link != nullptr);
    if (!link->waiting.empty() || !link->ring.push(message)) link->waiting.push_back(message);
    handed_(to);
  }
  // False: there is no room now, and nothing was handed over.
  template <typename Fill>
  bool offer(size_t from, size_t to, Fill&& fill) {
    Link* const link = find(from, to);
    assert(link != nullptr && link->waiting.empty());
    if (!link->ring.push_with(std::forward<Fill>(fill))) return false;
    handed_(to);
    return true;
  }
  // True: nothing of this port waits for room any more.
  bool flush(size_t from) {
    bool all = true;
    for (Link* link : outbound_[from]) {
      if (link->waiting.empty()) continue;
      while (!link->waiting.empty() && link->ring.push(link->waiting.front())) link->waiting.pop_front();
      all = all && link->waiting.empty();
      handed_(link->to);
    }
    return all;
  }
  // Hands what came to `sink`, at most `budget` a source. True: something came.
  template <typename Sink>
  bool take(size_t to, size_t budget, Sink&& sink) {
    bool any = false;
    for (Link* link : inbound_[to]) {
      for (size_t count = 0; count < budget && link->ring.pop_into(sink); ++count) any = true;
    }
    return any;
  }
  // Nothing has come that was not taken.
  bool empty(size_t to) const {
    const std::vector<Link*>& links = inbound_[to];
    return std::all_of(links.begin(), links.end(), [](const Link* link) { return link->ring.empty(); });
  }

 private:
  struct Link {
    size_t to;
    Ring ring;
    std::deque<Message> waiting;  // the writer's; no longer than the slots of all lanes allow
  };
  Link* find(size_t from, size_t to) const {
    const std::vector<Link*>& links = outbound_[from];
    const auto link = std::find_if(links.begin(), links.end(), [to](const Link* each) { return each->to == to; });
    return link == links.end() ? nullptr : *link;
  }

  std::vector<std::vector<Link*>> outbound_;  // by port
  std::vector<std::vector<Link*>> inbound_;
  std::vector<std::unique_ptr<Link>> links_;
  std::function<void(size_t)> handed_;
};

}  // namespace etloop
