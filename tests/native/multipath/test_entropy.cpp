// Entropy values: the table of their states, and which of them packets take.
#include "multipath/entropy.h"

#include <map>
#include <set>

#include "support/check.h"

namespace {

using namespace etloop;
using multipath::EntropyEvent;
using multipath::EntropyState;
using multipath::EntropyValues;

constexpr uint16_t kFirst = 50'000;
constexpr EntropyChoice kChoices[] = {EntropyChoice::rotation, EntropyChoice::oblivious, EntropyChoice::recycled,
                                      EntropyChoice::penalties};

MultipathParams params(EntropyChoice choice, uint32_t values, uint32_t least_active = 1) {
  MultipathParams made;
  made.choice = choice;
  made.entropy_values = values;
  made.least_active = least_active;
  return made;
}

void states_change_as_the_table_says() {
  struct Row {
    EntropyState from;
    EntropyEvent event;
    EntropyState to;
  };
  constexpr Row kRows[] = {
      {EntropyState::good, EntropyEvent::marked, EntropyState::skip},
      {EntropyState::skip, EntropyEvent::marked, EntropyState::skip},
      {EntropyState::assumed_bad, EntropyEvent::marked, EntropyState::assumed_bad},
      {EntropyState::good, EntropyEvent::withdrawn, EntropyState::assumed_bad},
      {EntropyState::denied, EntropyEvent::withdrawn, EntropyState::denied},
      {EntropyState::skip, EntropyEvent::turn_missed, EntropyState::good},
      {EntropyState::assumed_bad, EntropyEvent::turn_missed, EntropyState::assumed_bad},
      {EntropyState::assumed_bad, EntropyEvent::probe_answered, EntropyState::good},
      {EntropyState::skip, EntropyEvent::probe_answered, EntropyState::skip},
      {EntropyState::assumed_bad, EntropyEvent::marked_by_probe, EntropyState::skip},
      {EntropyState::good, EntropyEvent::deny, EntropyState::denied},
      {EntropyState::denied, EntropyEvent::allow, EntropyState::good},
      {EntropyState::denied, EntropyEvent::probe_answered, EntropyState::denied},
  };
  for (const Row& row : kRows) CHECK(multipath::after(row.from, row.event) == row.to);
}

void rotation_takes_each_in_turn() {
  EntropyValues values(params(EntropyChoice::rotation, 5), kFirst, 0);
  std::map<uint16_t, int> taken;
  for (int i = 0; i < 50; ++i) ++taken[values.next()];
  CHECK_EQ(taken.size(), size_t{5});
  for (const auto& [value, times] : taken) CHECK_EQ(times, 10);
}

void a_marked_value_misses_one_turn() {
  EntropyValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  values.tell(kFirst + 1, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst);
  CHECK_EQ(values.next(), kFirst + 2);
  CHECK_EQ(values.next(), kFirst + 3);
  CHECK_EQ(values.next(), kFirst);
  CHECK_EQ(values.next(), kFirst + 1);
}

void one_value_at_most_is_forgiven_for_a_packet() {
  EntropyValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  values.tell(kFirst, EntropyEvent::marked);
  values.tell(kFirst + 1, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 2);
  CHECK(values.state_of(kFirst) == EntropyState::good);
  CHECK(values.state_of(kFirst + 1) == EntropyState::skip);
}

void where_all_are_to_be_skipped_a_packet_still_leaves() {
  for (const EntropyChoice choice : kChoices) {
    EntropyValues values(params(choice, 3), kFirst, 7);
    for (uint16_t i = 0; i < 3; ++i) {
      for (int times = 0; times < 20; ++times) values.tell(static_cast<uint16_t>(kFirst + i), EntropyEvent::marked);
    }
    const uint16_t value = values.next();
    CHECK(value >= kFirst && value < kFirst + 3);
  }
}

void no_more_are_withdrawn_than_leave_enough() {
  EntropyValues values(params(EntropyChoice::rotation, 6, 4), kFirst, 0);
  for (uint16_t i = 0; i < 6; ++i) values.tell(static_cast<uint16_t>(kFirst + i), EntropyEvent::withdrawn);
  CHECK_EQ(values.active(), size_t{4});
  std::set<uint16_t> taken;
  for (int i = 0; i < 60; ++i) taken.insert(values.next());
  CHECK_EQ(taken.size(), size_t{4});
}

void a_withdrawn_value_comes_back_by_a_probe() {
  for (const EntropyChoice choice : kChoices) {
    EntropyValues values(params(choice, 4), kFirst, 3);
    values.tell(kFirst + 2, EntropyEvent::withdrawn);
    for (int i = 0; i < 40; ++i) CHECK(values.next() != kFirst + 2);
    uint16_t probed = 0;
    CHECK(values.next_to_probe(probed));
    CHECK_EQ(probed, kFirst + 2);
    values.tell(probed, EntropyEvent::probe_answered);
    CHECK(!values.next_to_probe(probed));
    std::set<uint16_t> taken;
    for (int i = 0; i < 400; ++i) taken.insert(values.next());
    CHECK_EQ(taken.size(), size_t{4});
  }
}

void recycling_takes_what_arrived_unmarked_first() {
  EntropyValues values(params(EntropyChoice::recycled, 64), kFirst, 11);
  values.arrived_clean(kFirst + 9);
  values.arrived_clean(kFirst + 3);
  values.tell(kFirst + 3, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 9);
  CHECK(values.state_of(kFirst + 3) == EntropyState::skip);
}

void each_mark_costs_another_turn_with_penalties() {
  EntropyValues values(params(EntropyChoice::penalties, 2), kFirst, 0);
  values.tell(kFirst, EntropyEvent::marked);
  values.tell(kFirst, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 1);
  CHECK_EQ(values.next(), kFirst + 1);
  CHECK_EQ(values.next(), kFirst);
}

void values_of_others_are_ignored() {
  EntropyValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  for (const uint32_t other : {0U, 4971U, kFirst - 1U, kFirst + 4U, 65'535U}) {
    values.tell(static_cast<uint16_t>(other), EntropyEvent::withdrawn);
    values.arrived_clean(static_cast<uint16_t>(other));
  }
  CHECK_EQ(values.active(), size_t{4});
}

void ports_go_round_at_the_end_of_the_range() {
  EntropyValues values(params(EntropyChoice::rotation, 4), 65'534, 0);
  std::set<uint16_t> taken;
  for (int i = 0; i < 4; ++i) taken.insert(values.next());
  CHECK(taken == (std::set<uint16_t>{65'534, 65'535, 49'152, 49'153}));
}

void a_repetition_takes_another_value() {
  EntropyValues values(params(EntropyChoice::rotation, 2), kFirst, 0);
  for (int i = 0; i < 10; ++i) CHECK(values.next_but(kFirst) != kFirst);
}

}  // namespace

int main() {
  states_change_as_the_table_says();
  rotation_takes_each_in_turn();
  a_marked_value_misses_one_turn();
  one_value_at_most_is_forgiven_for_a_packet();
  where_all_are_to_be_skipped_a_packet_still_leaves();
  no_more_are_withdrawn_than_leave_enough();
  a_withdrawn_value_comes_back_by_a_probe();
  recycling_takes_what_arrived_unmarked_first();
  each_mark_costs_another_turn_with_penalties();
  values_of_others_are_ignored();
  ports_go_round_at_the_end_of_the_range();
  a_repetition_takes_another_value();
  return etloop::test::failures();
}
