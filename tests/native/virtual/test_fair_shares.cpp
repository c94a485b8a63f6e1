// Max-min fair shares, against water filling from the definition, and as flows come and go.
#include "virtual/fair_shares.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/check.h"

using namespace etloop;

namespace {

struct TestFlow {
  std::vector<LinkShare> way;
};

// Water filling: raise all rates together, stop those whose link is full (Bertsekas and Gallager 6.5.2).
std::vector<double> filled(const std::vector<int64_t>& link_bps, const std::vector<TestFlow>& flows) {
  std::vector<double> rate(flows.size(), -1);
  std::vector<double> left(link_bps.begin(), link_bps.end());
  for (size_t done = 0; done < flows.size();) {
    double least = FairShares::kUnlimited;
    size_t tightest = 0;
    for (size_t l = 0; l < link_bps.size(); ++l) {
      double parts = 0;
      for (size_t f = 0; f < flows.size(); ++f) {
        for (const LinkShare& share : flows[f].way) {
          if (rate[f] < 0 && share.link == static_cast<int32_t>(l)) parts += share.part;
        }
      }
      if (parts > 0 && left[l] / parts < least) {
        least = left[l] / parts;
        tightest = l;
      }
    }
    for (size_t f = 0; f < flows.size(); ++f) {
      const bool here = std::any_of(flows[f].way.begin(), flows[f].way.end(),
                                    [&](const LinkShare& s) { return s.link == static_cast<int32_t>(tightest); });
      if (rate[f] >= 0 || !here) continue;
      rate[f] = least;
      ++done;
      for (const LinkShare& share : flows[f].way) {
        left[static_cast<size_t>(share.link)] -= least * static_cast<double>(share.part);
      }
    }
  }
  return rate;
}

uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

TestFlow random_flow(uint64_t& state, size_t links) {
  TestFlow flow;
  const size_t hops = 1 + next_random(state) % std::min<size_t>(5, links);
  while (flow.way.size() < hops) {
    const auto link = static_cast<int32_t>(next_random(state) % links);
    const bool twice = std::any_of(flow.way.begin(), flow.way.end(), [&](const LinkShare& s) { return s.link == link; });
    const float part = next_random(state) % 4 == 0 ? 0.5F : 1.0F;
    if (!twice) flow.way.push_back({link, part});
  }
  return flow;
}

void a_link_is_shared_alike() {
  FairShares shares(std::vector<int64_t>{100});
  const LinkShare way[] = {{0, 1.0F}};
  const uint32_t a = shares.begin(way);
  const uint32_t b = shares.begin(way);
  CHECK(shares.settle(0).size() == 2);
  CHECK(shares.rate_bps(a) == 50 && shares.rate_bps(b) == 50);
  shares.end(a);
  const auto changed = shares.settle(0);
  CHECK(changed.size() == 1 && changed[0] == b);
  CHECK(shares.rate_bps(b) == 100);
}

// What one flow cannot use elsewhere falls to the other: the textbook's example.
void what_one_cannot_use_falls_to_others() {
  FairShares shares(std::vector<int64_t>{100, 30});
  const LinkShare both[] = {{0, 1.0F}, {1, 1.0F}};
  const LinkShare first[] = {{0, 1.0F}};
  const uint32_t narrow = shares.begin(both);
  const uint32_t wide = shares.begin(first);
  shares.settle(0);
  CHECK(shares.rate_bps(narrow) == 30 && shares.rate_bps(wide) == 70);
}

void a_flow_over_no_link_is_unlimited() {
  FairShares shares(std::vector<int64_t>{100});
  CHECK(shares.rate_bps(shares.begin({})) == FairShares::kUnlimited);
}

void a_spread_flow_takes_its_parts() {
  FairShares shares(std::vector<int64_t>{100, 100});
  const LinkShare spread[] = {{0, 0.5F}, {1, 0.5F}};
  const LinkShare single[] = {{0, 1.0F}};
  const uint32_t a = shares.begin(spread);
  shares.settle(0);
  CHECK(shares.rate_bps(a) == 200);
  const uint32_t b = shares.begin(single);
  shares.settle(0);
  CHECK(std::abs(shares.rate_bps(a) - 200.0 / 3) < 1e-9 && std::abs(shares.rate_bps(b) - 200.0 / 3) < 1e-9);
}

// Random networks, flows beginning and ending one by one; after each, all rates are those of the definition.
void rates_are_those_of_the_definition(double tolerance, double allowed) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    uint64_t state = seed;
    const size_t links = 1 + next_random(state) % 12;
    std::vector<int64_t> link_bps;
    for (size_t l = 0; l < links; ++l) link_bps.push_back(static_cast<int64_t>(1'000'000 * (1 + next_random(state) % 100)));
    FairShares shares(link_bps);
    std::vector<TestFlow> live;
    std::vector<uint32_t> numbers;
    for (int step = 0; step < 60; ++step) {
      if (live.empty() || next_random(state) % 3 != 0) {
        live.push_back(random_flow(state, links));
        numbers.push_back(shares.begin(live.back().way));
      } else {
        const size_t gone = next_random(state) % live.size();
        shares.end(numbers[gone]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
        numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(gone));
      }
      shares.settle(tolerance);
      const std::vector<double> expected = filled(link_bps, live);
      for (size_t f = 0; f < live.size(); ++f) {
        CHECK(std::abs(shares.rate_bps(numbers[f]) - expected[f]) <= allowed * expected[f]);
      }
    }
    CHECK(shares.loosened() == 0);
  }
}

// The coming of one flow among many that are held up elsewhere is looked at by its neighbours alone.
void a_change_stays_among_its_neighbours() {
  constexpr size_t kPairs = 1000;
  FairShares shares(std::vector<int64_t>(2 * kPairs, 100));
  for (size_t p = 0; p < kPairs; ++p) {
    const LinkShare way[] = {{static_cast<int32_t>(2 * p), 1.0F}, {static_cast<int32_t>(2 * p + 1), 1.0F}};
    shares.begin(way);
  }
  shares.settle(1e-3);
  const int64_t before = shares.looks();
  const LinkShare way[] = {{0, 1.0F}, {3, 1.0F}};
  shares.begin(way);
  CHECK(shares.settle(1e-3).size() == 3);
  CHECK(shares.looks() - before <= 8);
}

// Of many flows none is worth a look when it begins or ends; together they are, before the rates are off by the tolerance.
void small_changes_add_up() {
  constexpr double kTolerance = 0.01;
  constexpr int kFlows = 2000;
  FairShares shares(std::vector<int64_t>{1'000'000});
  const LinkShare way[] = {{0, 1.0F}};
  std::vector<uint32_t> live;
  for (int f = 0; f < kFlows; ++f) live.push_back(shares.begin(way));
  shares.settle(kTolerance);
  const int64_t before = shares.looks();
  while (live.size() > kFlows / 2) {
    shares.end(live.back());
    live.pop_back();
    shares.settle(kTolerance);
    const double fair_bps = 1'000'000.0 / static_cast<double>(live.size());
    CHECK(std::abs(shares.rate_bps(live.front()) - fair_bps) <= 1.05 * kTolerance * fair_bps);
  }
  const int64_t looks = shares.looks() - before;
  CHECK(looks >= 40 && looks <= 100);  // ln 2 / ln 1.01 is 70
}

// A flow that takes the place of another changes nothing for anyone.
void a_flow_in_the_place_of_another_costs_no_look() {
  FairShares shares(std::vector<int64_t>{100, 100, 30});
  const LinkShare way[] = {{0, 1.0F}, {1, 1.0F}};
  const LinkShare narrow[] = {{0, 1.0F}, {2, 1.0F}};
  const uint32_t first = shares.begin(way);
  shares.begin(narrow);
  shares.settle(1e-3);
  const int64_t before = shares.looks();
  shares.end(first);
  const uint32_t second = shares.begin(way);
  shares.settle(1e-3);
  CHECK(shares.looks() == before);
  CHECK(shares.rate_bps(second) == 70);
}

// Flows of more hops than those whose numbers are free, and of fewer.
void numbers_are_used_again_by_flows_of_as_many_hops() {
  FairShares shares(std::vector<int64_t>{100, 100, 100});
  const LinkShare one[] = {{0, 1.0F}};
  const LinkShare three[] = {{0, 1.0F}, {1, 1.0F}, {2, 1.0F}};
  const uint32_t a = shares.begin(one);
  shares.end(a);
  const uint32_t b = shares.begin(three);
  CHECK(b == a + 1);
  CHECK(shares.begin(one) == a);
  shares.settle(0);
  CHECK(shares.rate_bps(a) == 50 && shares.rate_bps(b) == 50);
}

}  // namespace

int main() {
  a_link_is_shared_alike();
  what_one_cannot_use_falls_to_others();
  a_flow_over_no_link_is_unlimited();
  a_spread_flow_takes_its_parts();
  rates_are_those_of_the_definition(0, 1e-9);
  rates_are_those_of_the_definition(1e-3, 0.02);
  a_change_stays_among_its_neighbours();
  small_changes_add_up();
  a_flow_in_the_place_of_another_costs_no_look();
  numbers_are_used_again_by_flows_of_as_many_hops();
  return test::failures();
}
