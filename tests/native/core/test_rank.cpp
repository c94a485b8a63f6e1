// A rank's program under execution: what becomes ready when, and what the events of a core come in.
#include "core/rank.h"

#include <vector>

#include "core/events.h"
#include "support/check.h"

using namespace etloop;

namespace {

// 0 -> 2 <- 1, 2 -> 3; all delays, which is enough for counting dependencies.
Program diamond() {
  Program program;
  program.kind.assign(4, OpKind::delay);
  program.schedule.assign(4, -1);
  program.slot.assign(4, -1);
  program.sequence.assign(4, -1);
  program.message_bytes.assign(4, 0);
  program.delay_ns.assign(4, 0);
  program.dep_offsets = {0, 0, 0, 2, 3};
  program.deps = {0, 1, 2};
  finish_program(program);
  return program;
}

void the_last_dependency_releases_and_dates_an_op() {
  const Program program = diamond();
  RankRun run(7, program, 2);
  std::vector<ReadyOp> ready;
  run.begin_iteration(100, ready);
  CHECK_EQ(ready.size(), 2u);
  CHECK_EQ(run.blocking_dependency(2), 0);
  run.complete(0, 150, ready);
  CHECK_EQ(ready.size(), 2u);
  CHECK_EQ(run.blocking_dependency(2), 1);
  run.complete(1, 120, ready);  // handled later, but it happened earlier
  CHECK_EQ(ready.size(), 3u);
  CHECK_EQ(ready[2].op, 2);
  CHECK_EQ(ready[2].rank_index, 7u);
  CHECK_EQ(ready[2].intended_ns, 150);
  CHECK(!run.waits_for_dependency(2));
  CHECK(run.waits_for_dependency(3));
  run.complete(2, 200, ready);
  CHECK(!run.iteration_over());
  run.complete(3, 180, ready);
  CHECK(run.iteration_over());
  CHECK(!run.finished());
  CHECK_EQ(run.last_completion_ns(), 200);
}

void every_iteration_begins_anew() {
  const Program program = diamond();
  RankRun run(0, program, 2);
  for (int32_t iteration = 0; iteration < 2; ++iteration) {
    std::vector<ReadyOp> ready;
    run.begin_iteration(iteration * 1000, ready);
    CHECK_EQ(run.iteration(), iteration);
    CHECK_EQ(ready.size(), 2u);
    for (size_t next = 0; next < ready.size(); ++next) {
      const ReadyOp op = ready[next];
      CHECK_EQ(op.intended_ns, iteration * 1000);
      run.complete(op.op, op.intended_ns, ready);
    }
    CHECK(run.iteration_over());
  }
  CHECK(run.finished());
}

void events_come_in_time_and_then_in_order() {
  EventHeap heap;
  CHECK_EQ(heap.next_due(), kNever);
  heap.push(30, EventKind::delay_over, 1);
  heap.push(10, EventKind::delay_over, 2);
  heap.push(10, EventKind::qp_timer, 3);
  heap.push(20, EventKind::delay_over, 4);
  Event event{};
  CHECK(!heap.pop_due(9, event));
  std::vector<uint32_t> order;
  while (heap.pop_due(25, event)) order.push_back(event.a);
  CHECK((order == std::vector<uint32_t>{2, 3, 4}));
  CHECK_EQ(heap.next_due(), 30);
}

void a_plan_that_does_not_hold_together_is_refused() {
  Program program = diamond();
  EnginePlan plan;
  plan.transport.ack_every_packets = 1;
  plan.schedules.table_offsets = {0};
  plan.schedules.lane_offsets = {0};
  plan.communicator_offsets = {0};
  plan.ports.emplace_back();
  plan.ports[0].name = std::string("p");
  plan.ports[0].addresses = {IpAddress::v4(1)};
  plan.ports[0].udp_port = 4791;
  plan.ports[0].link_bps = 1000;
  plan.ports[0].qpn_base = 0x100;
  plan.ports[0].qpn_count = 16;
  plan.programs.push_back(program);
  CHECK_EQ(validate(plan), std::string());
  plan.programs[0].deps[0] = 2;
  CHECK(validate(plan).find("programs[0]: op[2]: a dependency does not come before it") == 0);
  plan.programs[0].deps[0] = 0;
  plan.ports[0].qpn_base = 0xFFFFFF;
  CHECK(validate(plan).find("24 bits") != std::string::npos);
  plan.ports[0].qpn_base = 0x100;
  plan.ports[0].transport = 1;
  CHECK(validate(plan).find("it speaks a transport that the assignment does not have") != std::string::npos);
  plan.others.push_back(std::make_shared<EnginePlan>());
  CHECK_EQ(validate(plan), std::string());
  plan.others.push_back(std::make_shared<EnginePlan>());
  CHECK_EQ(validate(plan), std::string("other_transports: more than there are ports"));
  plan.ports.clear();
  CHECK_EQ(validate(plan), std::string("ports: none"));
}

}  // namespace

int main() {
  the_last_dependency_releases_and_dates_an_op();
  every_iteration_begins_anew();
  events_come_in_time_and_then_in_order();
  a_plan_that_does_not_hold_together_is_refused();
  return test::failures();
}
