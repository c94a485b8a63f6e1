// Rules against what passes: which packets are selected, what becomes of them, and that the rest is untouched.
#include "core/packets/faults.h"

#include <memory>
#include <utility>
#include <vector>

#include "support/check.h"

using namespace etloop;
using wire::Opcode;

namespace {

class RecordingPort final : public TxPort {
 public:
  TxResult send(const PacketRun& run) override {
    if (room == 0) return TxResult::would_block;
    --room;
    ++sends;
    for (uint32_t i = 0; i < run.count; ++i) {
      PacketRun single = run;
      single.count = 1;
      single.head.psn += i;
      if (run.count > 1) single.head.ack_req = (single.head.psn + 1) % run.ack_every == 0;
      content.push_back(run.head.payload == nullptr ? 0 : run.head.payload[0]);
      single.head.payload = nullptr;
      sent.push_back(single);
    }
    return TxResult::sent;
  }
  std::string last_error() const override { return "refused"; }
  uint32_t max_run(uint32_t) const override { return 16; }

  std::vector<uint32_t> psns() const {
    std::vector<uint32_t> found;
    for (const PacketRun& run : sent) found.push_back(run.head.psn);
    return found;
  }

  int room = 1 << 20;
  int sends = 0;
  std::vector<PacketRun> sent;
  std::vector<uint8_t> content;
};

PacketRun middles(uint32_t psn, uint32_t count, FlowId flow = 0) {
  PacketRun run;
  run.flow = flow;
  run.head.opcode = Opcode::write_middle;
  run.head.payload_bytes = 1024;
  run.head.psn = psn;
  run.head.ack_req = count == 1 && (psn + 1) % 4 == 0;
  run.count = count;
  run.ack_every = 4;
  return run;
}

struct Setup {
  explicit Setup(std::vector<FaultRule> with) : rules(std::move(with)), faults(rules, {0x68, 2}, {0xC0, 6}) {
    faults.add_end({0, 1, 0, 0x11, 0, 0x6A});
    faults.add_end({0, 1, 1, 0x21, 1, 0x6A});
    faults.add_end({2, 1, 0, 0x31, 2, 0x6A});
    faults.attach(port, 0);
  }
  std::vector<FaultRule> rules;
  RecordingPort port;
  FaultInjector faults;
};

using Psns = std::vector<uint32_t>;

void numbers_select_packets() {
  struct Row {
    const char* why;
    FaultRule rule;
    Psns left;
  };
  const Row rows[] = {
      {"the third", {.first = 3, .last = 3}, {0, 1, 3, 4, 5, 6, 7}},
      {"a range", {.first = 2, .last = 4}, {0, 4, 5, 6, 7}},
      {"every third from the second on", {.first = 2, .every = 3}, {0, 2, 3, 5, 6}},
      {"all", {}, {}},
      {"none, for it looks at acknowledgements", {.packets = FaultPackets::ack}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"none, for it is of another connection", {.src_rank = 2}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"none, for it is of another queue pair", {.queue_pair = 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"none, for it is of what is received", {.direction = FaultDirection::received}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"the last two, of this very connection", {.src_rank = 0, .dst_rank = 1, .queue_pair = 0, .first = 7}, {0, 1, 2, 3, 4, 5}},
  };
  for (const Row& row : rows) {
    const int before = test::failures();
    for (const uint32_t in_run : {8U, 1U}) {  // a run is taken apart as if it had come one by one
      Setup setup({row.rule});
      for (uint32_t psn = 0; psn < 8; psn += in_run) CHECK(setup.faults.send(middles(psn, in_run)) == TxResult::sent);
      CHECK(setup.port.psns() == row.left);
      for (const PacketRun& run : setup.port.sent) CHECK_EQ(run.head.ack_req, (run.head.psn + 1) % 4 == 0);
      CHECK_EQ(setup.faults.counts()[0], static_cast<int64_t>(8 - row.left.size()));
      CHECK_EQ(setup.faults.count_of(0), static_cast<int64_t>(8 - row.left.size()));
    }
    if (test::failures() > before) std::cerr << "  in: " << row.why << '\n';
  }
}

void what_no_rule_concerns_passes_in_one_piece() {
  Setup setup({FaultRule{.src_rank = 2}});
  setup.faults.send(middles(0, 16));
  CHECK_EQ(setup.port.sends, 1);
}

void chance_is_the_same_for_the_same_seed_and_near_its_share() {
  const FaultRule rule{.chance_per_million = 100'000, .seed = 5};
  Setup one({rule});
  Setup two({rule});
  FaultRule reseeded = rule;
  reseeded.seed = 6;
  Setup other({reseeded});
  for (Setup* setup : {&one, &two, &other}) {
    for (uint32_t psn = 0; psn < 20'000; psn += 16) setup->faults.send(middles(psn, 16));
  }
  CHECK(one.port.psns() == two.port.psns());
  CHECK(one.port.psns() != other.port.psns());
  const int64_t dropped = one.faults.counts()[0];
  CHECK(dropped > 1'800 && dropped < 2'200);  // 2000 expected, 42 the standard deviation
}

void each_action_does_what_it_says() {
  const FaultRule third{.first = 3, .last = 3};
  const auto with = [&third](FaultAction action, int64_t delay_ns = 0, uint32_t behind = 0) {
    FaultRule rule = third;
    rule.action = action;
    rule.delay_ns = delay_ns;
    rule.behind_packets = behind;
    return rule;
  };
  {
    Setup setup({with(FaultAction::duplicate)});
    setup.faults.send(middles(0, 5));
    CHECK(setup.port.psns() == Psns({0, 1, 2, 2, 3, 4}));
  }
  {
    Setup setup({with(FaultAction::reorder, 1'000, 2)});
    setup.faults.send(middles(0, 8));
    CHECK(setup.port.psns() == Psns({0, 1, 3, 4, 2, 5, 6, 7}));
  }
  {
    Setup setup({with(FaultAction::reorder, 1'000, 5)});  // too little follows: time sets it free
    setup.faults.send(middles(0, 4));
    CHECK(setup.port.psns() == Psns({0, 1, 3}));
    CHECK_EQ(setup.faults.next_due(), 1'000);
    setup.faults.attach(setup.port, 999);
    CHECK_EQ(setup.port.sent.size(), 3u);
    setup.faults.attach(setup.port, 1'000);
    CHECK(setup.port.psns() == Psns({0, 1, 3, 2}));
    CHECK_EQ(setup.faults.next_due(), kNever);
  }
  {
    Setup setup({with(FaultAction::delay, 500)});
    setup.faults.send(middles(0, 8));
    setup.faults.attach(setup.port, 500);
    CHECK(setup.port.psns() == Psns({0, 1, 3, 4, 5, 6, 7, 2}));
  }
  {
    Setup setup({with(FaultAction::corrupt_icrc)});
    setup.faults.send(middles(0, 4));
    for (const PacketRun& run : setup.port.sent) CHECK_EQ(run.corrupt_icrc, run.head.psn == 2);
  }
  {
    Setup setup({with(FaultAction::mark_ce)});
    setup.faults.send(middles(0, 4));
    for (const PacketRun& run : setup.port.sent) CHECK_EQ(run.traffic_class, run.head.psn == 2 ? 0x6B : kFlowClass);
  }
}

void content_that_is_held_back_is_kept() {
  Setup setup({{.action = FaultAction::delay, .packets = FaultPackets::clear_to_send, .delay_ns = 10}});
  std::vector<uint8_t> grant(64, 0x42);
  PacketRun run = middles(0, 1);
  run.head.opcode = Opcode::write_only;
  run.head.payload = grant.data();
  run.head.payload_bytes = 64;
  setup.faults.send(run);
  grant.assign(64, 0);  // the queue pair makes its next one in the same place
  setup.faults.attach(setup.port, 10);
  CHECK_EQ(setup.port.content.size(), 1u);
  CHECK_EQ(setup.port.content[0], 0x42);
}

void a_port_that_is_full_gets_the_rest_first() {
  Setup setup({{.action = FaultAction::duplicate, .first = 2, .last = 2}});
  setup.port.room = 1;
  CHECK(setup.faults.send(middles(0, 4)) == TxResult::sent);  // taken, though most of it still waits
  CHECK(setup.port.psns() == Psns({0}));
  CHECK(setup.faults.send(middles(4, 1)) == TxResult::would_block);
  setup.port.room = 100;
  CHECK(setup.faults.attach(setup.port, 1) == TxResult::sent);
  CHECK(setup.faults.send(middles(4, 1)) == TxResult::sent);
  CHECK(setup.port.psns() == Psns({0, 1, 1, 2, 3, 4}));
}

void received_packets_are_lost_repeated_marked_and_held() {
  wire::Packet packet;
  packet.opcode = Opcode::write_middle;
  packet.psn = 77;
  const std::vector<uint8_t> bytes(40, 0x5A);
  const auto received = [&](FaultRule rule, uint32_t& passes) {
    rule.direction = FaultDirection::received;
    rule.packets = FaultPackets::data;
    auto setup = std::make_unique<Setup>(std::vector<FaultRule>{rule});
    Datagram datagram;
    datagram.bytes = bytes;
    datagram.traffic_class = 0x6A;
    passes = setup->faults.on_received(1, packet, {}, datagram, 100);
    if (rule.action == FaultAction::mark_ce) CHECK_EQ(datagram.traffic_class, 0x6B);
    return setup;
  };
  uint32_t passes = 9;
  received({.action = FaultAction::drop}, passes);
  CHECK_EQ(passes, 0u);
  received({.action = FaultAction::duplicate}, passes);
  CHECK_EQ(passes, 2u);
  received({.action = FaultAction::mark_ce}, passes);
  CHECK_EQ(passes, 1u);
  const auto held = received({.action = FaultAction::delay, .delay_ns = 50}, passes);
  CHECK_EQ(passes, 0u);
  CHECK_EQ(held->faults.next_due(), 150);
  Datagram released;
  std::vector<uint8_t> content;
  CHECK(!held->faults.take_released(149, released, content));
  CHECK(held->faults.take_released(150, released, content));
  CHECK_EQ(released.bytes.size(), bytes.size());
  CHECK(!held->faults.take_released(151, released, content));
}

void what_nobody_asked_for_is_said() {
  struct Row {
    FaultAction action;
    Opcode opcode;
    uint8_t syndrome;
    uint32_t expected_psn;
    uint32_t psn;
  };
  // In turn, repeated, and behind a gap: what is missing is never taken for arrived.
  const Row rows[] = {{FaultAction::send_nak, Opcode::acknowledge, 0x60, 77, 77},
                      {FaultAction::send_rnr, Opcode::acknowledge, 0x21, 77, 77},
                      {FaultAction::send_nak, Opcode::acknowledge, 0x60, 80, 77},
                      {FaultAction::send_nak, Opcode::acknowledge, 0x60, 75, 75},
                      {FaultAction::send_rnr, Opcode::acknowledge, 0x21, 0xFFFFFF, 0xFFFFFF},
                      {FaultAction::send_cnp, Opcode::cnp, 0, 75, 0}};
  for (const Row& row : rows) {
    Setup setup({{.action = row.action, .direction = FaultDirection::received, .packets = FaultPackets::data}});
    wire::Packet packet;
    packet.opcode = Opcode::write_middle;
    packet.psn = 77;
    Datagram datagram;
    CHECK_EQ(setup.faults.on_received(2, packet, {0x32, row.expected_psn, 6}, datagram, 0), 1u);
    setup.faults.attach(setup.port, 1);
    CHECK_EQ(setup.port.sent.size(), 1u);
    const wire::Packet& said = setup.port.sent[0].head;
    CHECK(said.opcode == row.opcode);
    CHECK_EQ(said.syndrome, row.syndrome);
    CHECK_EQ(said.psn, row.psn);
    CHECK_EQ(said.dest_qpn, 0x32u);
    CHECK_EQ(said.msn, row.opcode == Opcode::cnp ? 0u : 6u);
    CHECK_EQ(setup.port.sent[0].traffic_class, row.opcode == Opcode::cnp ? 0xC0 : 0x68);
    CHECK_EQ(setup.port.sent[0].priority, row.opcode == Opcode::cnp ? 6 : 2);
    CHECK_EQ(setup.port.sent[0].flow, 2u);
    CHECK_EQ(setup.faults.counts()[static_cast<size_t>(row.action)], 1);
  }
}

void probes_are_left_alone() {
  Setup setup({FaultRule{}});
  PacketRun probe;
  probe.head.opcode = Opcode::ud_send_only;
  setup.faults.send(probe);
  CHECK_EQ(setup.port.sent.size(), 1u);
}

}  // namespace

int main() {
  numbers_select_packets();
  what_no_rule_concerns_passes_in_one_piece();
  chance_is_the_same_for_the_same_seed_and_near_its_share();
  each_action_does_what_it_says();
  content_that_is_held_back_is_kept();
  a_port_that_is_full_gets_the_rest_first();
  received_packets_are_lost_repeated_marked_and_held();
  what_nobody_asked_for_is_said();
  probes_are_left_alone();
  return etloop::test::failures();
}
