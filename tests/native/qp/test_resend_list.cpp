// What is sent again: in order, its part that is under way counted, whatever arrives in between.
#include "qp/resend_list.h"

#include <random>
#include <set>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint32_t kBegin = wire::kPsnMask - 9;  // numbers begin anew after ten

uint32_t at(uint32_t offset) { return (kBegin + offset) & wire::kPsnMask; }

void holes_go_in_order_and_count_as_under_way_until_they_arrive() {
  ResendList list;
  CHECK(list.empty());
  for (const uint32_t offset : {0U, 1U, 5U, 12U, 13U, 14U}) list.add(at(offset), offset == 13);
  CHECK_EQ(list.front().psn, at(0));
  CHECK_EQ(list.front().count, 2U);
  list.sent(2);
  CHECK_EQ(list.under_way(), 2U);
  CHECK_EQ(list.front().psn, at(5));
  list.sent(1);
  CHECK_EQ(list.front().count, 1U);  // a message begins behind it
  CHECK_EQ(list.under_way(), 3U);
  list.arrived_before(at(1));
  CHECK_EQ(list.under_way(), 2U);
  list.arrived_before(at(12));
  CHECK_EQ(list.under_way(), 0U);
  list.sent(1);
  list.sent(1);
  CHECK_EQ(list.front().psn, at(14));
  CHECK_EQ(list.under_way(), 2U);
  list.arrived_before(at(15));
  CHECK(list.empty());
  CHECK_EQ(list.under_way(), 0U);
}

void a_list_that_is_cleared_has_nothing_under_way() {
  ResendList list;
  list.add_range(at(3), 4);
  list.sent(2);
  list.clear();
  CHECK(list.empty());
  CHECK_EQ(list.under_way(), 0U);
}

// Beside a model that knows every packet by itself.
void any_order_of_sending_and_arriving_counts_right() {
  std::mt19937 random(11);
  for (int round = 0; round < 2'000; ++round) {
    ResendList list;
    std::set<uint32_t> missing;  // by offset
    std::set<uint32_t> repeated;
    for (uint32_t offset = 0; offset < 40; ++offset) {
      if (random() % 3 != 0) continue;
      list.add(at(offset), random() % 4 == 0);
      missing.insert(offset);
    }
    uint32_t arrived = 0;
    while (!list.empty()) {
      CHECK_EQ(list.front().psn, at(*missing.begin()));
      if (random() % 2 == 0) {
        const uint32_t count = 1 + static_cast<uint32_t>(random() % list.front().count);
        for (uint32_t i = 0; i < count; ++i) {
          repeated.insert(*missing.begin());
          missing.erase(missing.begin());
        }
        list.sent(count);
      } else {
        arrived += static_cast<uint32_t>(random() % 6);
        missing.erase(missing.begin(), missing.lower_bound(arrived));
        repeated.erase(repeated.begin(), repeated.lower_bound(arrived));
        list.arrived_before(at(arrived));
      }
      CHECK_EQ(list.under_way(), static_cast<uint32_t>(repeated.size()));
      CHECK_EQ(list.empty(), missing.empty());
    }
  }
}

}  // namespace

int main() {
  holes_go_in_order_and_count_as_under_way_until_they_arrive();
  a_list_that_is_cleared_has_nothing_under_way();
  any_order_of_sending_and_arriving_counts_right();
  return test::failures();
}
