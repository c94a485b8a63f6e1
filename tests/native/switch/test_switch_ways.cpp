// Where a switch sends a packet and what becomes of it there: hash, flowlets, faults, trimming, the watchdog, links.
#include <cmath>
#include <set>
#include <vector>

#include "support/check.h"
#include "support/switch_bench.h"

using namespace etloop;
using namespace etloop::test;

namespace {

const Nanos kSlotNs = line_ns(kFrame, 100 * kGbps);

struct Tuple {
  uint8_t src[16] = {};
  uint8_t dst[16] = {};
  uint16_t src_port = 49152;
  uint16_t dst_port = 4791;
  uint8_t protocol = 17;
  uint64_t key() const { return flow_key(src, dst, src_port, dst_port, protocol); }
};

// Every field of the five-tuple matters, in each of its bytes, and source and destination are not the same.
void a_flow_is_all_of_its_five_tuple() {
  std::set<uint64_t> keys{Tuple{}.key()};
  const auto differs = [&](const Tuple& other) { CHECK(keys.insert(other.key()).second); };
  for (size_t i = 0; i < 16; ++i) {
    Tuple src;
    src.src[i] = 1;
    differs(src);
    Tuple dst;
    dst.dst[i] = 1;
    differs(dst);
  }
  for (const int bit : {0, 7, 8, 15}) {
    Tuple src;
    src.src_port ^= static_cast<uint16_t>(1 << bit);
    differs(src);
    Tuple dst;
    dst.dst_port ^= static_cast<uint16_t>(1 << bit);
    differs(dst);
  }
  Tuple tcp;
  tcp.protocol = 6;
  differs(tcp);
}

// Two switches that hash alike polarise; with seeds of their own the choice of one says nothing about that of the other.
void seeds_choose_for_themselves() {
  int alike = 0;
  int first = 0;
  for (uint16_t port = 0; port < 4000; ++port) {
    Tuple flow;
    flow.src_port = port;
    alike += ecmp_choice(flow.key(), 1, 2) == ecmp_choice(flow.key(), 2, 2) ? 1 : 0;
    first += ecmp_choice(flow.key(), 1, 2) == 0 ? 1 : 0;
  }
  // Half of 4,000; four standard deviations are 126.
  CHECK(std::abs(alike - 2000) < 127);
  CHECK(std::abs(first - 2000) < 127);
}

void packets_are_sprayed_and_flows_are_not() {
  for (const LoadBalancing balancing : {LoadBalancing::spray, LoadBalancing::ecmp}) {
    SwitchConfig config = config_of(4);
    config.routes = {{1, 2, 3}};
    config.ways.balancing = balancing;
    Bench bench(config);
    for (int i = 0; i < 3000; ++i) bench.model.on_frame(0, frame_to(0, 26, 100), i * kSlotNs);
    bench.advance(1'000'000'000);
    if (balancing == LoadBalancing::ecmp) CHECK_EQ(bench.delivered.size(), size_t{1});
    if (balancing == LoadBalancing::spray) {
      for (const size_t port : {size_t{1}, size_t{2}, size_t{3}}) CHECK(std::abs(bench.delivered[port] - 1000) < 104);
    }
  }
}

// A flow keeps its way while its packets are at most a gap apart, however long it lasts, and takes any after a longer one.
void flowlets_move_after_a_gap_and_only_then() {
  for (const Nanos apart_ns : {Nanos{10'000}, Nanos{10'001}}) {
    SwitchConfig config = config_of(5);
    config.routes = {{1, 2, 3, 4}};
    config.ways.balancing = LoadBalancing::flowlet;
    config.ways.flowlet_gap_ns = 10'000;
    Bench bench(config);
    for (int i = 0; i < 400; ++i) {
      bench.advance(i * apart_ns);
      bench.model.on_frame(0, frame_to(0, 26, 100), i * apart_ns);
    }
    bench.advance(1'000'000'000);
    CHECK_EQ(bench.delivered.size(), apart_ns == 10'000 ? size_t{1} : size_t{4});
  }
}

// Packets at once go to all ways in equal parts, and one that is busy with another's packets gets fewer.
void what_adapts_takes_the_way_with_least_to_send() {
  SwitchConfig config = config_of(6);
  config.routes = {{1, 2, 3, 4}, {1}};
  config.ways.balancing = LoadBalancing::adaptive;
  Bench bench(config);
  for (int i = 0; i < 40; ++i) bench.model.on_frame(0, frame_to(0), 0);
  bench.advance(1'000'000'000);
  for (const size_t port : {size_t{1}, size_t{2}, size_t{3}, size_t{4}}) CHECK_EQ(bench.delivered[port], 10);

  Bench loaded(config);
  for (int i = 0; i < 20; ++i) loaded.model.on_frame(5, frame_to(1), 0);
  for (int i = 0; i < 40; ++i) loaded.model.on_frame(0, frame_to(0), 0);
  loaded.advance(1'000'000'000);
  // 60 frames over four ways are 15 each, and the first has 20 already; all went at once, so nothing was sent between.
  CHECK_EQ(loaded.delivered[1], 20);
  for (const size_t port : {size_t{2}, size_t{3}, size_t{4}}) CHECK(std::abs(loaded.delivered[port] - 13) <= 1);
}

// Consecutive source ports take consecutive ways, and one of them always the same.
void structured_entropy_names_its_way() {
  SwitchConfig config = config_of(6);
  config.routes = {{1, 2, 3, 4}};
  config.ways.balancing = LoadBalancing::structured;
  Bench bench(config);
  for (int i = 0; i < 42; ++i) {
    SwitchFrame frame = frame_to(0);
    frame.entropy = static_cast<uint8_t>(2 + i);
    bench.model.on_frame(0, frame, 0);
  }
  bench.advance(1'000'000'000);
  CHECK_EQ(bench.delivered[1], 10);
  CHECK_EQ(bench.delivered[2], 10);
  CHECK_EQ(bench.delivered[3], 11);
  CHECK_EQ(bench.delivered[4], 11);
}

// A flowlet stays where it began, and the next begins where least is to be sent.
void flowlets_that_adapt_leave_a_busy_way() {
  SwitchConfig config = config_of(5);
  config.routes = {{1, 2}, {1}, {2}};
  config.ways.balancing = LoadBalancing::adaptive_flowlet;
  config.ways.flowlet_gap_ns = 10'000;
  Bench bench(config);
  bench.model.on_frame(0, frame_to(0, 26, 100), 0);
  bench.advance(5'000);
  const size_t first = bench.delivered[1] == 1 ? 1 : 2;
  const uint32_t same = static_cast<uint32_t>(first);
  for (int i = 0; i < 200; ++i) bench.model.on_frame(4, frame_to(same), 6'000);
  bench.model.on_frame(0, frame_to(0, 26, 100), 6'001);
  bench.advance(1'000'000);
  CHECK_EQ(bench.delivered[first], 202);
  for (int i = 0; i < 200; ++i) bench.model.on_frame(4, frame_to(same), 1'000'001);
  bench.model.on_frame(0, frame_to(0, 26, 100), 1'000'002);
  bench.advance(2'000'000);
  CHECK_EQ(bench.delivered[3 - first], 1);
}

// ---- faults

SwitchFault every_packet() {
  SwitchFault fault;
  fault.every = 1;
  return fault;
}

int64_t lost_of_ten(const SwitchFault& fault, size_t in_port, uint32_t destination, Nanos at_ns) {
  SwitchConfig config = config_of(4);
  config.faults.push_back(fault);
  Bench bench(config);
  for (int i = 0; i < 10; ++i) bench.model.on_frame(in_port, frame_to(destination), at_ns);
  CHECK_EQ(bench.model.counters(at_ns).ports[in_port].fault_dropped_packets, bench.dropped());
  return bench.dropped();
}

void faults_hit_their_ports_and_their_time_only() {
  SwitchFault in = every_packet();
  in.in_port = 1;
  CHECK_EQ(lost_of_ten(in, 1, 0, 5), 10);
  CHECK_EQ(lost_of_ten(in, 2, 0, 5), 0);
  SwitchFault out = every_packet();
  out.out_port = 3;
  CHECK_EQ(lost_of_ten(out, 1, 3, 5), 10);
  CHECK_EQ(lost_of_ten(out, 3, 1, 5), 0);
  SwitchFault timed = every_packet();
  timed.from_ns = 1000;
  timed.until_ns = 2000;
  for (const Nanos at_ns : {Nanos{999}, Nanos{2000}}) CHECK_EQ(lost_of_ten(timed, 1, 0, at_ns), 0);
  for (const Nanos at_ns : {Nanos{1000}, Nanos{1999}}) CHECK_EQ(lost_of_ten(timed, 1, 0, at_ns), 10);
}

void a_chance_is_kept() {
  for (const bool corrupt : {false, true}) {
    SwitchConfig config = config_of(2);
    SwitchFault fault;
    fault.per_million = 10'000;
    fault.corrupt = corrupt;
    config.faults.push_back(fault);
    Bench bench(config);
    for (int i = 0; i < 100'000; ++i) {
      bench.advance(i * kSlotNs);
      bench.model.on_frame(1, frame_to(0), i * kSlotNs);
    }
    bench.advance(kNever - 1);
    int64_t hit = bench.dropped();
    for (const SwitchFrame& frame : bench.frames) hit += frame.corrupted ? 1 : 0;
    CHECK_EQ(bench.dropped() == 0, corrupt);
    const SwitchCounters counted = bench.model.counters(kNever - 1);
    CHECK_EQ(counted.ports[1].fault_corrupted_packets, corrupt ? hit : 0);
    CHECK_EQ(counted.ports[1].fault_dropped_packets, corrupt ? 0 : hit);
    CHECK(std::abs(hit - 1000) < 126);  // four standard deviations
  }
}

// ---- trimming

// What is left of a packet has the DSCP of trimmed packets and waits in their queue; once that is full it is dropped.
void trimmed_packets_have_a_class_of_their_own() {
  SwitchConfig config = config_of(3);
  config.pfc = true;
  config.trimming.frame_bytes = 200;
  config.trimming.dscp = 48;
  config.groups[6].alpha_log2 = -8;
  config.queues[3].alpha_log2 = -8;
  config.queues[6].strict = true;
  Bench bench(config);
  for (const uint8_t priority : {uint8_t{3}, uint8_t{6}}) bench.model.on_pause(0, priority, 65535, 0);
  for (int i = 0; i < 1000; ++i) bench.model.on_frame(1, frame_to(0), 0);
  const SwitchCounters held = bench.model.counters(0);
  const int64_t whole = held.ports[0].queues[3].current_bytes / kFrame;
  const int64_t trimmed = held.ports[0].queues[6].current_bytes / 200;
  CHECK(whole > 0 && trimmed > 0);
  CHECK_EQ(held.ports[0].queues[6].current_bytes, held.ports[1].groups[6].current_bytes);
  CHECK_EQ(held.ports[0].queues[3].trimmed_packets, trimmed + bench.dropped());
  CHECK_EQ(held.ports[0].queues[3].trim_dropped_packets, bench.dropped());
  CHECK_EQ(whole + trimmed + bench.dropped(), 1000);
  CHECK(bench.dropped() > 0);
  for (const uint8_t priority : {uint8_t{3}, uint8_t{6}}) bench.model.on_pause(0, priority, 0, 1000);
  bench.run(1'000'000);
  int64_t seen = 0;
  for (const SwitchFrame& frame : bench.frames) {
    seen += frame.trimmed ? 1 : 0;
    CHECK_EQ(frame.dscp, frame.trimmed ? 48 : 26);
    CHECK_EQ(frame.frame_bytes, frame.trimmed ? 200 : kFrame);
  }
  CHECK_EQ(seen, trimmed);
  CHECK_EQ(bench.model.counters(1'000'000).ports[0].queues[6].trim_sent_packets, trimmed);
}

// Beside a full queue of data: what is short goes whole, and what was trimmed elsewhere is never cut again.
void short_packets_are_marked_and_trimmed_ones_left_alone() {
  SwitchConfig config = config_of(3);
  config.trimming.frame_bytes = 200;
  config.trimming.dscp = 48;
  config.queues[3].alpha_log2 = -8;
  config.queues[6].strict = true;
  config.pfc = true;
  Bench bench(config);
  bench.model.on_pause(0, 3, 65535, 0);
  for (int i = 0; i < 1000; ++i) bench.model.on_frame(1, frame_to(0), 0);
  SwitchFrame is_short = frame_to(0);
  is_short.frame_bytes = 90;
  for (int i = 0; i < 100; ++i) bench.model.on_frame(1, is_short, 0);  // the first still fit
  SwitchFrame cut = frame_to(0);
  cut.dscp = 48;
  cut.frame_bytes = 128;
  bench.model.on_frame(1, cut, 0);
  const int64_t before = bench.model.counters(0).ports[0].queues[3].trimmed_packets;
  bench.run(1'000'000);
  int shorts = 0;
  int marked = 0;
  int cuts = 0;
  for (const SwitchFrame& frame : bench.frames) {
    shorts += frame.frame_bytes == 90 && !frame.trimmed ? 1 : 0;
    marked += frame.frame_bytes == 90 && frame.dscp == 48 ? 1 : 0;
    cuts += frame.frame_bytes == 128 && frame.dscp == 48 ? 1 : 0;
  }
  CHECK_EQ(shorts, 100);
  CHECK(marked > 0);
  CHECK_EQ(cuts, 1);
  CHECK_EQ(bench.model.counters(1'000'000).ports[0].queues[3].trimmed_packets, before);
}

// ---- the watchdog

SwitchConfig watched(WatchdogAction action) {
  SwitchConfig config = config_of(2);
  lossless(config, 200'000);
  config.watchdog_detect_ns = 200'000;
  config.watchdog_restore_ns = 400'000;
  config.watchdog_action = action;
  return config;
}

void a_storm_begins_when_it_says_and_not_earlier() {
  const SwitchConfig config = watched(WatchdogAction::drop);
  Bench bench(config);
  bench.model.on_pause(0, 3, 65535, 0);
  for (int i = 0; i < 5; ++i) bench.model.on_frame(1, frame_to(0), 50'000);
  bench.run(249'999);
  CHECK_EQ(bench.dropped(), 0);
  bench.run(250'000);
  CHECK_EQ(bench.drops[SwitchDrop::watchdog], 5);

  Bench other(config);
  other.model.on_pause(0, 3, 65535, 0);
  other.model.on_frame(1, frame_to(0), 0);
  other.run(199'999);
  CHECK_EQ(other.dropped(), 0);
  other.run(200'000);
  CHECK_EQ(other.drops[SwitchDrop::watchdog], 1);
}

// Paused again and again, a storm lasts: until no pause has come for the restoration time.
void a_storm_ends_with_the_pauses() {
  const SwitchConfig config = watched(WatchdogAction::drop);
  Bench bench(config);
  bench.model.on_frame(1, frame_to(0), 0);
  bench.run(1000);
  for (int i = 0; i < 10; ++i) {
    const Nanos at_ns = 1000 + i * 300'000;
    bench.run(at_ns);
    bench.model.on_pause(0, 3, 65535, at_ns);
    bench.model.on_frame(1, frame_to(0), at_ns);
  }
  const Nanos last_ns = 1000 + 9 * 300'000;
  CHECK_EQ(bench.drops[SwitchDrop::watchdog], 10);
  bench.run(last_ns + 399'999);
  bench.model.on_frame(1, frame_to(0), last_ns + 399'999);
  CHECK_EQ(bench.drops[SwitchDrop::watchdog], 11);
  bench.run(last_ns + 400'000);
  const int64_t before = bench.delivered[0];
  bench.model.on_frame(1, frame_to(0), last_ns + 400'001);
  bench.run(last_ns + 500'000);
  CHECK_EQ(bench.drops[SwitchDrop::watchdog], 11);
  CHECK_EQ(bench.delivered[0], before + 1);
  CHECK_EQ(bench.model.counters(bench.now).ports[0].queues[3].watchdog_storms, 1);
}

void a_storm_may_be_sent_through() {
  const SwitchConfig config = watched(WatchdogAction::forward);
  Bench bench(config);
  bench.model.on_pause(0, 3, 65535, 0);
  for (int i = 0; i < 50; ++i) bench.model.on_frame(1, frame_to(0), 0);
  bench.run(199'999);
  CHECK_EQ(bench.delivered[0], 0);
  bench.run(300'000);
  CHECK_EQ(bench.delivered[0], 50);
  CHECK_EQ(bench.dropped(), 0);
  CHECK_EQ(bench.model.counters(bench.now).ports[0].queues[3].watchdog_dropped_packets, 0);
}

// ---- links

// A link that goes down takes what is queued for it and what comes in by it; what it had paused begins anew.
void a_link_that_goes_down_forgets() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  Bench bench(config);
  bench.model.on_pause(0, 3, 65535, 0);
  for (int i = 0; i < 300; ++i) bench.model.on_frame(1, frame_to(0), 0);
  CHECK_EQ(bench.said.size(), size_t{1});
  const int64_t queued = bench.model.queued_packets();
  const int64_t dropped = bench.dropped();
  bench.model.on_link(1, false, 10);
  bench.model.on_frame(1, frame_to(0), 20);
  CHECK_EQ(bench.model.counters(20).ports[1].link_dropped_packets, 1);
  bench.model.on_link(1, true, 30);
  CHECK_EQ(bench.said.size(), size_t{2});  // its group is still over the threshold, and the new link does not know
  bench.model.on_link(0, false, 40);
  CHECK_EQ(bench.model.queued_packets(), 0);
  CHECK_EQ(bench.drops[SwitchDrop::link_down], queued + 1);
  CHECK_EQ(bench.dropped(), dropped + queued + 1);
  CHECK_EQ(bench.model.counters(40).ports[0].link_dropped_packets, queued);
  CHECK_EQ(bench.model.counters(40).pool_bytes, 0);
  bench.model.on_link(0, true, 50);
  bench.model.on_frame(1, frame_to(0), 60);
  bench.run(100'000);
  CHECK_EQ(bench.delivered[0], 1);  // the pause ended with the link
}

}  // namespace

int main() {
  a_flow_is_all_of_its_five_tuple();
  seeds_choose_for_themselves();
  packets_are_sprayed_and_flows_are_not();
  flowlets_move_after_a_gap_and_only_then();
  what_adapts_takes_the_way_with_least_to_send();
  structured_entropy_names_its_way();
  flowlets_that_adapt_leave_a_busy_way();
  faults_hit_their_ports_and_their_time_only();
  a_chance_is_kept();
  trimmed_packets_have_a_class_of_their_own();
  short_packets_are_marked_and_trimmed_ones_left_alone();
  a_storm_begins_when_it_says_and_not_earlier();
  a_storm_ends_with_the_pauses();
  a_storm_may_be_sent_through();
  a_link_that_goes_down_forgets();
  return etloop::test::failures();
}
