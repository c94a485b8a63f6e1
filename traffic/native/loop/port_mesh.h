// Lock-free messages between the loops of one agent, in order: bounded rings with one writer and one reader each. Messages that
// do not fit wait at the writer, or are rejected.
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

  // Writer: `fill` writes the next slot. False: full.
  template <typename Fill>
  bool push_with(Fill&& fill) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kSlots) return false;
    fill(slots_[tail & (kSlots - 1)]);
    // Sequentially consistent with the loop's sleep flag and its check of `empty`: the writer or the reader sees the other's
    // store.
    tail_.store(tail + 1, std::memory_order_seq_cst);
    return true;
  }
  bool push(const Message& message) {
    return push_with([&](Message& slot) { slot = message; });
  }
  // Reader: `sink` reads the oldest message in place. False: empty.
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
  // Separate cache lines: otherwise every message would bounce the line between writer and reader.
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) std::array<Message, kSlots> slots_{};
};

// Rings between joined ports. Only the loop of port p calls post, offer and flush with `from` = p, and take with `to` = p.
template <typename Message, size_t kRingSlots = 1024>
class PortMesh {
 public:
  using Ring = PortRing<Message, kRingSlots>;

  // `handed` is called after a message was put into a ring to a port.
  PortMesh(size_t ports, std::function<void(size_t)> handed) : outbound_(ports), inbound_(ports), handed_(std::move(handed)) {}

  // Connect two ports before the loops start; idempotent.
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
  // False: no room now; no message was handed over.
  template <typename Fill>
  bool offer(size_t from, size_t to, Fill&& fill) {
    Link* const link = find(from, to);
    assert(link != nullptr && link->waiting.empty());
    if (!link->ring.push_with(std::forward<Fill>(fill))) return false;
    handed_(to);
    return true;
  }
  // Retry waiting messages. True: none of this port waits any more.
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
  // Deliver arrived messages to `sink`, at most `budget` per source. True: there were some.
  template <typename Sink>
  bool take(size_t to, size_t budget, Sink&& sink) {
    bool any = false;
    for (Link* link : inbound_[to]) {
      for (size_t count = 0; count < budget && link->ring.pop_into(sink); ++count) any = true;
    }
    return any;
  }
  // Whether no message waits for the port.
  bool empty(size_t to) const {
    const std::vector<Link*>& links = inbound_[to];
    return std::all_of(links.begin(), links.end(), [](const Link* link) { return link->ring.empty(); });
  }

 private:
  struct Link {
    size_t to;
    Ring ring;
    std::deque<Message> waiting;  // owned by the writer; bounded by the slots of all lanes
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
