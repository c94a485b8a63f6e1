// Events leave the lanes in the order of a heap, whatever their sources do; and the tree knows who is first and second.
#include "time_lanes.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "earliest.h"

using namespace etloop;

namespace {

struct Happening {
  Nanos at_ns = 0;
  uint64_t order = 0;
  uint32_t number = 0;
};

// Most times of a source rise, many are equal, and one in eight falls back.
void same_order_as_a_heap(uint32_t seed, size_t sources) {
  std::mt19937 chance(seed);
  TimeHeap<Happening> heap;
  TimeLanes<Happening> lanes(sources);
  std::vector<Nanos> last_ns(sources, 0);
  for (uint32_t number = 0; number < 4000; ++number) {
    if (chance() % 5 < 3 || heap.empty()) {
      const size_t source = chance() % sources;
      const Nanos step_ns = chance() % 4;
      const bool falls_back = chance() % 8 == 0;
      const Nanos at_ns = falls_back ? last_ns[source] / 2 : last_ns[source] + step_ns;
      last_ns[source] = std::max(last_ns[source], at_ns);
      heap.push({at_ns, 0, number});
      lanes.push(source, {at_ns, 0, number});
    } else {
      CHECK_EQ(lanes.pop().number, heap.pop().number);
    }
    if (chance() % 3 != 0) continue;  // a source that was emptied has its next event before anybody looks
    CHECK_EQ(lanes.next_ns(), heap.next_ns());
    CHECK_EQ(lanes.empty(), heap.empty());
    if (!heap.empty()) CHECK_EQ(lanes.front().number, heap.front().number);
  }
  while (!heap.empty()) CHECK_EQ(lanes.pop().number, heap.pop().number);
  CHECK(lanes.empty());
  CHECK_EQ(lanes.next_ns(), kNever);
}

void first_and_second_are_those_of_a_search(uint32_t seed, size_t parts) {
  std::mt19937 chance(seed);
  Earliest earliest(parts);
  std::vector<Nanos> due_ns(parts, kNever);
  for (int turn = 0; turn < 2000; ++turn) {
    const size_t part = chance() % parts;
    due_ns[part] = chance() % 4 == 0 ? kNever : static_cast<Nanos>(chance() % 100);
    if (due_ns[part] == kNever) {
      earliest.clear(part);
    } else {
      earliest.set(part, due_ns[part]);
    }
    const auto least = std::min_element(due_ns.begin(), due_ns.end());
    CHECK_EQ(earliest.next_ns(), *least);
    if (*least == kNever) continue;
    const auto first = static_cast<size_t>(least - due_ns.begin());
    CHECK_EQ(earliest.next(), first);
    std::vector<Nanos> others = due_ns;
    others[first] = kNever;
    const auto next = std::min_element(others.begin(), others.end());
    CHECK_EQ(earliest.second(), *next == kNever ? first : static_cast<size_t>(next - others.begin()));
  }
}

}  // namespace

int main() {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{7}, size_t{64}}) {
      same_order_as_a_heap(seed, count);
      first_and_second_are_those_of_a_search(seed, count);
    }
  }
  return etloop::test::failures();
}
