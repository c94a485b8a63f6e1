// What a switch may be told of trimming: a DSCP of the last hop, a queue, queues and DSCPs that are not trimmed.
#include <vector>

#include "support/check.h"
#include "support/switch_bench.h"

using namespace etloop;
using namespace etloop::test;

namespace {

// Queue 3 of port 0 is held and small: after a while it refuses everything.
SwitchConfig trimming_config() {
  SwitchConfig config = config_of(3);
  config.pfc = true;
  config.trimming.frame_bytes = 128;
  config.trimming.dscp = 48;
  config.queues[3].alpha_log2 = -8;
  config.queues[6].strict = true;
  return config;
}

struct Seen {
  int64_t trimmed = 0;  // TRIM of queue 3
  int64_t dropped = 0;
  std::vector<SwitchFrame> marked;  // that left with another DSCP than they came with
};

Seen refused(const SwitchConfig& config, const SwitchFrame& frame, uint32_t frames = 200) {
  Bench bench(config);
  bench.model.on_pause(0, 3, 65535, 0);
  for (uint32_t i = 0; i < frames; ++i) bench.model.on_frame(1, frame, 0);
  bench.run(1'000'000);
  Seen seen;
  const SwitchCounters counters = bench.model.counters(1'000'000);
  for (const QueueCounters& queue : counters.ports[0].queues) {
    seen.trimmed += queue.trimmed_packets;
    seen.dropped += queue.dropped_packets;
  }
  for (const SwitchFrame& left : bench.frames) {
    if (left.dscp != frame.dscp) seen.marked.push_back(left);
  }
  return seen;
}

// A host learns where its packet was cut where its own port has a DSCP of its own (asymmetric trimming of SONiC).
void the_last_hop_has_a_dscp_of_its_own() {
  for (const bool to_host : {false, true}) {
    SwitchConfig config = trimming_config();
    config.dscp_to_class[16] = 6;
    config.trimming.last_hop_dscp = 16;
    config.ports[0].to_host = to_host;
    const Seen seen = refused(config, frame_to(0));
    CHECK(!seen.marked.empty());
    for (const SwitchFrame& frame : seen.marked) CHECK_EQ(int{frame.dscp}, to_host ? 16 : 48);
    // Neither of the two is trimmed again.
    config.trimming.frame_bytes = 64;
    for (const uint8_t dscp : {uint8_t{16}, uint8_t{48}}) {
      config.dscp_to_class[dscp] = 3;
      config.trimming.queue = 6;
      const Seen again = refused(config, frame_to(0, dscp, 128), 8000);
      CHECK(again.dropped > 0);
      CHECK_EQ(again.trimmed, 0);
    }
  }
}

// queue_index of SONiC: the copy waits there, whatever its DSCP says.
void the_copy_waits_where_it_is_told() {
  SwitchConfig config = trimming_config();
  config.trimming.queue = 5;
  Bench bench(config);
  for (const uint8_t priority : {uint8_t{3}, uint8_t{5}}) bench.model.on_pause(0, priority, 65535, 0);
  for (int i = 0; i < 200; ++i) bench.model.on_frame(1, frame_to(0), 0);
  const SwitchCounters held = bench.model.counters(0);
  CHECK(held.ports[0].queues[5].current_bytes > 0);
  CHECK_EQ(held.ports[0].queues[5].current_bytes % 128, 0);
  CHECK_EQ(held.ports[0].queues[6].current_bytes, 0);
}

// packet_discard_action of a buffer profile, and the ACL action DISABLE_TRIM: then packets are dropped as ever.
void queues_and_dscps_may_be_exempt() {
  SwitchConfig config = trimming_config();
  const Seen usual = refused(config, frame_to(0));
  CHECK(usual.trimmed > 0);
  CHECK_EQ(usual.dropped, 0);
  config.queues[3].trims = false;
  const Seen by_queue = refused(config, frame_to(0));
  CHECK_EQ(by_queue.trimmed, 0);
  CHECK_EQ(by_queue.dropped, usual.trimmed);
  config.queues[3].trims = true;
  config.trimming.exempt_dscps = uint64_t{1} << 26;
  CHECK_EQ(refused(config, frame_to(0)).trimmed, 0);
  config.dscp_to_class[27] = 3;  // beside it in the same queue
  CHECK_EQ(refused(config, frame_to(0, 27)).trimmed, usual.trimmed);
}

// What the queue of trimmed packets refuses is dropped, acknowledgements too: a cut one would find no room either.
void the_queue_of_trimmed_packets_trims_nothing() {
  SwitchConfig config = trimming_config();
  config.dscp_to_class[46] = 6;
  config.queues[6].alpha_log2 = -8;
  Bench bench(config);
  bench.model.on_pause(0, 6, 65535, 0);
  for (int i = 0; i < 2000; ++i) bench.model.on_frame(1, frame_to(0, 46, 300), 0);
  const SwitchCounters counters = bench.model.counters(0);
  CHECK(counters.ports[0].queues[6].dropped_packets > 0);
  CHECK_EQ(counters.ports[0].queues[6].trimmed_packets, 0);
}

// TRIM = TX_TRIM + DROPPED_TRIM of a port, whatever room its queue of trimmed packets has.
void what_was_trimmed_was_sent_or_lost() {
  for (const int8_t alpha_log2 : {int8_t{-8}, int8_t{-6}, int8_t{0}}) {
    SwitchConfig config = trimming_config();
    config.queues[6].alpha_log2 = alpha_log2;
    Bench bench(config);
    for (const uint8_t priority : {uint8_t{3}, uint8_t{6}}) bench.model.on_pause(0, priority, 65535, 0);
    for (int i = 0; i < 3000; ++i) bench.model.on_frame(1, frame_to(0), 0);
    for (const uint8_t priority : {uint8_t{3}, uint8_t{6}}) bench.model.on_pause(0, priority, 0, 1000);
    bench.run(10'000'000);
    int64_t trimmed = 0;
    int64_t sent = 0;
    int64_t lost = 0;
    const SwitchCounters counters = bench.model.counters(10'000'000);
    for (const QueueCounters& queue : counters.ports[0].queues) {
      trimmed += queue.trimmed_packets;
      sent += queue.trim_sent_packets;
      lost += queue.trim_dropped_packets;
    }
    CHECK_EQ(trimmed, sent + lost);
    CHECK_EQ(lost > 0, alpha_log2 < 0);
  }
}

void what_cannot_be_is_refused() {
  SwitchConfig config = trimming_config();
  config.trimming.frame_bytes = 63;
  CHECK_EQ(validate(config), "trimming.frame_bytes: must be 0, or 64 and more");
  config.trimming.frame_bytes = 128;
  config.trimming.last_hop_dscp = 64;
  CHECK_EQ(validate(config), "trimming: a DSCP is above 63");
  config.trimming.last_hop_dscp = -1;
  config.trimming.queue = 8;
  CHECK_EQ(validate(config), "trimming.queue: is above 7");
}

}  // namespace

int main() {
  the_last_hop_has_a_dscp_of_its_own();
  the_copy_waits_where_it_is_told();
  queues_and_dscps_may_be_exempt();
  the_queue_of_trimmed_packets_trims_nothing();
  what_was_trimmed_was_sent_or_lost();
  what_cannot_be_is_refused();
  return etloop::test::failures();
}
