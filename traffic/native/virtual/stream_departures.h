// The sending queue pairs of the flow level, ordered by the end of their first message. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace etloop {

// An indexed heap.
class StreamDepartures {
 public:
  Nanos next() const { return heap_.empty() ? kNever : heap_.front().at_ns; }
  uint32_t first() const { return heap_.front().stream; }
  void set(uint32_t stream, Nanos at_ns) {
    if (stream >= place_.size()) place_.resize(stream + 1, kNone);
    if (place_[stream] == kNone) {
      place_[stream] = static_cast<uint32_t>(heap_.size());
      heap_.push_back({at_ns, stream});
      rise(heap_.size() - 1);
      return;
    }
    const size_t at = place_[stream];
    const Nanos before_ns = std::exchange(heap_[at].at_ns, at_ns);
    if (at_ns < before_ns) rise(at);
    else sink(at);
  }
  void remove(uint32_t stream) {
    if (stream >= place_.size() || place_[stream] == kNone) return;
    const size_t at = place_[stream];
    const Item last = heap_.back();
    heap_.pop_back();
    place_[stream] = kNone;
    if (at == heap_.size()) return;
    put(at, last);
    rise(at);
    sink(place_[last.stream]);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Item {
    Nanos at_ns;
    uint32_t stream;
  };
  static bool before(const Item& a, const Item& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.stream < b.stream;
  }
  void put(size_t at, const Item& item) {
    heap_[at] = item;
    place_[item.stream] = static_cast<uint32_t>(at);
  }
  void rise(size_t at) {
    const Item item = heap_[at];
    for (; at > 0 && before(item, heap_[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, item);
  }
  void sink(size_t at) {
    const Item item = heap_[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], item)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, item);
  }
  std::vector<Item> heap_;
  std::vector<uint32_t> place_;
};

}  // namespace etloop
