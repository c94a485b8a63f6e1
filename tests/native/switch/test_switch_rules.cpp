// A switch by the rules that a data sheet states, to the byte and the frame: what a tester would set up on a real one.
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "support/check.h"
#include "support/switch_bench.h"

using namespace etloop;
using namespace etloop::test;

namespace {

const Nanos kSlot = line_ns(kFrame, 100 * kGbps);

// A port that is paused for a long time: what comes for it stays.
void hold(Bench& bench, size_t port, uint8_t priority = 3) { bench.model.on_pause(port, priority, 65535, bench.now); }

void let_go(Bench& bench, size_t port, Nanos at_ns, uint8_t priority = 3) {
  bench.now = at_ns;
  bench.model.on_pause(port, priority, 0, at_ns);
  bench.run(at_ns + 200'000);
}

SwitchConfig marking_config(bool at_dequeue) {
  SwitchConfig config = config_of(3);
  config.pfc = true;  // so that ports can be held
  config.queues[3].ecn = true;
  config.queues[3].mark_at_dequeue = at_dequeue;
  config.queues[3].kmin_bytes = config.queues[3].kmax_bytes = 50 * kFrame;
  config.queues[3].pmax_per_million = 1'000'000;
  return config;
}

// The length counts with the packet itself, and Kmax is the first length at which every packet is marked.
void marks_begin_at_the_threshold_to_the_byte() {
  for (const bool at_dequeue : {false, true}) {
    for (const int64_t off : {-1, 0, 1}) {
      SwitchConfig config = marking_config(at_dequeue);
      config.queues[3].kmin_bytes = config.queues[3].kmax_bytes = 50 * kFrame + off;
      Bench bench(config);
      hold(bench, 0);
      for (int i = 0; i < 50; ++i) bench.model.on_frame(1, frame_to(0), 0);
      let_go(bench, 0, 1000);
      const SwitchCounters counters = bench.model.counters(bench.now);
      CHECK_EQ(bench.frames.size(), size_t{50});
      CHECK_EQ(counters.ports[0].queues[3].ecn_marked_packets, off <= 0 ? 1 : 0);
      CHECK_EQ(counters.ports[0].queues[3].ecn_marked_bytes, off <= 0 ? kFrame : 0);
    }
  }
}

// A queue that fills and then drains: at enqueue the last to come are marked, at dequeue the first to leave.
void marks_are_set_on_the_way_in_or_out() {
  for (const bool at_dequeue : {false, true}) {
    const SwitchConfig config = marking_config(at_dequeue);
    Bench bench(config);
    hold(bench, 0);
    for (int i = 0; i < 80; ++i) bench.model.on_frame(1, frame_to(0), 0);
    let_go(bench, 0, 1000);
    CHECK_EQ(bench.frames.size(), size_t{80});
    for (size_t i = 0; i < 80; ++i) CHECK_EQ(bench.frames[i].ecn == 3, at_dequeue ? i <= 30 : i >= 49);
  }
}

void only_packets_that_can_be_marked_are() {
  const SwitchConfig config = marking_config(true);
  Bench bench(config);
  hold(bench, 0);
  for (int i = 0; i < 80; ++i) {
    SwitchFrame frame = frame_to(0);
    frame.ecn = static_cast<uint8_t>(i % 4);
    bench.model.on_frame(1, frame, 0);
  }
  let_go(bench, 0, 1000);
  int64_t marked = 0;
  for (size_t i = 0; i < 80; ++i) {
    const auto was = static_cast<uint8_t>(i % 4);
    CHECK_EQ(bench.frames[i].ecn, was == 0 || was == 3 || i > 30 ? was : uint8_t{3});
    marked += bench.frames[i].ecn == 3 && was != 3 ? 1 : 0;
  }
  // One that carries the mark already is not counted as marked here.
  CHECK_EQ(bench.model.counters(bench.now).ports[0].queues[3].ecn_marked_packets, marked);
}

// A standing queue just above Kmin, halfway and just below Kmax; 400,000 packets each, so that 1 % off the line shows.
void marks_keep_to_the_line() {
  constexpr int64_t kFrames = 400'000;
  for (const int64_t depth : {int64_t{50}, int64_t{53}, int64_t{100}, int64_t{149}}) {
    SwitchConfig config = config_of(3);
    config.queues[3].ecn = true;
    config.queues[3].kmin_bytes = 50 * kFrame;
    config.queues[3].kmax_bytes = 150 * kFrame;
    config.queues[3].pmax_per_million = 500'000;
    Bench bench(config);
    for (int64_t i = 0; i <= depth; ++i) bench.model.on_frame(1, frame_to(0), 0);
    for (int64_t i = 1; i <= kFrames; ++i) {
      const Nanos at_ns = LineSpan::of(i * (kFrame + kLineOverheadBytes), 100 * kGbps).rounded_up_ns();
      bench.advance(at_ns);
      bench.model.on_frame(1, frame_to(0), at_ns);
      bench.frames.clear();
      bench.starts_ns.clear();
    }
    const double p = 0.5 * static_cast<double>(depth - 50) / 100;
    const double expected = p * kFrames;
    const auto found = static_cast<double>(bench.model.counters(bench.now).ports[0].queues[3].ecn_marked_packets);
    // While it filled, the first packets found less; four standard deviations, and the seed is fixed.
    CHECK(std::abs(found - expected) <= 4 * std::sqrt(expected * (1 - p)) + 50 * p);
  }
}

// ---- buffer

// A lossy group alone, alpha 1: of a pool P it takes half, then half is free and no more fits.
void thresholds_are_a_share_of_what_is_free() {
  struct Row {
    int8_t group_alpha;
    int8_t queue_alpha;
    double part;  // of the pool
  };
  for (const Row& row : {Row{0, 3, 0.5}, Row{1, 3, 2.0 / 3}, Row{-3, 3, 1.0 / 9}, Row{8, 0, 0.5}, Row{8, -2, 0.2}}) {
    SwitchConfig config = config_of(3);
    config.pfc = true;
    config.groups[3].alpha_log2 = row.group_alpha;
    config.queues[3].alpha_log2 = row.queue_alpha;
    Bench bench(config);
    hold(bench, 0);
    for (int i = 0; i < 10'000; ++i) bench.model.on_frame(1, frame_to(0), 0);
    const int64_t found = bench.model.counters(0).ports[1].groups[3].current_bytes;
    CHECK(std::abs(static_cast<double>(found) - row.part * static_cast<double>(config.buffer_bytes)) < 2 * kFrame);
  }
}

// What other ports take makes the thresholds of all lower.
void a_pool_is_shared_by_all_ports() {
  SwitchConfig config = config_of(4);
  config.pfc = true;
  config.groups[3].alpha_log2 = 0;
  Bench bench(config);
  hold(bench, 0);
  for (int i = 0; i < 10'000; ++i) {
    for (const size_t port : {size_t{1}, size_t{2}, size_t{3}}) bench.model.on_frame(port, frame_to(0), 0);
  }
  const SwitchCounters counters = bench.model.counters(0);
  for (const size_t port : {size_t{1}, size_t{2}, size_t{3}}) {
    CHECK(std::abs(counters.ports[port].groups[3].current_bytes - config.buffer_bytes / 4) < 2 * kFrame);
  }
}

// A reserve is there for its port however full the pool is, and the pool is smaller by all of them.
void a_reserve_is_kept_for_its_port() {
  SwitchConfig config = config_of(4);
  lossless(config, 0);
  config.groups[3].alpha_log2 = 8;
  config.groups[3].reserved_bytes = 10 * kFrame;
  config.buffer_bytes = 1 << 20;  // 1/257 of what is shared is less than a frame
  Bench bench(config);
  hold(bench, 0);
  for (int i = 0; i < 10'000; ++i) bench.model.on_frame(1, frame_to(0), 0);
  const int64_t held = bench.model.counters(0).ports[1].groups[3].current_bytes;
  CHECK(held <= config.buffer_bytes - 3 * 10 * kFrame);
  CHECK(held > config.buffer_bytes - 3 * 10 * kFrame - 2 * kFrame);
  for (int i = 0; i < 20; ++i) bench.model.on_frame(2, frame_to(0), 0);
  const SwitchCounters counters = bench.model.counters(0);
  const int64_t own = counters.ports[2].groups[3].current_bytes;
  CHECK(own == 10 * kFrame);
  CHECK_EQ(counters.ports[2].groups[3].dropped_packets + own / kFrame, 20);
  CHECK_EQ(counters.ports[2].groups[3].dropped_bytes, counters.ports[2].groups[3].dropped_packets * kFrame);
}

void a_queue_has_what_is_reserved_for_it() {
  SwitchConfig config = config_of(3);
  config.pfc = true;
  config.groups[3].alpha_log2 = 8;
  config.queues[3].alpha_log2 = -8;
  config.queues[3].reserved_bytes = 20 * kFrame;
  Bench bench(config);
  hold(bench, 0);
  for (int i = 0; i < 100; ++i) bench.model.on_frame(1, frame_to(0), 0);
  const SwitchCounters counters = bench.model.counters(0);
  // 20 frames, and what 1/256 of the free pool lets in beside.
  const int64_t most = 20 + config.buffer_bytes / 256 / kFrame;
  const QueueCounters& queue = counters.ports[0].queues[3];
  CHECK(queue.current_bytes > (most - 1) * kFrame && queue.current_bytes <= most * kFrame);
  CHECK_EQ(queue.dropped_packets + queue.current_bytes / kFrame, 100);
  CHECK_EQ(queue.dropped_bytes, queue.dropped_packets * kFrame);
  CHECK_EQ(queue.watermark_bytes, queue.current_bytes);
  let_go(bench, 0, 1000);
  bench.model.on_frame(1, frame_to(0), bench.now);  // marks that are left behind stay
  bench.run(bench.now + 10'000);
  const SwitchCounters after = bench.model.counters(bench.now);
  CHECK_EQ(after.ports[0].tx_bytes, queue.current_bytes + kFrame);
  CHECK_EQ(after.ports[0].queues[3].bytes, after.ports[0].tx_bytes);
  CHECK_EQ(after.ports[0].queues[3].watermark_bytes, queue.current_bytes);
  CHECK_EQ(after.pool_watermark_bytes, queue.current_bytes);
  CHECK_EQ(after.pool_bytes, 0);
}

// ---- pauses

// Headroom for k frames takes k after the threshold and not one more; a queue's own limit does not bind lossless traffic.
void headroom_holds_what_it_says_to_the_frame() {
  for (const int64_t off : {-1, 0}) {
    SwitchConfig config = config_of(3);
    lossless(config, 12 * kFrame + off);
    config.queues[3].alpha_log2 = -8;
    Bench bench(config);
    hold(bench, 0);
    for (int i = 0; i < 1000; ++i) bench.model.on_frame(1, frame_to(0), 0);
    const SwitchCounters counters = bench.model.counters(0);
    const GroupCounters& group = counters.ports[1].groups[3];
    CHECK_EQ(group.headroom_watermark_bytes, (12 + off) * kFrame);
    const int64_t pool = config.buffer_bytes - 3 * (12 * kFrame + off);
    CHECK(std::abs(group.shared_watermark_bytes - pool / 17) <= kFrame);
    CHECK_EQ(group.current_bytes, group.shared_watermark_bytes + group.headroom_watermark_bytes);
    CHECK_EQ(group.dropped_packets, 1000 - group.current_bytes / kFrame);
    CHECK_EQ(counters.ports[0].queues[3].dropped_packets, 0);
  }
}

// A pool of headroom: no group has more than its own, all together have no more than the pool, and what leaves gives it back.
void headroom_of_a_pool_is_shared_by_all_ports() {
  SwitchConfig config = config_of(4);
  lossless(config, 12 * kFrame);
  config.headroom_pool_bytes = 20 * kFrame;
  config.buffer_bytes = 40 * kFrame;  // four ports' own headroom would not even fit
  CHECK(validate(config).empty());
  CHECK_EQ(set_aside_bytes(config), 20 * kFrame);
  Bench bench(config);
  const auto fill = [&](Nanos at_ns) {
    hold(bench, 0);
    for (const size_t port : {size_t{1}, size_t{2}, size_t{3}}) {
      for (int i = 0; i < 100; ++i) bench.model.on_frame(port, frame_to(0), at_ns);
    }
    const SwitchCounters counters = bench.model.counters(at_ns);
    CHECK_EQ(counters.ports[1].groups[3].headroom_bytes, 12 * kFrame);
    CHECK_EQ(counters.ports[2].groups[3].headroom_bytes, 8 * kFrame);
    CHECK_EQ(counters.ports[3].groups[3].headroom_bytes, 0);
    CHECK(counters.ports[3].groups[3].dropped_packets > 90);
  };
  fill(0);
  let_go(bench, 0, 1000);
  for (const size_t port : {size_t{1}, size_t{2}}) {
    CHECK_EQ(bench.model.counters(bench.now).ports[port].groups[3].current_bytes, 0);
  }
  fill(bench.now);
  config.headroom_pool_bytes = 41 * kFrame;
  CHECK(validate(config).find("reserves and headroom") != std::string::npos);
  config.headroom_pool_bytes = -2;
  CHECK(validate(config).find("headroom_pool_bytes") != std::string::npos);
}

// Xoff once the group touches its threshold and not a frame earlier; xon once it is the offset below, and headroom empty.
void xoff_and_xon_leave_at_their_thresholds() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  config.groups[3].resume_offset_bytes = 20 * kFrame;
  Bench bench(config);
  hold(bench, 0);
  const auto threshold = [&](int64_t shared) { return (config.buffer_bytes - 300 * kFrame - shared) >> 4; };
  int64_t taken = 0;
  while (bench.said.empty() && taken < 1000) {
    bench.model.on_frame(1, frame_to(0), 0);
    ++taken;
    const int64_t shared = bench.model.counters(0).ports[1].groups[3].shared_watermark_bytes;
    const bool in_headroom = bench.model.counters(0).ports[1].groups[3].headroom_watermark_bytes > 0;
    CHECK_EQ(!bench.said.empty(), in_headroom || shared >= threshold(shared));
  }
  CHECK_EQ(bench.said.size(), size_t{1});
  CHECK(bench.said[0].quanta > 0);
  CHECK_EQ(bench.said[0].end_ns, line_ns(kPauseFrameBytes, 100 * kGbps));  // before all queues
  for (int i = 0; i < 40; ++i) bench.model.on_frame(1, frame_to(0), 0);    // into headroom
  bench.model.on_pause(0, 3, 0, 1000);
  while (bench.said.size() == 1) {
    const int64_t before = bench.model.counters(0).ports[1].groups[3].current_bytes;
    CHECK(before > 0);
    if (before == 0) return;
    bench.advance(bench.events.next_ns());
  }
  CHECK_EQ(bench.said[1].quanta, uint16_t{0});
  const GroupCounters after = bench.model.counters(0).ports[1].groups[3];
  const int64_t shared = after.current_bytes - after.headroom_bytes;
  CHECK_EQ(after.headroom_bytes, 0);
  CHECK(shared + 20 * kFrame <= threshold(shared));
  CHECK(shared + kFrame + 20 * kFrame > threshold(shared + kFrame));
}

// Ten frames of a pool of twenty are just the threshold at alpha 1: that is touched, and not only passed.
void a_threshold_that_is_touched_pauses() {
  SwitchConfig config = config_of(3);
  lossless(config, 10 * kFrame);
  config.groups[3].alpha_log2 = 0;
  config.buffer_bytes = 50 * kFrame;
  Bench bench(config);
  hold(bench, 0);
  for (int i = 1; i <= 10; ++i) {
    CHECK(bench.said.empty());
    bench.model.on_frame(1, frame_to(0), 0);
  }
  CHECK_EQ(bench.said.size(), size_t{1});
  CHECK_EQ(bench.model.counters(0).ports[1].groups[3].headroom_bytes, 0);
}

// A pause that lasts is said again before the one before it is over; one that waits for a frame waits for one only.
void a_pause_is_said_again_while_it_lasts() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  config.pause_quanta = 1000;
  Bench bench(config);
  hold(bench, 0);
  for (int i = 0; i < 300; ++i) bench.model.on_frame(1, frame_to(0), 0);
  bench.run(100'000);
  const Nanos lasts_ns = pause_ns(1000, 100 * kGbps);
  CHECK(static_cast<Nanos>(bench.said.size()) >= 100'000 / lasts_ns);
  for (size_t i = 1; i < bench.said.size(); ++i) {
    CHECK_EQ(bench.said[i].quanta, uint16_t{1000});
    CHECK(bench.said[i].end_ns - bench.said[i - 1].end_ns < lasts_ns);
  }
  // A frame is put on the line of the port that is to be paused; the next pause goes right after it.
  const Nanos at_ns = bench.said.back().decided_ns + lasts_ns / 2 - 100;
  bench.run(at_ns);
  bench.model.on_frame(2, frame_to(1, 0), at_ns);
  const size_t before = bench.said.size();
  bench.run(at_ns + 200);
  CHECK_EQ(bench.said.size(), before + 1);
  const LineSpan both = LineSpan::of(kFrame + kPauseFrameBytes + 2 * kLineOverheadBytes, 100 * kGbps);
  CHECK_EQ(bench.said.back().end_ns, at_ns + both.rounded_up_ns());
}

// Maps are looked at, one by one: DSCP 58 is class 1, its queue 2, its group 4; the group pauses with 5, and a received 7
// holds queue 2.
void every_map_is_its_own() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  config.groups[4] = config.groups[3];
  config.dscp_to_class[58] = 1;
  config.class_to_queue[1] = 2;
  config.class_to_group[1] = 4;
  config.group_to_priority[4] = 5;
  config.priority_to_queue[7] = 2;
  Bench bench(config);
  hold(bench, 0, 7);
  for (int i = 0; i < 300; ++i) bench.model.on_frame(1, frame_to(0, 58), 0);
  const SwitchCounters counters = bench.model.counters(1000);
  CHECK_EQ(bench.frames.size(), size_t{0});
  CHECK(counters.ports[0].queues[2].current_bytes > 0);
  CHECK_EQ(counters.ports[0].queues[2].current_bytes, counters.ports[1].groups[4].current_bytes);
  CHECK_EQ(counters.ports[0].queues[2].paused_ns, 1000);
  CHECK_EQ(counters.ports[1].pfc_tx[5], 1);
  CHECK_EQ(counters.ports[0].pfc_rx[7], 1);
  CHECK_EQ(bench.said.size(), size_t{1});
  CHECK_EQ(bench.said[0].priority, 5);
}

// Two groups that pause one priority: it is let go when both have room.
void a_priority_of_two_groups_waits_for_both() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  config.groups[4] = config.groups[3];
  config.dscp_to_class[40] = 4;
  config.group_to_priority[4] = 3;
  Bench bench(config);
  hold(bench, 0, 3);
  hold(bench, 0, 4);
  for (int i = 0; i < 300; ++i) bench.model.on_frame(1, frame_to(0, 26), 0);
  for (int i = 0; i < 300; ++i) bench.model.on_frame(1, frame_to(0, 40), 0);
  let_go(bench, 0, 1000, 3);
  CHECK(bench.model.counters(0).ports[1].groups[3].current_bytes == 0);
  CHECK(bench.said.back().quanta > 0);
  let_go(bench, 0, bench.now, 4);
  CHECK_EQ(bench.said.back().quanta, uint16_t{0});
}

// ---- schedule

// Shares of bytes by weight whatever the lengths of frames, among three queues; a queue that pauses saves nothing up.
void weights_are_shares_of_bytes() {
  SwitchConfig config = config_of(4);
  for (uint8_t i = 0; i < 8; ++i) config.dscp_to_class[i] = i;
  config.queues[0].weight = 7;
  config.queues[1].weight = 20;
  config.queues[2].weight = 11;
  Bench bench(config);
  bench.add(1, frame_to(0, 0, 9000), 0);
  bench.add(2, frame_to(0, 1, 300), 1);
  bench.add(3, frame_to(0, 2, 4170), 2);
  bench.run(100'000'000);
  const SwitchCounters counters = bench.model.counters(bench.now);
  const auto bytes = [&](size_t queue) { return static_cast<double>(counters.ports[0].queues[queue].bytes); };
  const double all = bytes(0) + bytes(1) + bytes(2);
  CHECK(std::abs(bytes(0) / all * 38 / 7 - 1) < 0.003);
  CHECK(std::abs(bytes(1) / all * 38 / 20 - 1) < 0.003);
  CHECK(std::abs(bytes(2) / all * 38 / 11 - 1) < 0.003);
}

void strict_queues_go_by_number_and_do_not_block() {
  SwitchConfig config = config_of(3);
  config.pfc = true;
  for (uint8_t i = 0; i < 8; ++i) config.dscp_to_class[i] = i;
  config.queues[5].strict = config.queues[6].strict = true;
  Bench bench(config);
  for (const uint8_t priority : {uint8_t{1}, uint8_t{5}, uint8_t{6}}) hold(bench, 0, priority);
  for (const uint8_t dscp : {uint8_t{1}, uint8_t{5}, uint8_t{6}}) {
    for (int i = 0; i < 4; ++i) bench.model.on_frame(1, frame_to(0, dscp), 0);
  }
  for (const uint8_t priority : {uint8_t{1}, uint8_t{5}}) bench.model.on_pause(0, priority, 0, 0);
  bench.run(2 * kSlot);
  bench.model.on_pause(0, 6, 0, bench.now);
  bench.run(1'000'000);
  std::vector<int> order;
  for (const SwitchFrame& frame : bench.frames) order.push_back(frame.dscp);
  // The first went alone, when its queue was let go; 5 does not wait for the paused 6, and gives way to it afterwards.
  CHECK((order == std::vector<int>{1, 5, 5, 6, 6, 6, 6, 5, 5, 1, 1, 1}));
}

// A queue that had little to send for a while, between two that had much, has no more than its share when it has much.
void an_idle_queue_saves_nothing_up() {
  SwitchConfig config = config_of(4);
  for (uint8_t i = 0; i < 8; ++i) config.dscp_to_class[i] = i;
  config.queues[1].weight = config.queues[2].weight = config.queues[3].weight = 100;
  Bench bench(config);
  bench.add(1, frame_to(0, 2), 2);
  bench.add(3, frame_to(0, 3), 3);
  for (int i = 1; i <= 20; ++i) {
    bench.run(i * 150 * kSlot);
    bench.model.on_frame(2, frame_to(0, 1), bench.now);
  }
  bench.run(21 * 150 * kSlot);
  const size_t before = bench.frames.size();
  for (int i = 0; i < 500; ++i) bench.model.on_frame(2, frame_to(0, 1), bench.now);
  bench.run(21 * 150 * kSlot + 400 * kSlot);
  int in_a_row = 0;
  int most = 0;
  for (size_t i = before; i < bench.frames.size(); ++i) {
    in_a_row = bench.frames[i].dscp == 1 ? in_a_row + 1 : 0;
    most = std::max(most, in_a_row);
  }
  CHECK(most >= 49 && most <= 50);  // 100 quanta of 2,048 bytes
}

// ---- ports that differ

// Groups belong to the port that packets arrive at, queues to the port that they leave by.
void ports_have_rules_of_their_own() {
  SwitchConfig config = marking_config(false);
  lossless(config, 100 * kFrame);
  PortRules rules = config;
  rules.queues[3].kmin_bytes = rules.queues[3].kmax_bytes = 10 * kFrame;
  rules.groups[3].headroom_bytes = 20 * kFrame;
  config.port_rules = {rules};
  config.ports[2].rules = 1;
  config.buffer_bytes = 1000 * kFrame;
  CHECK(validate(config).empty());
  CHECK_EQ(set_aside_bytes(config), 220 * kFrame);
  for (const size_t out : {size_t{0}, size_t{2}}) {
    Bench bench(config);
    hold(bench, out);
    for (int i = 0; i < 60; ++i) bench.model.on_frame(1, frame_to(static_cast<uint32_t>(out)), 0);
    CHECK_EQ(bench.model.counters(0).ports[out].queues[3].ecn_marked_packets, out == 2 ? 51 : 11);
  }
  for (const size_t in : {size_t{1}, size_t{2}}) {
    Bench bench(config);
    hold(bench, 0);
    for (int i = 0; i < 1000; ++i) bench.model.on_frame(in, frame_to(0), 0);
    CHECK_EQ(bench.model.counters(0).ports[in].groups[3].headroom_watermark_bytes, (in == 2 ? 20 : 100) * kFrame);
  }
}

// A port without pauses neither sends nor obeys them, whatever the other ports do.
void pauses_may_be_off_at_a_port() {
  SwitchConfig config = config_of(3);
  lossless(config, 100 * kFrame);
  PortRules rules = config;
  rules.pfc = false;
  config.port_rules = {rules};
  config.ports[2].rules = 1;
  Bench bench(config);
  hold(bench, 2);
  bench.model.on_frame(1, frame_to(2), 0);
  bench.run(200'000);
  CHECK_EQ(bench.frames.size(), size_t{1});
  hold(bench, 0);
  for (int i = 0; i < 1000; ++i) bench.model.on_frame(2, frame_to(0), bench.now);
  CHECK(bench.said.empty());
  for (int i = 0; i < 1000; ++i) bench.model.on_frame(1, frame_to(0), bench.now);
  CHECK_EQ(bench.said.size(), size_t{1});
}

// Strict at one port, weighted at the other: the same packets leave in another order.
void queues_are_served_by_the_rules_of_their_port() {
  SwitchConfig config = config_of(3);
  config.pfc = true;
  config.class_to_queue[1] = 1;
  config.dscp_to_class[8] = 1;
  PortRules rules = config;
  rules.queues[1].strict = true;
  config.port_rules = {rules};
  config.ports[2].rules = 1;
  for (const size_t out : {size_t{0}, size_t{2}}) {
    Bench bench(config);
    hold(bench, out);
    hold(bench, out, 1);
    for (int i = 0; i < 20; ++i) bench.model.on_frame(1, frame_to(static_cast<uint32_t>(out)), 0);
    for (int i = 0; i < 20; ++i) {
      SwitchFrame frame = frame_to(static_cast<uint32_t>(out));
      frame.dscp = 8;
      bench.model.on_frame(1, frame, 0);
    }
    bench.now = 1000;
    bench.model.on_pause(out, 1, 0, 1000);
    bench.model.on_pause(out, 3, 0, 1000);
    bench.run(201'000);
    CHECK_EQ(bench.frames.size(), size_t{40});
    size_t first = 0;
    while (first < 40 && bench.frames[first].dscp == 8) ++first;
    CHECK_EQ(first == 20, out == 2);
  }
}

void rules_that_are_not_there_are_refused() {
  SwitchConfig config = config_of(3);
  config.ports[1].rules = 1;
  CHECK(validate(config).find("ports[1].rules") != std::string::npos);
  config.port_rules = {config};
  CHECK(validate(config).empty());
  config.port_rules[0].queues[2].weight = 0;
  CHECK(validate(config).find("port_rules[0].queues[2].weight") != std::string::npos);
}

}  // namespace

int main() {
  marks_begin_at_the_threshold_to_the_byte();
  marks_are_set_on_the_way_in_or_out();
  only_packets_that_can_be_marked_are();
  marks_keep_to_the_line();
  thresholds_are_a_share_of_what_is_free();
  a_pool_is_shared_by_all_ports();
  a_reserve_is_kept_for_its_port();
  a_queue_has_what_is_reserved_for_it();
  headroom_holds_what_it_says_to_the_frame();
  headroom_of_a_pool_is_shared_by_all_ports();
  xoff_and_xon_leave_at_their_thresholds();
  a_threshold_that_is_touched_pauses();
  a_pause_is_said_again_while_it_lasts();
  every_map_is_its_own();
  a_priority_of_two_groups_waits_for_both();
  weights_are_shares_of_bytes();
  strict_queues_go_by_number_and_do_not_block();
  an_idle_queue_saves_nothing_up();
  ports_have_rules_of_their_own();
  pauses_may_be_off_at_a_port();
  queues_are_served_by_the_rules_of_their_port();
  rules_that_are_not_there_are_refused();
  return etloop::test::failures();
}
