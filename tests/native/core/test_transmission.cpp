// What leaves a port first: one run of each queue pair, then answers, then the rest; and what a full port keeps waiting.
#include "core/packets/transmission.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/check.h"
#include "support/core_parts.h"
#include "support/exchanges.h"

using namespace etloop;

namespace {

class RecordingPort final : public TxPort {
 public:
  TxResult send(const PacketRun& run) override {
    if (answer != TxResult::sent) return answer;
    if (run.head.opcode == held) return TxResult::held;
    sent.push_back(run);
    return TxResult::sent;
  }
  std::string last_error() const override { return "the cable is gone"; }
  uint32_t max_run(uint32_t) const override { return 2; }

  TxResult answer = TxResult::sent;
  wire::Opcode held = wire::Opcode::fetch_add;  // by the priority of its kind; nobody here sends these
  std::vector<PacketRun> sent;
};

class StillClock final : public Clock {
 public:
  Nanos now() override { return now_ns; }
  Nanos now_ns = 100;
};

WorkRequest write(uint32_t bytes, uint32_t op = 0) {
  WorkRequest request;
  request.kind = WorkKind::write_imm;
  request.bytes = bytes;
  request.op = op;
  return request;
}

struct Sender : test::CoreParts {
  Sender() : CoreParts(test::one_send(4096), 0) {
    open();
    run = records.open(0, 0, 0, true);
  }
  bool turn(size_t budget = 100) { return transmission.transmit(port, clock, budget); }

  RecordingPort port;
  StillClock clock;
  uint32_t run = 0;
};

void queue_pairs_take_turns() {
  Sender sender;
  sender.transmission.post(0, write(4 * test::kMtu));
  sender.transmission.post(1, write(test::kMtu));
  CHECK(!sender.turn());
  std::vector<uint32_t> flows;
  for (const PacketRun& run : sender.port.sent) flows.push_back(run.flow);
  CHECK(flows == (std::vector<uint32_t>{0, 1, 0, 0}));  // FIRST and the only one, then the middles, then LAST
  CHECK_EQ(sender.queue_pairs[0].counters.tx_packets, 4);
}

// Two queue pairs with data, under a setting of `arbitration`: 0 of rank 0, and 1 of rank 2 on the same port, with a DSCP each.
struct Arbiter : test::CoreParts {
  explicit Arbiter(ArbitrationSettings arbitration, int16_t first_dscp = 0, int16_t second_dscp = 0)
      : CoreParts(arranged(arbitration, first_dscp, second_dscp), 0) {
    open();
    records.open(0, 0, 0, true);
  }
  static EnginePlan arranged(ArbitrationSettings arbitration, int16_t first_dscp, int16_t second_dscp) {
    EnginePlan plan = test::one_send(4096, 1);
    plan.transport.arbitration = arbitration;
    plan.transport.window_packets = 64;
    for (PlannedPort& port : plan.ports) port.qpn_count = 2;
    plan.qps.push_back({0x101, 0x201, 50'000, 50'001});
    PlannedConnection second = plan.connections[0];
    second.src_rank = 2;
    second.dst_rank = 3;
    second.first_qp = 1;
    plan.connections.push_back(second);
    plan.ranks[0].traffic_class = static_cast<int16_t>(first_dscp << 2);
    for (const size_t rank : {0, 1}) {
      PlannedRank again = plan.ranks[rank];
      again.rank += 2;
      again.peers = {rank == 0 ? 3 : 2};
      again.traffic_class = static_cast<int16_t>(second_dscp << 2);
      plan.ranks.push_back(again);
    }
    return plan;
  }
  // The flows of the packets that leave while both queue pairs have a message.
  std::vector<uint32_t> flows(uint32_t first_packets, uint32_t second_packets) {
    transmission.post(0, write(first_packets * test::kMtu));
    transmission.post(1, write(second_packets * test::kMtu));
    CHECK(!transmission.transmit(port, clock, 100));
    std::vector<uint32_t> left;
    for (const PacketRun& run : port.sent) left.insert(left.end(), run.count, run.flow);
    return left;
  }
  RecordingPort port;
  StillClock clock;
};

void turns_are_as_long_as_the_setting_says() {
  using Flows = std::vector<uint32_t>;
  CHECK(Arbiter({0, false}).flows(6, 3) == (Flows{0, 1, 0, 0, 1, 0, 0, 1, 0}));  // a run each: the port takes two packets
  CHECK(Arbiter({1, false}).flows(4, 3) == (Flows{0, 1, 0, 1, 0, 1, 0}));
  CHECK(Arbiter({3, false}).flows(5, 4) == (Flows{0, 0, 0, 1, 1, 1, 0, 0, 1}));
}

void a_higher_class_goes_first() {
  using Flows = std::vector<uint32_t>;
  CHECK(Arbiter({1, true}, 0, 46).flows(3, 3) == (Flows{1, 1, 1, 0, 0, 0}));
  CHECK(Arbiter({1, true}, 46, 0).flows(3, 3) == (Flows{0, 0, 0, 1, 1, 1}));
  CHECK(Arbiter({1, true}, 40, 46).flows(2, 2) == (Flows{0, 1, 0, 1}));  // one class: DSCP 40 to 47
  CHECK(Arbiter({1, false}, 0, 46).flows(2, 2) == (Flows{0, 1, 0, 1}));
}

void short_messages_do_not_wait_for_kept_turns() {
  for (const bool keeps : {false, true}) {
    Arbiter arbiter({0, false});
    if (keeps) arbiter.transmission.set_answer_patience(4'000'000, 1'000'000);
    std::vector<uint32_t> flows = arbiter.flows(40, 1);
    CHECK_EQ(flows[keeps ? 0 : 1], 1u);
    CHECK_EQ(flows.size(), 41u);
  }
}

void the_first_packet_dates_its_op() {
  Sender sender;
  WorkRequest request = write(test::kMtu, sender.run);
  request.trigger_ns = 40;
  sender.transmission.post(0, request);
  sender.turn();
  CHECK_EQ(sender.records[sender.run].first_tx_ns, 100);
  CHECK_EQ(sender.records.turnarounds()[turnaround_bucket(60)], 1u);
}

void a_budget_bounds_a_turn() {
  Sender sender;
  sender.transmission.post(0, write(8 * test::kMtu));
  CHECK(sender.turn(1));
  CHECK_EQ(sender.port.sent.size(), 1u);
}

void a_full_port_keeps_the_turn_and_a_window_ends_it() {
  Sender sender;
  sender.transmission.post(0, write(20 * test::kMtu));
  sender.port.answer = TxResult::would_block;
  CHECK(!sender.turn());
  CHECK_EQ(sender.queue_pairs[0].counters.tx_packets, 0);
  sender.port.answer = TxResult::sent;
  CHECK(!sender.turn());
  CHECK_EQ(sender.queue_pairs[0].counters.tx_packets, 8);  // the window
  CHECK(sender.events.next_due() != kNever);               // and a timer waits for its acknowledgement
}

void a_port_that_fails_ends_the_run() {
  Sender sender;
  sender.transmission.post(0, write(test::kMtu));
  sender.port.answer = TxResult::failed;
  CHECK(!sender.turn());
  CHECK_EQ(sender.failure.reason(), std::string("rank 0 -> rank 1 (10.0.0.1 -> 10.0.0.2): the cable is gone"));
}

void notifications_go_before_data_of_later_runs() {
  Sender sender;
  sender.transmission.post(0, write(4 * test::kMtu));
  sender.transmission.queue_notification(1);
  sender.turn();
  CHECK(sender.port.sent[0].head.opcode == wire::Opcode::write_first);
  CHECK(sender.port.sent[1].head.opcode == wire::Opcode::cnp);
  CHECK_EQ(sender.queue_pairs[1].counters.np_cnp_sent, 1);
}

EnginePlan marked_plan() {
  EnginePlan plan = test::one_send(4096);
  plan.transport.cnp.vlan_priority = 6;
  plan.transport.ack = {26, 0, 1};
  plan.transport.clear_to_send = {8, 1, 2};
  return plan;
}

struct Marked : test::CoreParts {
  explicit Marked(int32_t port_number, const EnginePlan& marked = marked_plan()) : CoreParts(marked, port_number) {
    open();
    records.open(0, 0, 0, true);
  }
  RecordingPort port;
  StillClock clock;
};

void check_marks(const PacketRun& run, wire::Opcode opcode, const ClassMarks& marks) {
  CHECK(run.head.opcode == opcode);
  CHECK_EQ(run.traffic_class, marks.traffic_class);
  CHECK_EQ(run.priority, marks.priority);
}

wire::Packet grant_packet() {
  wire::Packet grant;
  grant.opcode = wire::Opcode::write_only;
  grant.ack_req = true;
  grant.rkey = 0x1'00'F1;
  grant.dma_bytes = grant.payload_bytes = 64;
  return grant;
}

void each_kind_of_packet_has_its_own_marks() {
  Marked sender(0);
  sender.transmission.post(0, write(test::kMtu));
  sender.transmission.queue_notification(0);
  Delivered delivered;
  CHECK(sender.queue_pairs[0].on_request(grant_packet(), delivered));
  sender.transmission.queue_acknowledgement(0, 0);
  sender.transmission.transmit(sender.port, sender.clock, 8);
  CHECK_EQ(sender.port.sent.size(), 3u);
  check_marks(sender.port.sent[0], wire::Opcode::write_only_imm, {});
  check_marks(sender.port.sent[1], wire::Opcode::cnp, {0xC0, 6});
  check_marks(sender.port.sent[2], wire::Opcode::acknowledge, {0x68, 1});

  Marked receiver(1);
  WorkRequest request;
  request.kind = WorkKind::clear_to_send;
  request.bytes = 64;
  receiver.transmission.post(0, request);
  receiver.transmission.transmit(receiver.port, receiver.clock, 8);
  CHECK_EQ(receiver.port.sent.size(), 1u);
  check_marks(receiver.port.sent[0], wire::Opcode::write_only, {0x21, 2});
}

void own_packets_apart_have_the_marks_of_grants() {
  EnginePlan plan = marked_plan();
  plan.transport.own_packets_apart = true;
  const ClassMarks grants{0x21, 2};
  Marked sender(0, plan);
  Delivered delivered;
  CHECK(sender.queue_pairs[0].on_request(grant_packet(), delivered));
  sender.transmission.queue_acknowledgement(0, 0);
  sender.probing.load();
  sender.probing.start();
  sender.transmission.transmit(sender.port, sender.clock, 8);
  CHECK_EQ(sender.port.sent.size(), 5u);  // a long and a short probe of each queue pair
  check_marks(sender.port.sent[0], wire::Opcode::acknowledge, grants);
  for (size_t probe = 1; probe < 5; ++probe) check_marks(sender.port.sent[probe], wire::Opcode::ud_send_only, grants);

  Marked receiver(1, plan);
  wire::Packet data = grant_packet();
  data.rkey = receiver.connections[0].data_rkey;
  CHECK(receiver.queue_pairs[0].on_request(data, delivered));
  receiver.transmission.queue_acknowledgement(0, 0);
  receiver.transmission.transmit(receiver.port, receiver.clock, 8);
  CHECK_EQ(receiver.port.sent.size(), 1u);
  check_marks(receiver.port.sent[0], wire::Opcode::acknowledge, {0x68, 1});
}

void what_has_ended_sends_no_data_and_answers_still() {
  Sender sender;
  sender.transmission.post(0, write(4 * test::kMtu));
  CHECK(sender.turn(1));
  const size_t before = sender.port.sent.size();
  CHECK(before > 0);
  sender.transmission.end_data();
  sender.transmission.post(0, write(test::kMtu));
  sender.transmission.queue_notification(0);
  CHECK(!sender.turn());
  CHECK_EQ(sender.port.sent.size(), before + 1);
  CHECK(sender.port.sent.back().head.opcode == wire::Opcode::cnp);
}

// A pause of the data's priority keeps neither notifications nor grants.
void what_is_held_keeps_no_other_kind() {
  Sender sender;
  sender.transmission.post(0, write(test::kMtu));
  sender.transmission.queue_notification(1);
  sender.port.held = wire::Opcode::write_only_imm;
  CHECK(!sender.turn());
  CHECK_EQ(sender.port.sent.size(), 1u);
  CHECK(sender.port.sent[0].head.opcode == wire::Opcode::cnp);
}

void every_peer_is_asked_once() {
  Sender sender;
  sender.probing.start();
  sender.turn();
  CHECK_EQ(sender.port.sent.size(), 2u);
  for (const PacketRun& run : sender.port.sent) {
    CHECK(run.head.opcode == wire::Opcode::ud_send_only);
    CHECK_EQ(run.head.qkey, kProbeRequestKey);
    CHECK_EQ(run.head.payload_bytes, test::kMtu);
  }
  CHECK(sender.probing.under_way());
}

// Rank 0 of an exchange over a port where each answer costs a call: it receives data on some queue pairs and sends on others.
struct Passer : test::CoreParts {
  explicit Passer(Nanos patience_ns = 1'000'000, uint32_t window_packets = 8) : CoreParts(windowed(window_packets), 0) {
    open();
    records.open(0, 0, 0, true);
    transmission.set_answer_patience(4 * patience_ns, patience_ns);
  }
  // 0: queue pairs share what a peer offers.
  static EnginePlan windowed(uint32_t window_packets) {
    EnginePlan plan = test::exchanges(1);
    plan.transport.window_packets = window_packets;
    return plan;
  }
  // The receiving queue pairs, by their ordinal.
  uint32_t in(uint32_t ordinal) const { return connections[test::kIn].recv_qps[ordinal]; }
  void hear_data(uint32_t ordinal, uint32_t psn = 0) { hear(in(ordinal), connections[test::kIn].data_rkey, psn); }
  void hear_grant(uint32_t psn) {
    const uint32_t index = connections[test::kOut].send_qps[0];
    hear(index, (queue_pairs[index].local_qpn() << 8) | 0xF1, psn);
  }
  void hear(uint32_t index, uint32_t rkey, uint32_t psn) {
    wire::Packet packet;
    packet.opcode = wire::Opcode::write_only;
    packet.ack_req = true;
    packet.psn = psn;
    packet.rkey = rkey;
    packet.dma_bytes = packet.payload_bytes = 64;
    Delivered delivered;
    CHECK(queue_pairs[index].on_request(packet, delivered));
    transmission.queue_acknowledgement(index, clock.now_ns);
  }
  void grant(uint32_t ordinal) {
    WorkRequest request;
    request.kind = WorkKind::clear_to_send;
    request.bytes = 64;
    transmission.post(in(ordinal), request);
  }
  void send_data(uint32_t bytes = 64) { transmission.post(connections[test::kOut].send_qps[0], write(bytes)); }
  // What leaves in a turn.
  std::vector<wire::Opcode> turn() {
    port.sent.clear();
    transmission.transmit(port, clock, 100);
    std::vector<wire::Opcode> opcodes;
    for (const PacketRun& run : port.sent) opcodes.push_back(run.head.opcode);
    return opcodes;
  }
  RecordingPort port;
  StillClock clock;
};

using Opcodes = std::vector<wire::Opcode>;
using wire::Opcode;

void an_acknowledgement_leaves_behind_the_grants_of_its_queue_pair() {
  Passer passer;
  passer.hear_data(0);
  passer.hear_data(1);
  passer.grant(0);
  passer.grant(0);
  CHECK(passer.turn() == (Opcodes{Opcode::write_only, Opcode::write_only, Opcode::acknowledge, Opcode::acknowledge}));
  CHECK_EQ(passer.port.sent[2].flow, passer.port.sent[0].flow);
  CHECK(passer.turn().empty());
}

// Its sender waits for it, as in an exchange; what the message released goes first.
void an_acknowledgement_leaves_in_the_turn_of_its_message() {
  Passer passer;
  passer.hear_data(0, 0);
  passer.hear_data(0, 1);
  passer.send_data();
  CHECK(passer.turn() == (Opcodes{Opcode::write_only_imm, Opcode::acknowledge}));
  CHECK_EQ(passer.port.sent[1].head.psn, 1u);
  CHECK(passer.turn().empty());
}

// The peer's op waits for nothing else, and cannot use the next op's data before.
void an_acknowledgement_that_ends_an_op_goes_before_data() {
  Passer passer;
  passer.hear_data(0);
  passer.send_data();
  passer.transmission.answer_first();
  CHECK(passer.turn() == (Opcodes{Opcode::acknowledge, Opcode::write_only_imm}));
  passer.hear_data(0, 1);
  passer.send_data();
  CHECK(passer.turn() == (Opcodes{Opcode::write_only_imm, Opcode::acknowledge}));  // it holds for one turn
}

void a_short_message_leaves_whole_before_answers_and_a_long_one_does_not() {
  Passer passer;
  passer.hear_data(0);
  passer.send_data(4 * test::kMtu);
  CHECK(passer.turn() ==
        (Opcodes{Opcode::write_first, Opcode::write_middle, Opcode::write_last_imm, Opcode::acknowledge}));
  Passer with_much;
  with_much.queue_pairs[with_much.connections[test::kOut].send_qps[0]].set_window(64);
  with_much.hear_data(0);
  with_much.send_data(40 * test::kMtu);
  const Opcodes sent = with_much.turn();
  const auto answered = std::ranges::find(sent, Opcode::acknowledge);
  CHECK(answered != sent.end() && answered + 1 != sent.end());
}

// FIRST is longer than LAST, so both may leave in one call; behind LAST there is nothing to wait for.
void what_is_followed_at_once_may_wait_for_it() {
  Passer passer;
  passer.send_data(2 * test::kMtu);
  CHECK(passer.turn() == (Opcodes{Opcode::write_first, Opcode::write_last_imm}));
  CHECK(passer.port.sent[0].may_wait);
  CHECK(!passer.port.sent[1].may_wait);
  Passer without(0);
  without.send_data(2 * test::kMtu);
  without.turn();
  CHECK(!without.port.sent[0].may_wait);
}

void a_message_is_not_cut_by_those_of_others_where_calls_cost() {
  Passer passer(1'000'000, 0);
  for (const uint32_t qp : passer.connections[test::kOut].send_qps) {
    passer.transmission.offer(qp, 8 * WindowPools::kSharesPerPacket);
    passer.transmission.post(qp, write(2 * test::kMtu));
  }
  passer.port.sent.clear();
  CHECK(!passer.transmission.transmit(passer.port, passer.clock, 1));  // packets of one call cost as much as one run
  CHECK_EQ(passer.port.sent.size(), 4u);
  CHECK_EQ(passer.port.sent[0].flow, passer.port.sent[1].flow);
  CHECK_EQ(passer.port.sent[2].flow, passer.port.sent[3].flow);
}

// The last one answers for all before it; half a window is answered at once.
void acknowledgements_of_grants_are_held_for_their_patience() {
  Passer passer;
  const Nanos begin_ns = passer.clock.now_ns;
  passer.hear_grant(0);
  passer.hear_grant(1);
  CHECK_EQ(passer.transmission.answers_due_ns(), begin_ns + 4'000'000);
  passer.clock.now_ns += 3'999'999;
  CHECK(passer.turn().empty());
  passer.clock.now_ns += 1;
  CHECK(passer.turn() == Opcodes{Opcode::acknowledge});
  CHECK_EQ(passer.port.sent[0].head.psn, 1u);
  CHECK_EQ(passer.transmission.answers_due_ns(), kNever);
  for (uint32_t psn = 2; psn < 6; ++psn) passer.hear_grant(psn);
  CHECK(passer.turn() == Opcodes{Opcode::acknowledge});
}

void where_answers_cost_no_calls_they_go_at_once() {
  Passer passer(0);
  passer.hear_data(0);
  passer.grant(0);
  passer.send_data(2 * test::kMtu);
  CHECK(passer.turn() == (Opcodes{Opcode::write_first, Opcode::acknowledge, Opcode::write_only, Opcode::write_last_imm}));
}

}  // namespace

int main() {
  queue_pairs_take_turns();
  turns_are_as_long_as_the_setting_says();
  a_higher_class_goes_first();
  short_messages_do_not_wait_for_kept_turns();
  the_first_packet_dates_its_op();
  a_budget_bounds_a_turn();
  a_full_port_keeps_the_turn_and_a_window_ends_it();
  a_port_that_fails_ends_the_run();
  notifications_go_before_data_of_later_runs();
  each_kind_of_packet_has_its_own_marks();
  own_packets_apart_have_the_marks_of_grants();
  what_has_ended_sends_no_data_and_answers_still();
  what_is_held_keeps_no_other_kind();
  every_peer_is_asked_once();
  an_acknowledgement_leaves_behind_the_grants_of_its_queue_pair();
  an_acknowledgement_leaves_in_the_turn_of_its_message();
  an_acknowledgement_that_ends_an_op_goes_before_data();
  a_short_message_leaves_whole_before_answers_and_a_long_one_does_not();
  what_is_followed_at_once_may_wait_for_it();
  a_message_is_not_cut_by_those_of_others_where_calls_cost();
  acknowledgements_of_grants_are_held_for_their_patience();
  where_answers_cost_no_calls_they_go_at_once();
  return test::failures();
}
