// What stands between the hosts of a lab, in virtual time.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/check.h"
#include "switch/soft_fabric.h"

using namespace etloop;

namespace {

constexpr int64_t kGbps = 1'000'000'000;
constexpr int32_t kFrame = 4170;
constexpr Nanos kPropagation = 500;

SwitchConfig switch_of(size_t ports, int64_t rate_bps, const std::vector<std::vector<uint16_t>>& routes) {
  SwitchConfig config;
  for (size_t i = 0; i < ports; ++i) config.ports.push_back({rate_bps, kPropagation});
  config.buffer_bytes = 16 << 20;
  for (size_t i = 0; i < kPriorities; ++i) {
    const auto same = static_cast<uint8_t>(i);
    config.class_to_queue[i] = config.class_to_group[i] = config.group_to_priority[i] = config.priority_to_queue[i] = same;
    config.queues[i].alpha_log2 = 3;
  }
  config.dscp_to_class[26] = 3;
  config.routes = routes;
  return config;
}

FabricConfig star(size_t hosts, int64_t rate_bps = 10 * kGbps) {
  FabricConfig config;
  std::vector<std::vector<uint16_t>> routes;
  for (uint16_t i = 0; i < hosts; ++i) routes.push_back({i});
  config.switches.push_back(switch_of(hosts, rate_bps, routes));
  for (uint32_t i = 0; i < hosts; ++i) config.attachments.push_back({{0, i}, true});
  return config;
}

void make_lossless(FabricConfig& config, int64_t headroom_bytes) {
  for (SwitchConfig& one : config.switches) {
    one.pfc = true;
    one.groups[3].lossless = true;
    one.groups[3].alpha_log2 = -4;
    one.groups[3].headroom_bytes = headroom_bytes;
    one.groups[3].resume_offset_bytes = 2 * kFrame;
  }
}

SwitchFrame frame_to(uint32_t destination, uint32_t handle = 0, uint64_t key = 1, uint8_t dscp = 26) {
  SwitchFrame frame;
  frame.handle = handle;
  frame.destination = destination;
  frame.frame_bytes = kFrame;
  frame.flow_key = key;
  frame.dscp = dscp;
  frame.ecn = 2;
  return frame;
}

struct Heard : FabricSink {
  struct Delivery {
    size_t attachment;
    uint32_t handle;
    Nanos at_ns;
  };
  void deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) override {
    CHECK(deliveries.empty() || at_ns >= last_ns[attachment]);
    last_ns[attachment] = at_ns;
    deliveries.push_back({attachment, frame.handle, at_ns});
  }
  void pause(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) override {
    pauses.push_back({attachment, static_cast<uint32_t>(priority) << 16 | quanta, at_ns});
  }
  void release(const SwitchFrame&) override { ++released; }

  std::vector<Delivery> deliveries;
  std::vector<Delivery> pauses;
  std::map<size_t, Nanos> last_ns;
  int64_t released = 0;
};

void a_card_sends_a_burst_at_the_rate_of_its_link() {
  const FabricConfig config = star(2);
  CHECK_EQ(validate(config), std::string());
  Heard heard;
  SoftFabric fabric(config, heard, 1000);
  for (uint32_t i = 0; i < 10; ++i) CHECK(fabric.from_host(0, frame_to(1, i), 1000));
  CHECK_EQ(fabric.frames_inside(), 10);
  fabric.advance(1'000'000'000);
  const Nanos line = line_ns(kFrame, 10 * kGbps);
  CHECK_EQ(heard.deliveries.size(), size_t{10});
  for (uint32_t i = 0; i < 10; ++i) {
    // Store and forward: the card's line, then the switch's, each with its propagation.
    CHECK_EQ(heard.deliveries[i].at_ns, 1000 + (i + 2) * line + 2 * kPropagation);
    CHECK_EQ(heard.deliveries[i].handle, i);
  }
  CHECK_EQ(fabric.frames_inside(), 0);
  CHECK_EQ(fabric.card(0, 1'000'000'000).waiting_watermark_bytes, 9 * kFrame);  // one is on the line at once
}

// Flows take turns, whatever the order in which the host handed over their bursts; each keeps its own order.
void flows_of_a_card_take_turns() {
  const FabricConfig config = star(2);
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (uint32_t i = 0; i < 10; ++i) fabric.from_host(0, frame_to(1, i, 1), 0);
  for (uint32_t i = 10; i < 20; ++i) fabric.from_host(0, frame_to(1, i, 2), 0);
  fabric.from_host(0, frame_to(1, 20, 1, 0), 0);  // another priority does not wait for either
  fabric.advance(1'000'000'000);
  std::vector<uint32_t> order;
  for (const auto& delivery : heard.deliveries) order.push_back(delivery.handle);
  const std::vector<uint32_t> first(order.begin(), order.begin() + 6);
  CHECK((first == std::vector<uint32_t>{0, 20, 1, 10, 2, 11}));
  CHECK(order.back() == 19);
}

void a_card_that_is_full_refuses() {
  FabricConfig config = star(2);
  config.card_bytes = 3 * kFrame;
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += fabric.from_host(0, frame_to(1), 0) ? 1 : 0;
  CHECK_EQ(taken, 4);  // one is on the line at once
  CHECK_EQ(fabric.card(0, 0).refused_frames, 6);
}

// After a pause reaches a card, nothing of that priority begins to leave; other priorities go on.
void a_card_honours_a_pause_within_the_propagation_delay() {
  FabricConfig config = star(3);
  make_lossless(config, 100'000);
  CHECK_EQ(validate(config), std::string());
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 2000; ++i) {
    for (size_t sender = 1; sender < 3; ++sender) fabric.from_host(sender, frame_to(0), 0);
  }
  while (heard.pauses.empty()) fabric.advance(fabric.next_event());
  const Nanos heard_ns = heard.pauses.front().at_ns;
  const size_t sender = heard.pauses.front().attachment;
  fabric.advance(heard_ns);
  const int64_t at_pause = fabric.card(sender, heard_ns).waiting_bytes;
  // Long enough for frames to leave, too short for the queue to drain to its resume threshold.
  fabric.advance(heard_ns + 3 * line_ns(kFrame, 10 * kGbps));
  CHECK_EQ(fabric.card(sender, heard_ns).waiting_bytes, at_pause);
  fabric.advance(60'000'000'000);
  CHECK_EQ(heard.deliveries.size(), size_t{4000});
  CHECK_EQ(heard.released, 0);
  CHECK(fabric.card(sender, 60'000'000'000).paused_ns > 0);
  const SwitchCounters counters = fabric.counters(0, 60'000'000'000);
  CHECK(counters.ports[sender].groups[3].headroom_watermark_bytes > 0);
  CHECK_EQ(counters.ports[sender].groups[3].dropped_packets, 0);
}

void a_card_that_does_not_honour_pauses_overruns_the_headroom() {
  FabricConfig config = star(3);
  make_lossless(config, 100'000);
  for (FabricAttachment& attachment : config.attachments) attachment.honours_pause = false;
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 4000; ++i) {
    for (size_t sender = 1; sender < 3; ++sender) fabric.from_host(sender, frame_to(0), 0);
  }
  fabric.advance(60'000'000'000);
  CHECK(heard.released > 0);
  CHECK_EQ(static_cast<int64_t>(heard.deliveries.size()) + heard.released, 8000);
}

// Two leaves and a spine between them: hosts 0 and 1 on one leaf, 2 on the other.
FabricConfig two_leaves() {
  FabricConfig config;
  config.switches.push_back(switch_of(3, 10 * kGbps, {{0}, {1}, {2}}));
  config.switches.push_back(switch_of(2, 10 * kGbps, {{1}, {1}, {0}}));
  config.switches.push_back(switch_of(2, 10 * kGbps, {{0}, {0}, {1}}));
  config.links = {{{0, 2}, {2, 0}}, {{2, 1}, {1, 1}}};
  config.attachments = {{{0, 0}, true}, {{0, 1}, true}, {{1, 0}, true}};
  return config;
}

void a_path_through_three_switches_takes_its_sum() {
  const FabricConfig config = two_leaves();
  CHECK_EQ(validate(config), std::string());
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  CHECK(fabric.from_host(0, frame_to(2), 0));
  fabric.advance(1'000'000);
  CHECK_EQ(heard.deliveries.size(), size_t{1});
  CHECK_EQ(heard.deliveries[0].at_ns, 4 * (line_ns(kFrame, 10 * kGbps) + kPropagation));
}

// A pause travels from the congested leaf through the spine to both senders, and nothing is lost on the way.
void pauses_spread_hop_by_hop() {
  FabricConfig config = two_leaves();
  for (SwitchConfig& one : config.switches) one.buffer_bytes = 1 << 20;
  make_lossless(config, 60'000);
  CHECK_EQ(validate(config), std::string());
  config.switches[1].ports[0].rate_bps = kGbps;  // the last link is the slow one
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 1000; ++i) {
    for (size_t sender = 0; sender < 2; ++sender) fabric.from_host(sender, frame_to(2), 0);
  }
  fabric.advance(100'000'000'000);
  CHECK_EQ(heard.deliveries.size(), size_t{2000});
  CHECK(fabric.counters(2, 0).ports[1].pfc_rx[3] > 0);
  CHECK(fabric.counters(0, 0).ports[2].pfc_rx[3] > 0);
  CHECK(fabric.counters(0, 0).ports[0].pfc_tx[3] > 0);
}

void links_go_down_and_come_up() {
  FabricConfig config = two_leaves();
  config.outages = {{{0, 2}, 1'000'000, 2'000'000}};
  Heard heard;
  SoftFabric fabric(config, heard, 500);
  const auto arrives = [&](Nanos at_ns) {
    const size_t before = heard.deliveries.size();
    fabric.from_host(0, frame_to(2), at_ns);
    fabric.advance(at_ns + 100'000);
    return heard.deliveries.size() > before;
  };
  CHECK(arrives(600'000));
  CHECK(!arrives(1'200'000));
  CHECK(arrives(2'100'000));
  fabric.set_link({2, 1}, false, 3'000'000);
  CHECK(!arrives(3'100'000));
  fabric.set_link({2, 1}, true, 4'000'000);
  CHECK(arrives(4'100'000));
  CHECK_EQ(fabric.frames_inside(), 0);
}

// A soft switch begins when its host's clock says something large; what a file says of times counts from then.
void times_of_faults_count_from_the_beginning() {
  FabricConfig config = star(2);
  SwitchFault fault;
  fault.every = 1;
  fault.from_ns = 1'000'000;
  fault.until_ns = 2'000'000;
  config.switches[0].faults.push_back(fault);
  const Nanos begin_ns = 77'000'000'000'000;
  Heard heard;
  SoftFabric fabric(config, heard, begin_ns);
  for (const Nanos at_ns : {500'000, 1'500'000, 2'500'000}) fabric.from_host(0, frame_to(1), begin_ns + at_ns);
  fabric.advance(begin_ns + 10'000'000);
  CHECK_EQ(heard.deliveries.size(), size_t{2});
  CHECK_EQ(fabric.counters(0, 0).ports[0].fault_dropped_packets, 1);
}

// At 10 Mb/s a pause of 65535 quanta lasts over three seconds: a card that lost its link meanwhile does not wait for that.
void a_link_that_comes_back_is_not_paused() {
  FabricConfig config = star(3, kGbps / 100);
  make_lossless(config, 100'000);
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 2000; ++i) {
    for (size_t sender = 1; sender < 3; ++sender) fabric.from_host(sender, frame_to(0), 0);
  }
  while (heard.pauses.empty()) fabric.advance(fabric.next_event());
  const size_t sender = heard.pauses.front().attachment;
  const Nanos down_ns = heard.pauses.front().at_ns + 1000;
  const auto end = static_cast<uint32_t>(sender);
  fabric.set_link({0, end}, false, down_ns);
  CHECK_EQ(heard.pauses.back().attachment, sender);
  CHECK_EQ(heard.pauses.back().handle & 0xFFFF, 0U);
  fabric.set_link({0, end}, true, down_ns + 1000);
  const int64_t waiting = fabric.card(sender, down_ns).waiting_bytes;
  fabric.advance(down_ns + 2000 + 2 * line_ns(kFrame, kGbps / 100));
  CHECK(fabric.card(sender, down_ns).waiting_bytes < waiting);
}

// Preamble, gap and the way there count; what is paused is one priority; a link is down at both of its ends.
void pauses_and_links_are_what_they_are() {
  CHECK_EQ(line_ns(1500, 10 * kGbps), 1216);
  FabricConfig config = star(3);
  make_lossless(config, 100'000);
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 2000; ++i) {
    for (size_t sender = 1; sender < 3; ++sender) fabric.from_host(sender, frame_to(0), 0);
  }
  Nanos decided_ns = 0;
  while (heard.pauses.empty()) {
    decided_ns = fabric.next_event();
    fabric.advance(decided_ns);
  }
  const auto pause = heard.pauses.front();
  CHECK_EQ(pause.at_ns, decided_ns + line_ns(kPauseFrameBytes, 10 * kGbps) + kPropagation);
  const Nanos now = pause.at_ns + 1;
  fabric.advance(now);
  const int64_t waiting = fabric.card(pause.attachment, now).waiting_bytes;
  fabric.from_host(pause.attachment, frame_to(0, 7, 1, 0), now);
  fabric.advance(now + 2 * line_ns(kFrame, 10 * kGbps));
  CHECK_EQ(fabric.card(pause.attachment, now).waiting_bytes, waiting);

  const FabricConfig leaves = two_leaves();
  Heard there;
  SoftFabric joined(leaves, there, 0);
  joined.set_link({0, 2}, false, 10);
  joined.from_host(2, frame_to(0), 20);
  joined.advance(1'000'000);
  CHECK_EQ(joined.counters(2, 0).ports[1].no_route_packets, 1);
}

// What is copied for several hosts has one five-tuple, and every copy goes where it is meant for.
void flowlets_of_copies_keep_apart() {
  FabricConfig config = star(4);
  config.switches[0].ways.balancing = LoadBalancing::flowlet;
  config.switches[0].ways.flowlet_gap_ns = 1'000'000;
  config.switches[0].routes = {{0}, {1}, {1, 2}, {3, 0}};
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (int i = 0; i < 20; ++i) {
    for (const uint32_t destination : {2U, 3U}) fabric.from_host(1, frame_to(destination, destination), i * 1000);
  }
  fabric.advance(1'000'000'000);
  for (const auto& delivery : heard.deliveries) {
    const bool to_two = delivery.attachment == 1 || delivery.attachment == 2;
    CHECK_EQ(delivery.handle, to_two ? 2U : 3U);
  }
}

void a_wrong_fabric_is_refused() {
  FabricConfig twice = star(2);
  twice.attachments[1].end = {0, 0};
  CHECK(!validate(twice).empty());
  FabricConfig nowhere = star(2);
  nowhere.attachments[1].end = {0, 7};
  CHECK(!validate(nowhere).empty());
  FabricConfig loop = two_leaves();
  loop.links[0].b = {9, 0};
  CHECK(!validate(loop).empty());
  CHECK(!validate(FabricConfig{}).empty());
}

// Whatever is sent arrives, is dropped or is still inside, at every moment; and the same again is the same.
void nothing_is_lost_track_of() {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::vector<Nanos> first;
    for (int again = 0; again < 2; ++again) {
      std::mt19937 random(seed);
      const size_t hosts = 2 + random() % 6;
      FabricConfig config = star(hosts, static_cast<int64_t>(1 + random() % 100) * kGbps);
      config.switches[0].seed = seed;
      config.switches[0].buffer_bytes = 200'000 + random() % 1'000'000;
      if (random() % 2 == 0) make_lossless(config, 10'000);
      if (!validate(config).empty()) break;
      Heard heard;
      SoftFabric fabric(config, heard, 0);
      Nanos now = 0;
      int64_t sent = 0;
      for (int i = 0; i < 2000; ++i) {
        now += random() % 2000;
        const size_t host = random() % hosts;
        if (random() % 50 == 0) fabric.pause_from_host(host, 3, static_cast<uint16_t>(random() % 200), now);
        sent += fabric.from_host(host, frame_to(static_cast<uint32_t>(random() % hosts), 0, random() % 9), now) ? 1 : 0;
        const auto delivered = static_cast<int64_t>(heard.deliveries.size());
        CHECK_EQ(sent, delivered + heard.released + fabric.frames_inside());
      }
      fabric.advance(now + 10'000'000'000);
      CHECK_EQ(fabric.frames_inside(), 0);
      std::vector<Nanos> times;
      for (const auto& delivery : heard.deliveries) times.push_back(delivery.at_ns);
      if (again == 0) {
        first = times;
      } else {
        CHECK(first == times);
      }
    }
  }
}

// Takes a link up as soon as it is down, and down as soon as it is up.
struct Restless final : Heard {
  void link_news(const FabricEnd& end, LinkNews news, Nanos at_ns) override {
    if (news == LinkNews::up || news == LinkNews::down) fabric->set_link_later(end, news == LinkNews::down, at_ns);
  }
  SoftFabric* fabric = nullptr;
};

void what_keeps_time_from_advancing_is_named() {
  const FabricConfig config = star(2);
  Restless restless;
  SoftFabric fabric(config, restless, 0);
  restless.fabric = &fabric;
  fabric.set_link_later({0, 1}, false, 1000);
  fabric.advance(999);
  CHECK_EQ(fabric.stalled(), std::string());
  fabric.advance(2000);
  CHECK(fabric.stalled().find("time does not advance: a change of link 1 is scheduled at 1000 ns") == 0);
}

// As many frames at an instant as all ports of a large network can have.
void a_great_incast_at_one_instant_is_no_loop() {
  constexpr size_t kHosts = 512;
  FabricConfig config = star(kHosts, 3200 * kGbps);
  config.switches[0].buffer_bytes = int64_t{1} << 40;
  Heard heard;
  SoftFabric fabric(config, heard, 0);
  for (uint32_t host = 1; host < kHosts; ++host) {
    for (uint32_t i = 0; i < 64; ++i) CHECK(fabric.from_host(host, frame_to(0, i, host), 0));
  }
  fabric.advance(1'000'000'000);
  CHECK_EQ(fabric.stalled(), std::string());
  CHECK_EQ(fabric.frames_inside(), 0);
}

}  // namespace

int main() {
  a_card_sends_a_burst_at_the_rate_of_its_link();
  flows_of_a_card_take_turns();
  a_card_that_is_full_refuses();
  a_card_honours_a_pause_within_the_propagation_delay();
  a_card_that_does_not_honour_pauses_overruns_the_headroom();
  a_path_through_three_switches_takes_its_sum();
  pauses_spread_hop_by_hop();
  links_go_down_and_come_up();
  times_of_faults_count_from_the_beginning();
  a_link_that_comes_back_is_not_paused();
  flowlets_of_copies_keep_apart();
  pauses_and_links_are_what_they_are();
  a_wrong_fabric_is_refused();
  nothing_is_lost_track_of();
  what_keeps_time_from_advancing_is_named();
  a_great_incast_at_one_instant_is_no_loop();
  return etloop::test::failures();
}
