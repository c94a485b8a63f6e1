// Events leave the wheel by time, however far apart they are, and those of one time as they came.
#include "base/time_wheel.h"

#include <algorithm>
#include <random>
#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

struct Happening {
  Nanos at_ns = 0;
  uint64_t order = 0;
  uint32_t number = 0;
};

using Wheel = TimeWheel<Happening>;

// What is left, by time and arrival; the slow way.
class Reference {
 public:
  void push(const Happening& happening) { left_.push_back(happening); }
  bool empty() const { return left_.empty(); }
  const Happening& front() const { return *least(); }
  Happening pop() {
    const auto at = left_.begin() + (least() - left_.begin());
    const Happening first = *at;
    left_.erase(at);
    return first;
  }

 private:
  // Of several alike that which came first, as they are kept in that order.
  std::vector<Happening>::const_iterator least() const {
    return std::min_element(left_.begin(), left_.end(), [](const Happening& a, const Happening& b) {
      return a.at_ns < b.at_ns;
    });
  }
  std::vector<Happening> left_;
};

// Most events are near the last that left, many of one time; some are as far ahead as the wheel reaches, or further, or past.
Nanos some_time(std::mt19937& chance, Nanos now_ns, Nanos spacing_ns) {
  const auto reach_ns = static_cast<Nanos>(Wheel::kSlots) * spacing_ns;
  switch (chance() % 16) {
    case 0: return now_ns + reach_ns - 2 + static_cast<Nanos>(chance() % 4);
    case 1: return now_ns + reach_ns * static_cast<Nanos>(1 + chance() % 3) + static_cast<Nanos>(chance() % 100);
    case 2: return std::max<Nanos>(0, now_ns - static_cast<Nanos>(chance() % 20));
    case 3: return now_ns + static_cast<Nanos>(chance() % static_cast<uint64_t>(reach_ns));
    default: return now_ns + static_cast<Nanos>(chance() % 12);
  }
}

void same_order_as_a_search(uint32_t seed, Nanos spacing_ns, Nanos begin_ns) {
  std::mt19937 chance(seed);
  Wheel wheel(spacing_ns);
  Reference reference;
  Nanos now_ns = begin_ns;
  for (uint32_t number = 0; number < 3000; ++number) {
    // Sometimes it fills, sometimes it empties.
    const unsigned pushes_of_ten = number / 500 % 2 == 0 ? 6 : 4;
    if (chance() % 10 < pushes_of_ten || reference.empty()) {
      const Happening happening{some_time(chance, now_ns, spacing_ns), chance() % 5, number};
      wheel.push(happening);
      reference.push(happening);
    } else {
      const Happening popped = wheel.pop();
      CHECK_EQ(popped.number, reference.front().number);
      CHECK_EQ(Wheel::owner_of(popped), Wheel::owner_of(reference.front()));
      now_ns = std::max(now_ns, reference.pop().at_ns);
    }
    CHECK_EQ(wheel.empty(), reference.empty());
    CHECK_EQ(wheel.next_ns(), reference.empty() ? kNever : reference.front().at_ns);
    if (!reference.empty()) CHECK_EQ(wheel.front().number, reference.front().number);
  }
  while (!reference.empty()) CHECK_EQ(wheel.pop().number, reference.pop().number);
  CHECK(wheel.empty());
  CHECK_EQ(wheel.next_ns(), kNever);
}

void after_a_long_rest_it_goes_on() {
  Wheel wheel(1);
  wheel.push({5, 0, 1});
  CHECK_EQ(wheel.pop().number, 1u);
  constexpr Nanos kLater = 3'600'000'000'000;
  wheel.push({kLater, 0, 2});
  wheel.push({kLater + 1, 0, 3});
  CHECK_EQ(wheel.pop().number, 2u);
  wheel.push({kLater, 0, 4});  // into the slots again, before what went beside them
  CHECK_EQ(wheel.pop().number, 4u);
  CHECK_EQ(wheel.pop().number, 3u);
  CHECK(wheel.empty());
}

}  // namespace

int main() {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const Nanos spacing_ns : {Nanos{1}, Nanos{6}, Nanos{64}}) {
      same_order_as_a_search(seed, spacing_ns, 0);
      same_order_as_a_search(seed, spacing_ns, 1'000'000'000'000'007);
    }
  }
  after_a_long_rest_it_goes_on();
  return etloop::test::failures();
}
