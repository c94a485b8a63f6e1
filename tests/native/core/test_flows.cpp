// Congestion control of a port's queue pairs: without it nothing is held back, with it a queue pair rests
// until its pace lets it go on, and rates are written down when they are due.
#include "core/packets/flows.h"

#include <string>
#include <vector>

#include "cc/registry.h"
#include "support/check.h"
#include "support/core_parts.h"

using namespace etloop;

namespace {

class StillClock final : public Clock {
 public:
  Nanos now() override { return now_ns; }
  Nanos now_ns = 0;
};

PacketRun middles(uint32_t count) {
  PacketRun run;
  run.head.opcode = wire::Opcode::write_middle;
  run.head.payload_bytes = test::kMtu;
  run.count = count;
  return run;
}

void without_an_algorithm_everything_leaves() {
  test::CoreParts port(test::one_send(4096), 0);
  port.open();
  StillClock clock;
  PacketRun run = middles(7);
  CHECK_EQ(port.flows.allowed(0, run, 0, clock), 7u);
  CHECK_EQ(port.flows.settled_until_ns(0), kNever);
  CHECK(!port.flows.notified(0, 10));
  CHECK_EQ(port.events.next_due(), kNever);
}

void a_queue_pair_that_was_slowed_down_rests_until_its_timer() {
  EnginePlan plan = test::one_send(4096);
  plan.congestion.algorithm = cc::find_built_in("dcqcn");
  std::vector<std::string> mistakes;
  plan.congestion.parameters = cc::parameter_values(*plan.congestion.algorithm, "", {}, mistakes);
  test::CoreParts port(plan, 0);
  port.open();
  StillClock clock;
  PacketRun first = middles(1);
  CHECK_EQ(port.flows.allowed(0, first, 0, clock), 1u);
  port.flows.sent(0, first, 1, 0);
  CHECK(port.flows.notified(0, 0));  // the rate is cut when the algorithm next looks
  clock.now_ns = 10'000;
  uint32_t sent = 0;
  for (; sent < 10'000; ++sent) {
    PacketRun run = middles(1);
    if (port.flows.allowed(0, run, 0, clock) == 0) break;
    port.flows.sent(0, run, 1, clock.now_ns);
  }
  CHECK(sent > 0 && sent < 10'000);
  Event event{};
  CHECK(port.events.pop_due(kNever - 1, event));
  CHECK(event.kind == EventKind::flow_timer);
  CHECK_EQ(event.a, 0u);
  port.flows.on_timer(event.a, event.at_ns);
  PacketRun other = middles(1);
  CHECK_EQ(port.flows.allowed(1, other, 0, clock), 1u);  // the other queue pair was not slowed down
}

void a_series_is_written_at_its_times() {
  EnginePlan plan = test::one_send(4096);
  plan.series.interval_ns = 1000;
  plan.series.queue_pairs = 1;
  test::CoreParts port(plan, 0);
  port.open();
  port.flows.start(500);
  Event event{};
  CHECK(port.events.pop_due(500, event));
  CHECK(event.kind == EventKind::series_due);
  port.flows.write_series(500);
  CHECK_EQ(port.flows.series()->rows().size(), 1u);
  CHECK_EQ(port.flows.series()->rows()[0].time_ns, 500);
  CHECK_EQ(port.flows.series()->rows()[0].local_qpn, 0x100u);
  CHECK_EQ(port.events.next_due(), 1500);
}

void receiving_ends_have_no_series() {
  EnginePlan plan = test::one_send(4096);
  plan.series.interval_ns = 1000;
  test::CoreParts port(plan, 1);
  port.open();
  CHECK(port.flows.series() == nullptr);
  port.flows.start(500);
  CHECK_EQ(port.events.next_due(), kNever);
}

}  // namespace

int main() {
  without_an_algorithm_everything_leaves();
  a_queue_pair_that_was_slowed_down_rests_until_its_timer();
  a_series_is_written_at_its_times();
  receiving_ends_have_no_series();
  return test::failures();
}
