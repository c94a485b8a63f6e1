// Links that go down and come up: who notices when, what is lost meanwhile, and where frames go then.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "support/check.h"
#include "switch/fabric_routes.h"
#include "switch/soft_fabric.h"

using namespace etloop;

namespace {

constexpr int64_t kGbps = 1'000'000'000;
constexpr int32_t kFrame = 4170;
constexpr Nanos kDetection = 1'000'000;
constexpr Nanos kConvergence = 50'000'000;

SwitchConfig switch_of(size_t ports) {
  SwitchConfig config;
  for (size_t i = 0; i < ports; ++i) config.ports.push_back({10 * kGbps, 500});
  config.buffer_bytes = 16 << 20;
  for (size_t i = 0; i < kPriorities; ++i) {
    const auto same = static_cast<uint8_t>(i);
    config.class_to_queue[i] = config.class_to_group[i] = config.group_to_priority[i] = config.priority_to_queue[i] = same;
    config.queues[i].alpha_log2 = 3;
  }
  return config;
}

std::vector<std::vector<uint16_t>> rows(const WayTable& table) {
  std::vector<std::vector<uint16_t>> found;
  for (size_t d = 0; d + 1 < table.first.size(); ++d) {
    found.emplace_back(table.ports.begin() + table.first[d], table.ports.begin() + table.first[d + 1]);
  }
  return found;
}

void route_all(FabricConfig& config) {
  const FabricRoutes routes(config);
  for (size_t i = 0; i < config.switches.size(); ++i) config.switches[i].routes = rows(routes.of(i));
}

// Host 0 on leaf 0 and host 1 on leaf 1, by port 0; spine s on port 1 + s of both leaves. Links are 2 s and 2 s + 1.
FabricConfig two_leaves(uint32_t spines) {
  FabricConfig config;
  for (int leaf = 0; leaf < 2; ++leaf) config.switches.push_back(switch_of(1 + spines));
  for (uint32_t spine = 0; spine < spines; ++spine) {
    config.switches.push_back(switch_of(2));
    for (uint32_t leaf = 0; leaf < 2; ++leaf) config.links.push_back({{leaf, 1 + spine}, {2 + spine, leaf}});
  }
  for (uint32_t leaf = 0; leaf < 2; ++leaf) config.attachments.push_back({{leaf, 0}, true});
  config.detection_ns = kDetection;
  config.convergence_ns = kConvergence;
  route_all(config);
  return config;
}

struct Heard final : FabricSink {
  struct News {
    LinkNews news;
    Nanos at_ns;
    bool operator==(const News&) const = default;
  };
  void deliver(size_t, const SwitchFrame&, Nanos) override { ++delivered; }
  void pause(size_t, uint8_t, uint16_t, Nanos) override {}
  void release(const SwitchFrame&) override { ++released; }
  void link_news(const FabricEnd&, LinkNews what, Nanos at_ns) override { news.push_back({what, at_ns}); }

  int delivered = 0;
  int released = 0;
  std::vector<News> news;
};

struct Bench {
  explicit Bench(FabricConfig what) : config(std::move(what)), fabric(config, heard, 0) {
    CHECK_EQ(validate(config), std::string());
  }
  // Whether a frame from one host to the other arrives that is sent at a time.
  bool arrives(Nanos at_ns, uint64_t key = 1, size_t from = 0) {
    const int before = heard.delivered;
    SwitchFrame frame;
    frame.destination = static_cast<uint32_t>(1 - from);
    frame.frame_bytes = kFrame;
    frame.flow_key = key;
    fabric.from_host(from, frame, at_ns);
    fabric.advance(at_ns + 100'000);
    return heard.delivered > before;
  }
  int64_t lost(size_t switch_index, size_t port) { return fabric.counters(switch_index, 0).ports[port].link_dropped_packets; }
  int64_t unrouted(size_t switch_index) {
    int64_t sum = 0;
    for (const SwitchPortCounters& port : fabric.counters(switch_index, 0).ports) sum += port.no_route_packets;
    return sum;
  }

  FabricConfig config;
  Heard heard;
  SoftFabric fabric;
};

// ---- routes

// Against distances by Floyd and Warshall, on random networks with random links left out, parallel links among them.
void routes_are_all_shortest_ones() {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const uint32_t switches = 2 + random() % 9;
    FabricConfig config;
    std::vector<uint32_t> ports(switches, 0);
    for (uint32_t i = random() % 20; i > 0; --i) {
      const uint32_t a = random() % switches;
      const uint32_t b = random() % switches;
      if (a == b) continue;
      config.links.push_back({{a, ports[a]}, {b, ports[b]}});
      ++ports[a];
      ++ports[b];
    }
    for (uint32_t i = 1 + random() % 6; i > 0; --i) {
      const uint32_t at = random() % switches;
      config.attachments.push_back({{at, ports[at]}, true});
      ++ports[at];
    }
    for (uint32_t i = 0; i < switches; ++i) config.switches.push_back(switch_of(std::max(ports[i], 1U)));
    CHECK_EQ(validate(config), std::string());
    FabricRoutes routes(config);
    std::vector<bool> used(config.links.size(), true);
    for (int change = 0; change < 4; ++change) {
      constexpr int kFar = 1000;
      std::vector<std::vector<int>> hops(switches, std::vector<int>(switches, kFar));
      for (uint32_t i = 0; i < switches; ++i) hops[i][i] = 0;
      for (size_t i = 0; i < config.links.size(); ++i) {
        const auto& [a, b] = config.links[i];
        if (used[i]) hops[a.switch_index][b.switch_index] = hops[b.switch_index][a.switch_index] = 1;
      }
      for (uint32_t k = 0; k < switches; ++k) {
        for (uint32_t i = 0; i < switches; ++i) {
          for (uint32_t j = 0; j < switches; ++j) hops[i][j] = std::min(hops[i][j], hops[i][k] + hops[k][j]);
        }
      }
      for (uint32_t here = 0; here < switches; ++here) {
        std::vector<std::vector<uint16_t>> expected;
        for (const FabricAttachment& attachment : config.attachments) {
          std::vector<uint16_t> ways;
          const uint32_t home = attachment.end.switch_index;
          if (home == here) ways.push_back(static_cast<uint16_t>(attachment.end.port));
          for (size_t i = 0; home != here && i < config.links.size(); ++i) {
            const auto& [a, b] = config.links[i];
            for (const auto& [mine, other] : {std::pair{a, b}, std::pair{b, a}}) {
              const bool nearer = hops[other.switch_index][home] < kFar && hops[other.switch_index][home] < hops[here][home];
              if (used[i] && mine.switch_index == here && nearer) ways.push_back(static_cast<uint16_t>(mine.port));
            }
          }
          std::sort(ways.begin(), ways.end());
          expected.push_back(ways);
        }
        CHECK(rows(routes.of(here)) == expected);
      }
      if (used.empty()) break;
      const size_t link = random() % used.size();
      used[link] = !used[link];
      routes.use(link, used[link]);
      routes.recompute();
    }
  }
}

// ---- who knows when

void a_port_is_left_when_its_switch_has_noticed() {
  Bench bench(two_leaves(2));
  uint64_t key = 0;
  while (ecmp_choice(key, bench.config.switches[0].seed, 2) != 0) ++key;  // over spine 0
  CHECK(bench.arrives(1'000, key));
  bench.fabric.set_link({0, 1}, false, 2'000'000);
  CHECK(!bench.fabric.model(0).is_up(1));
  CHECK(!bench.fabric.model(2).is_up(0));
  CHECK(!bench.arrives(2'000'000 + kDetection - 200'000, key));
  CHECK_EQ(bench.lost(0, 1), 1);
  CHECK(bench.arrives(2'000'000 + kDetection, key));
  CHECK_EQ(bench.lost(0, 1), 1);
  CHECK_EQ(bench.fabric.frames_inside(), 0);
}

// Leaf 1 hears of the link between spine 0 and leaf 0 when all do; until then spine 0, which has noticed, knows no way.
void a_link_further_on_is_routed_around_after_convergence() {
  Bench bench(two_leaves(2));
  uint64_t key = 0;
  while (ecmp_choice(key, bench.config.switches[1].seed, 2) != 0) ++key;
  bench.fabric.set_link({2, 0}, false, 0);
  CHECK(!bench.arrives(kDetection, key, 1));
  CHECK_EQ(bench.unrouted(2), 1);
  CHECK(!bench.arrives(kConvergence - 200'000, key, 1));
  CHECK(bench.arrives(kConvergence, key, 1));
  CHECK_EQ(bench.unrouted(2), 2);
  CHECK((bench.heard.news == std::vector<Heard::News>{{LinkNews::down, 0},
                                                      {LinkNews::noticed, kDetection},
                                                      {LinkNews::routed_around, kConvergence}}));
  const Nanos up_ns = 2 * kConvergence;
  bench.fabric.set_link({2, 0}, true, up_ns);
  const auto over_spine_0 = [&] { return bench.fabric.counters(2, 0).ports[1].rx_packets; };
  const int64_t before = over_spine_0();
  CHECK(bench.arrives(up_ns + kConvergence - 200'000, key, 1));
  CHECK_EQ(over_spine_0(), before);
  CHECK(bench.arrives(up_ns + kConvergence, key, 1));
  CHECK_EQ(over_spine_0(), before + 1);
  CHECK((bench.heard.news.back() == Heard::News{LinkNews::used_again, up_ns + kConvergence}));
}

struct Flap {
  std::vector<std::pair<bool, Nanos>> changes;  // whether it is up, and from when
  std::vector<Heard::News> news;
};

// What is over before it is due does not happen, whatever comes next.
void what_is_over_is_not_acted_on() {
  const std::vector<Flap> flaps = {
      // Shorter than detection: nobody hears of it.
      {{{false, 0}, {true, kDetection - 1}}, {{LinkNews::down, 0}, {LinkNews::up, kDetection - 1}}},
      // Down again before the first time would have been noticed: it counts from the second.
      {{{false, 0}, {true, 10}, {false, 20}, {true, kDetection + 21}},
       {{LinkNews::down, 0},
        {LinkNews::up, 10},
        {LinkNews::down, 20},
        {LinkNews::noticed, kDetection + 20},
        {LinkNews::up, kDetection + 21}}},
      // Shorter than convergence: only its own switches act.
      {{{false, 0}, {true, kConvergence - 1}},
       {{LinkNews::down, 0}, {LinkNews::noticed, kDetection}, {LinkNews::up, kConvergence - 1}}},
      // Up for less than convergence: it stays routed around.
      {{{false, 0}, {true, kConvergence + 10}, {false, kConvergence + 20}},
       {{LinkNews::down, 0},
        {LinkNews::noticed, kDetection},
        {LinkNews::routed_around, kConvergence},
        {LinkNews::up, kConvergence + 10},
        {LinkNews::down, kConvergence + 20},
        {LinkNews::noticed, kConvergence + 20 + kDetection}}},
      // Said twice.
      {{{false, 0}, {false, 5}, {true, 10}, {true, 15}}, {{LinkNews::down, 0}, {LinkNews::up, 10}}},
  };
  for (const Flap& flap : flaps) {
    Bench bench(two_leaves(2));
    for (const auto& [up, at_ns] : flap.changes) bench.fabric.set_link_later({0, 1}, up, at_ns);
    bench.fabric.advance(10 * kConvergence);
    CHECK(bench.heard.news == flap.news);
    CHECK(bench.fabric.next_event() == kNever);
  }
}

void links_that_change_at_once_are_routed_around_together() {
  FabricConfig config = two_leaves(3);
  config.outages = {{{0, 1}, 0, kNever}, {{1, 2}, 0, kNever}};
  Bench bench(config);
  bench.fabric.advance(kConvergence);
  Nanos at_ns = kConvergence;
  for (uint64_t key = 0; key < 20; ++key) {
    for (const size_t from : {0, 1}) CHECK(bench.arrives(at_ns += 200'000, key, from));
  }
  CHECK_EQ(bench.fabric.counters(4, 0).ports[0].rx_packets, 20);
  CHECK_EQ(bench.fabric.counters(4, 0).ports[1].rx_packets, 20);
}

// With no way left a frame is dropped at the first switch, and counted as such.
void where_nothing_leads_there_is_no_route() {
  FabricConfig config = two_leaves(2);
  config.outages = {{{0, 1}, 0, kNever}, {{0, 2}, 0, kNever}};
  Bench bench(config);
  CHECK(!bench.arrives(kConvergence, 1, 0));
  CHECK(!bench.arrives(kConvergence + 1'000'000, 1, 1));
  CHECK_EQ(bench.unrouted(0), 1);
  CHECK_EQ(bench.unrouted(1), 1);
  CHECK_EQ(bench.lost(0, 1) + bench.lost(0, 2), 0);
}

// Switches that hear nothing from each other do as before, for ever.
void without_convergence_only_own_ports_are_known() {
  FabricConfig config = two_leaves(2);
  config.convergence_ns = kNever;
  Bench bench(config);
  uint64_t key = 0;
  while (ecmp_choice(key, config.switches[1].seed, 2) != 0) ++key;
  bench.fabric.set_link({2, 0}, false, 0);
  CHECK(!bench.arrives(100 * kConvergence, key, 1));
  CHECK_EQ(bench.unrouted(2), 1);
  bench.fabric.set_link({2, 0}, true, 101 * kConvergence);
  CHECK(bench.arrives(101 * kConvergence + 1000, key, 1));
}

// A host's link has no other way; what its switch sends before it has noticed is lost, and so is what the host sends.
void the_link_of_a_host_is_nobodys_way() {
  Bench bench(two_leaves(2));
  bench.fabric.set_link({1, 0}, false, 0);
  CHECK(!bench.arrives(0));
  CHECK_EQ(bench.lost(1, 0), 1);
  CHECK(!bench.arrives(kDetection));
  CHECK_EQ(bench.unrouted(1), 1);
  CHECK(!bench.arrives(3 * kConvergence, 1, 1));
  CHECK_EQ(bench.lost(1, 0), 2);
  bench.fabric.set_link({1, 0}, true, 4 * kConvergence);
  CHECK(bench.arrives(4 * kConvergence));
  CHECK_EQ(bench.fabric.frames_inside(), 0);
}

void flowlets_leave_a_way_that_is_routed_around() {
  FabricConfig config = two_leaves(2);
  for (SwitchConfig& one : config.switches) {
    one.ways.balancing = LoadBalancing::flowlet;
    one.ways.flowlet_gap_ns = 10 * kConvergence;
  }
  Bench bench(config);
  for (uint64_t key = 0; key < 20; ++key) bench.arrives(static_cast<Nanos>(key) * 200'000, key, 1);
  const Nanos down_ns = 10'000'000;
  bench.fabric.set_link({2, 0}, false, down_ns);
  const Nanos after_ns = down_ns + kConvergence;
  for (uint64_t key = 0; key < 20; ++key) CHECK(bench.arrives(after_ns + static_cast<Nanos>(key) * 200'000, key, 1));
}

void times_that_cannot_be_are_refused() {
  FabricConfig config = two_leaves(2);
  config.convergence_ns = kDetection - 1;
  CHECK_EQ(validate(config), std::string("convergence_ns: must be at least detection_ns, which is at least 0"));
  config = two_leaves(2);
  config.detection_ns = -1;
  CHECK_EQ(validate(config), std::string("convergence_ns: must be at least detection_ns, which is at least 0"));
  config = two_leaves(2);
  config.switches[1].routes.pop_back();
  CHECK_EQ(validate(config), std::string(": has not a route for each attachment"));
}

}  // namespace

int main() {
  routes_are_all_shortest_ones();
  a_port_is_left_when_its_switch_has_noticed();
  a_link_further_on_is_routed_around_after_convergence();
  what_is_over_is_not_acted_on();
  links_that_change_at_once_are_routed_around_together();
  where_nothing_leads_there_is_no_route();
  without_convergence_only_own_ports_are_known();
  the_link_of_a_host_is_nobodys_way();
  flowlets_leave_a_way_that_is_routed_around();
  times_that_cannot_be_are_refused();
  return etloop::test::failures();
}
