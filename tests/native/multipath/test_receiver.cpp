// What a receiver's answers report: every packet that came, whatever the order, and all before one that asked.
#include "multipath/receiver.h"

#include <iostream>
#include <random>
#include <set>
#include <vector>

#include "support/check.h"

namespace {

using namespace etloop;
using namespace etloop::multipath;

constexpr uint32_t kMtu = 1024;
constexpr uint32_t kBits = 64;

TransportSettings params(uint32_t sack_bytes) {
  TransportSettings made;
  made.kind = TransportKind::mrc;
  made.multipath.sack_bytes = sack_bytes;
  made.path_mtu_bytes = kMtu;
  return made;
}

// A receiver as an end uses it, and what its answers have reported so far.
struct Receiving {
  explicit Receiving(uint32_t sack_bytes) : made(params(sack_bytes)) {}

  // Returns whether it is to be answered. What came before it may be answered, too.
  bool take(uint32_t psn, bool asks = false) {
    const Cause cause{.psn = psn};
    receiver.place(cause, kMtu);
    const bool is_due = receiver.advance(asks) || receiver.answer_due_by_bytes();
    if (is_due) receiver.cause_answer(cause);
    for (; receiver.has_cause(); receiver.cause_answered()) note(receiver.arrivals(receiver.cause()));
    return is_due;
  }
  void note(const Arrivals& arrivals) {
    const auto end = static_cast<int32_t>((arrivals.cumulative_psn + 1) & wire::kPsnMask);
    for (int32_t psn = 0; psn < end; ++psn) reported.insert(psn);
    for (uint32_t bit = 0; bit < kBits; ++bit) {
      if ((arrivals.bitmap >> bit & 1) != 0) reported.insert(end - 1 + arrivals.bitmap_offset + static_cast<int32_t>(bit));
    }
  }

  TransportSettings made;
  FlowRecord counters{};
  Receiver receiver{made, counters};
  std::set<int32_t> reported;
};

void no_more_than_an_interval_goes_unreported() {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const int before = etloop::test::failures();
    std::mt19937_64 draw(seed);
    const uint32_t sack_bytes = 1024U << draw() % 6;
    Receiving all(sack_bytes);
    std::vector<uint32_t> waiting;
    std::set<int32_t> came;
    // Each of up to `most` packets that wait is the next to come.
    const size_t most = 1 + draw() % 400;
    for (uint32_t psn = 1; psn < 900 || !waiting.empty();) {
      while (psn < 900 && waiting.size() < most) waiting.push_back(psn++);
      const size_t next = draw() % waiting.size();
      const uint32_t taken = waiting[next];
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(next));
      came.insert(static_cast<int32_t>(taken));
      // Packet 0 is missing, so that nothing is reported by the cumulative number.
      const bool is_answered = all.take(taken, draw() % 50 == 0);
      for (const int32_t reported : all.reported) came.erase(reported);
      all.reported.clear();
      CHECK(is_answered ? came.empty() : came.size() < sack_bytes / kMtu);
    }
    if (etloop::test::failures() > before) std::cerr << "  seed " << seed << "\n";
  }
}

void who_asks_learns_of_what_it_overtook() {
  Receiving all(16 * kMtu);
  CHECK(!all.take(0));
  CHECK(all.take(3, true));
  CHECK(!all.take(2));
  CHECK(all.take(1));  // none is missing any more
  CHECK_EQ(all.reported.size(), 4U);
  CHECK(!all.take(4));
}

}  // namespace

int main() {
  no_more_than_an_interval_goes_unreported();
  who_asks_learns_of_what_it_overtook();
  return etloop::test::failures();
}
