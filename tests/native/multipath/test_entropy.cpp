// Entropy values: the table of their states, what queue pairs to one peer share of them, and which of them packets take.
#include "multipath/entropy.h"

#include <map>
#include <set>

#include "support/check.h"

namespace {

using namespace etloop;
using multipath::EntropyEvent;
using multipath::EntropyState;
using multipath::EntropyValues;
using multipath::PathStates;

constexpr uint16_t kFirst = 50'000;
constexpr EntropyChoice kChoices[] = {EntropyChoice::rotation, EntropyChoice::oblivious, EntropyChoice::recycled,
                                      EntropyChoice::penalties};

MultipathSettings params(EntropyChoice choice, uint32_t values, uint32_t least_active = 1) {
  MultipathSettings made;
  made.choice = choice;
  made.entropy_values = values;
  made.least_active = least_active;
  return made;
}

// A queue pair's values, and the paths that it has to itself.
struct OwnValues {
  OwnValues(const MultipathSettings& params, uint16_t first_port, uint32_t seed)
      : paths(params, first_port), values(params.choice, paths, seed) {}
  uint16_t next() { return values.next(); }
  uint16_t next_but(uint16_t failed) { return values.next_but(failed); }
  void apply(uint16_t value, EntropyEvent event) { paths.apply(value, event); }
  void arrived_clean(uint16_t value, uint32_t packets = 1) { values.arrived_clean(value, packets); }
  bool next_to_probe(uint16_t& value) { return paths.next_to_probe(value, ++now, 1); }
  EntropyState state_of(uint16_t value) const { return paths.state_of(value); }
  size_t active() const { return paths.active(); }

  PathStates paths;
  EntropyValues values;
  Nanos now = 0;
};

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
  OwnValues values(params(EntropyChoice::rotation, 5), kFirst, 0);
  std::map<uint16_t, int> taken;
  for (int i = 0; i < 50; ++i) ++taken[values.next()];
  CHECK_EQ(taken.size(), size_t{5});
  for (const auto& [value, times] : taken) CHECK_EQ(times, 10);
}

void a_marked_value_misses_one_turn() {
  OwnValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  values.apply(kFirst + 1, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst);
  CHECK_EQ(values.next(), kFirst + 2);
  CHECK_EQ(values.next(), kFirst + 3);
  CHECK_EQ(values.next(), kFirst);
  CHECK_EQ(values.next(), kFirst + 1);
}

void one_value_at_most_is_forgiven_for_a_packet() {
  OwnValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  values.apply(kFirst, EntropyEvent::marked);
  values.apply(kFirst + 1, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 2);
  CHECK(values.state_of(kFirst) == EntropyState::good);
  CHECK(values.state_of(kFirst + 1) == EntropyState::skip);
}

void where_all_are_to_be_skipped_a_packet_still_leaves() {
  for (const EntropyChoice choice : kChoices) {
    OwnValues values(params(choice, 3), kFirst, 7);
    for (uint16_t i = 0; i < 3; ++i) {
      for (int times = 0; times < 20; ++times) values.apply(static_cast<uint16_t>(kFirst + i), EntropyEvent::marked);
    }
    const uint16_t value = values.next();
    CHECK(value >= kFirst && value < kFirst + 3);
  }
}

void no_more_are_withdrawn_than_leave_enough() {
  OwnValues values(params(EntropyChoice::rotation, 6, 4), kFirst, 0);
  for (uint16_t i = 0; i < 6; ++i) values.apply(static_cast<uint16_t>(kFirst + i), EntropyEvent::withdrawn);
  CHECK_EQ(values.active(), size_t{4});
  std::set<uint16_t> taken;
  for (int i = 0; i < 60; ++i) taken.insert(values.next());
  CHECK_EQ(taken.size(), size_t{4});
}

void a_withdrawn_value_comes_back_by_a_probe() {
  for (const EntropyChoice choice : kChoices) {
    OwnValues values(params(choice, 4), kFirst, 3);
    values.apply(kFirst + 2, EntropyEvent::withdrawn);
    for (int i = 0; i < 40; ++i) CHECK(values.next() != kFirst + 2);
    uint16_t probed = 0;
    CHECK(values.next_to_probe(probed));
    CHECK_EQ(probed, kFirst + 2);
    values.apply(probed, EntropyEvent::probe_answered);
    CHECK(!values.next_to_probe(probed));
    std::set<uint16_t> taken;
    for (int i = 0; i < 400; ++i) taken.insert(values.next());
    CHECK_EQ(taken.size(), size_t{4});
  }
}

void recycling_takes_what_arrived_unmarked_first() {
  OwnValues values(params(EntropyChoice::recycled, 64), kFirst, 11);
  values.arrived_clean(kFirst + 9);
  values.arrived_clean(kFirst + 3);
  values.apply(kFirst + 3, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 9);
  CHECK(values.state_of(kFirst + 3) == EntropyState::skip);
}

void recycling_takes_a_value_again_once_it_arrives_unmarked() {
  OwnValues values(params(EntropyChoice::recycled, 64), kFirst, 11);
  values.apply(kFirst + 3, EntropyEvent::marked);
  values.arrived_clean(kFirst + 3);
  CHECK(values.state_of(kFirst + 3) == EntropyState::good);
  CHECK_EQ(values.next(), kFirst + 3);
}

void recycling_takes_a_value_for_every_packet_of_its_answer() {
  OwnValues values(params(EntropyChoice::recycled, 64), kFirst, 11);
  values.arrived_clean(kFirst + 9, 3);
  values.arrived_clean(kFirst + 3);
  values.arrived_clean(kFirst + 5, 2);
  for (const uint32_t expected : {9U, 3U, 5U, 9U, 5U, 9U}) CHECK_EQ(values.next(), kFirst + expected);  // in turn
}

void each_mark_costs_another_turn_with_penalties() {
  OwnValues values(params(EntropyChoice::penalties, 2), kFirst, 0);
  values.apply(kFirst, EntropyEvent::marked);
  values.apply(kFirst, EntropyEvent::marked);
  CHECK_EQ(values.next(), kFirst + 1);
  CHECK_EQ(values.next(), kFirst + 1);
  CHECK_EQ(values.next(), kFirst);
}

void values_of_others_are_ignored() {
  OwnValues values(params(EntropyChoice::rotation, 4), kFirst, 0);
  for (const uint32_t other : {0U, 4971U, kFirst - 1U, kFirst + 4U, 65'535U}) {
    values.apply(static_cast<uint16_t>(other), EntropyEvent::withdrawn);
    values.arrived_clean(static_cast<uint16_t>(other));
  }
  CHECK_EQ(values.active(), size_t{4});
}

void ports_go_round_at_the_end_of_the_range() {
  OwnValues values(params(EntropyChoice::rotation, 4), 65'534, 0);
  std::set<uint16_t> taken;
  for (int i = 0; i < 4; ++i) taken.insert(values.next());
  CHECK(taken == (std::set<uint16_t>{65'534, 65'535, 49'152, 49'153}));
}

void a_repetition_takes_another_value() {
  OwnValues values(params(EntropyChoice::rotation, 2), kFirst, 0);
  for (int i = 0; i < 10; ++i) CHECK(values.next_but(kFirst) != kFirst);
}

void what_one_queue_pair_loses_none_to_that_peer_takes() {
  for (const EntropyChoice choice : kChoices) {
    PathStates paths(params(choice, 4), kFirst);
    EntropyValues first(choice, paths, 0);
    EntropyValues second(choice, paths, 2);
    paths.lost(kFirst + 1);
    paths.lost(kFirst + 1);
    for (int i = 0; i < 40; ++i) {
      CHECK(first.next() != kFirst + 1);
      CHECK(second.next() != kFirst + 1);
    }
    paths.apply(kFirst + 1, EntropyEvent::probe_answered);
    std::set<uint16_t> taken;
    for (int i = 0; i < 400; ++i) taken.insert(second.next());
    CHECK_EQ(taken.size(), size_t{4});
  }
}

void queue_pairs_begin_at_values_of_their_own() {
  PathStates paths(params(EntropyChoice::rotation, 8), kFirst);
  std::set<uint16_t> taken;
  for (uint32_t seed = 0; seed < 8; ++seed) taken.insert(EntropyValues(EntropyChoice::rotation, paths, seed).next());
  CHECK_EQ(taken.size(), size_t{8});
}

void a_withdrawn_value_is_probed_once_for_all_in_an_interval() {
  PathStates paths(params(EntropyChoice::rotation, 8), kFirst);
  for (const uint16_t value : {2, 5}) paths.apply(static_cast<uint16_t>(kFirst + value), EntropyEvent::withdrawn);
  uint16_t probed = 0;
  CHECK(paths.next_to_probe(probed, 1'000, 100));
  CHECK_EQ(probed, kFirst + 2);
  CHECK(!paths.next_to_probe(probed, 1'099, 100));
  CHECK(paths.next_to_probe(probed, 1'100, 100));
  CHECK_EQ(probed, kFirst + 5);
}

void what_must_not_be_lost_takes_a_proven_path() {
  PathStates paths(params(EntropyChoice::rotation, 64), kFirst);
  EntropyValues values(EntropyChoice::rotation, paths, 7);
  CHECK_EQ(values.next_proven(), kFirst + 7);  // nothing is proven: the next in turn
  paths.arrived(kFirst + 20);
  paths.arrived(kFirst + 40);
  std::set<uint16_t> taken;
  for (int i = 0; i < 8; ++i) taken.insert(values.next_proven());
  CHECK(taken == (std::set<uint16_t>{kFirst + 20, kFirst + 40}));
  paths.apply(kFirst + 20, EntropyEvent::withdrawn);
  for (int i = 0; i < 8; ++i) CHECK_EQ(values.next_proven(), kFirst + 40);
  for (uint16_t i = 0; i < 8; ++i) paths.arrived(static_cast<uint16_t>(kFirst + 50 + i));
  for (int i = 0; i < 16; ++i) CHECK(values.next_proven() >= kFirst + 50);
}

void the_lowest_bits_are_the_plane_and_a_plane_that_is_down_is_left() {
  constexpr uint32_t kPlanes = 4;
  for (const EntropyChoice choice : kChoices) {
    PathStates paths(params(choice, 32), kFirst, kPlanes);
    EntropyValues values(choice, paths, 1);
    std::map<uint32_t, int> taken;
    for (int i = 0; i < 400; ++i) ++taken[values.next() % kPlanes];
    CHECK_EQ(taken.size(), size_t{kPlanes});
    paths.set_planes(0b1101);
    for (int i = 0; i < 100; ++i) CHECK(values.next() % kPlanes != 1);
    for (int i = 0; i < 100; ++i) CHECK_EQ(values.next(0b0110) % kPlanes, uint32_t{2});  // where cards have room
    paths.arrived(kFirst + 1);
    CHECK_EQ((kFirst + 1U) % kPlanes, 1U);
    CHECK(values.next_proven() % kPlanes != 1);
    paths.set_planes(0b1111);
    std::set<uint32_t> again;
    for (int i = 0; i < 100; ++i) again.insert(values.next() % kPlanes);
    CHECK_EQ(again.size(), size_t{kPlanes});
    paths.set_planes(0);  // something has to leave
    CHECK(values.next() >= kFirst);
  }
}

void a_plane_that_only_loses_is_left_until_a_probe_by_it_is_answered() {
  constexpr uint32_t kPlanes = 4;
  PathStates paths(params(EntropyChoice::rotation, 64), kFirst, kPlanes);
  EntropyValues values(EntropyChoice::rotation, paths, 1);
  const auto on_plane = [](uint32_t plane, uint32_t k) { return static_cast<uint16_t>(kFirst + plane + k * kPlanes); };
  // Sixteen losses in a row by as many paths: fewer withdraw no value, and one arrival between them clears the plane.
  for (uint32_t k = 0; k < 15; ++k) paths.lost(on_plane(1, k));
  paths.arrived(on_plane(1, 15));
  for (uint32_t k = 0; k < 15; ++k) paths.lost(on_plane(2, k));
  CHECK_EQ(paths.suspected(), 0U);
  paths.lost(on_plane(2, 15));
  CHECK_EQ(paths.suspected(), 0b0100U);
  CHECK_EQ(paths.state_of(on_plane(2, 3)), EntropyState::good);
  for (int i = 0; i < 200; ++i) CHECK(values.next() % kPlanes != 2);
  for (int i = 0; i < 20; ++i) CHECK(values.next(0b0100) % kPlanes != 2);  // asked for that plane alone: another
  uint16_t probed = 0;
  CHECK(paths.next_to_probe(probed, 1'000, 100));
  CHECK_EQ(probed % kPlanes, 2);
  paths.apply(probed, EntropyEvent::probe_answered);
  CHECK_EQ(paths.suspected(), 0U);
  std::set<uint32_t> taken;
  for (int i = 0; i < 100; ++i) taken.insert(values.next() % kPlanes);
  CHECK_EQ(taken.size(), size_t{kPlanes});
}

void planes_are_never_all_left() {
  constexpr uint32_t kPlanes = 2;
  PathStates paths(params(EntropyChoice::rotation, 64), kFirst, kPlanes);
  const auto lose_plane = [&](uint32_t plane) {
    for (uint32_t k = 0; k < 16; ++k) paths.lost(static_cast<uint16_t>(kFirst + plane + k * kPlanes));
  };
  lose_plane(0);
  CHECK_EQ(paths.suspected(), 0b01U);
  lose_plane(1);  // the network is cut, and no plane is better
  CHECK_EQ(paths.suspected(), 0U);
  paths.set_planes(0b10);
  lose_plane(1);
  CHECK_EQ(paths.suspected(), 0U);
  EntropyValues values(EntropyChoice::rotation, paths, 1);
  for (int i = 0; i < 20; ++i) CHECK_EQ(values.next() % kPlanes, 1);
}

void what_was_learnt_of_a_plane_that_was_down_is_forgotten_when_it_is_up() {
  constexpr uint32_t kPlanes = 2;
  PathStates paths(params(EntropyChoice::rotation, 64), kFirst, kPlanes);
  paths.set_planes(0b10);
  const uint16_t value = kFirst;
  paths.apply(value, EntropyEvent::withdrawn);
  const uint16_t other = kFirst + 1;
  paths.apply(other, EntropyEvent::withdrawn);
  paths.set_planes(0b11);
  CHECK_EQ(paths.state_of(value), EntropyState::good);
  CHECK_EQ(paths.state_of(other), EntropyState::assumed_bad);  // its plane was up all the time
}

MultipathSettings in_order() {
  MultipathSettings made = params(EntropyChoice::rotation, 1);
  made.uet.order = DeliveryOrder::sent;
  return made;
}

void what_keeps_order_stays_on_a_plane_until_it_fails_there() {
  constexpr uint32_t kPlanes = 4;
  PathStates paths(in_order(), kFirst, kPlanes);
  CHECK_EQ(paths.size(), kPlanes);  // a path on each
  EntropyValues values(EntropyChoice::rotation, paths, 1);
  const uint16_t first = values.next();
  for (int i = 0; i < 20; ++i) {
    CHECK_EQ(values.next(), first);
    // Answers go where the peer was heard, and data stay where they are.
    CHECK_EQ(values.next(1U << (i % kPlanes)) % kPlanes, i % kPlanes);
  }
  paths.apply(first, EntropyEvent::withdrawn);
  const uint16_t second = values.next();
  CHECK(second != first);
  paths.apply(first, EntropyEvent::probe_answered);
  for (int i = 0; i < 20; ++i) CHECK_EQ(values.next(), second);  // it does not go back
  paths.set_planes(0b1111 & ~(1U << second % kPlanes));
  CHECK(values.next() != second);
}

void when_the_last_path_in_order_fails_the_others_are_tried_again() {
  constexpr uint32_t kPlanes = 4;
  PathStates paths(in_order(), kFirst, kPlanes);
  EntropyValues values(EntropyChoice::rotation, paths, 1);
  std::set<uint16_t> tried;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kPlanes - 1; ++i) {
      tried.insert(values.next());
      paths.apply(values.next(), EntropyEvent::withdrawn);
    }
  }
  CHECK_EQ(tried.size(), size_t{kPlanes});
  PathStates alone(in_order(), kFirst, 1);
  alone.apply(kFirst, EntropyEvent::withdrawn);
  CHECK(alone.in_use(0));  // there is no other
}

void what_is_asked_in_vain_goes_round_all_planes_that_are_up() {
  constexpr uint32_t kPlanes = 4;
  PathStates paths(params(EntropyChoice::rotation, 64), kFirst, kPlanes);
  EntropyValues values(EntropyChoice::rotation, paths, 1);
  paths.set_planes(0b1011);
  for (uint32_t k = 0; k < 16; ++k) paths.lost(static_cast<uint16_t>(kFirst + 1 + k * kPlanes));
  CHECK_EQ(paths.suspected(), 0b0010U);
  std::map<uint32_t, int> asked;
  uint16_t value = kFirst;
  for (int i = 0; i < 30; ++i) {
    value = values.next_plane(value);
    ++asked[value % kPlanes];
  }
  CHECK(asked == (std::map<uint32_t, int>{{0, 10}, {1, 10}, {3, 10}}));  // also by one that lost
}

void a_repetition_takes_another_plane() {
  constexpr uint32_t kPlanes = 2;
  for (const EntropyChoice choice : kChoices) {
    PathStates paths(params(choice, 32), kFirst, kPlanes);
    EntropyValues values(choice, paths, 1);
    for (int i = 0; i < 40; ++i) {
      const uint16_t failed = values.next();
      CHECK(values.next_but(failed) % kPlanes != failed % kPlanes);
      CHECK_EQ(values.next_but(failed, 1U << failed % kPlanes) % kPlanes, failed % kPlanes);  // the other has no room
    }
  }
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
  recycling_takes_a_value_again_once_it_arrives_unmarked();
  recycling_takes_a_value_for_every_packet_of_its_answer();
  each_mark_costs_another_turn_with_penalties();
  values_of_others_are_ignored();
  ports_go_round_at_the_end_of_the_range();
  a_repetition_takes_another_value();
  what_one_queue_pair_loses_none_to_that_peer_takes();
  queue_pairs_begin_at_values_of_their_own();
  a_withdrawn_value_is_probed_once_for_all_in_an_interval();
  what_must_not_be_lost_takes_a_proven_path();
  the_lowest_bits_are_the_plane_and_a_plane_that_is_down_is_left();
  a_plane_that_only_loses_is_left_until_a_probe_by_it_is_answered();
  planes_are_never_all_left();
  what_was_learnt_of_a_plane_that_was_down_is_forgotten_when_it_is_up();
  what_keeps_order_stays_on_a_plane_until_it_fails_there();
  when_the_last_path_in_order_fails_the_others_are_tried_again();
  what_is_asked_in_vain_goes_round_all_planes_that_are_up();
  a_repetition_takes_another_plane();
  return etloop::test::failures();
}
