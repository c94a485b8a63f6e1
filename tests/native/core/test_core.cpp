// A whole core between its port and its peers: what belongs to the run and what only prepares it.
#include "core/core.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/registry.h"
#include "support/check.h"
#include "support/core_parts.h"
#include "wire/clear_to_send.h"
#include "wire/wire.h"

using namespace etloop;

namespace {

class RecordingPort final : public TxPort {
 public:
  TxResult send(const PacketRun& run) override {
    sent.push_back(run);
    if (run.head.opcode == wire::Opcode::write_only && run.head.payload_bytes == kGrantWireBytes) {
      grants.push_back(read_grant(std::span<const uint8_t, kGrantWireBytes>(run.head.payload, kGrantWireBytes)));
    }
    return TxResult::sent;
  }
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return 1; }

  std::vector<PacketRun> sent;
  std::vector<ClearToSend> grants;  // among them
};

class StillClock final : public Clock {
 public:
  Nanos now() override { return now_ns; }
  Nanos now_ns = 100;
};

// An acknowledgement of packet 0, as the peer of this queue pair would send it.
void acknowledge(Core& core, const EnginePlan& plan, uint32_t qpn, Nanos now) {
  wire::Packet packet;
  packet.opcode = wire::Opcode::acknowledge;
  packet.dest_qpn = qpn;
  packet.psn = plan.transport.recovery.initial_psn;
  packet.syndrome = 0x1F;
  packet.msn = 1;
  std::array<uint8_t, 64> bytes{};
  const size_t size = wire::encode_headers(packet, bytes) + 4;  // the port has checked the ICRC
  Datagram datagram;
  datagram.bytes = std::span<const uint8_t>(bytes).first(size);
  datagram.datagram_bytes = static_cast<uint32_t>(size);
  datagram.src_ip = plan.connections[0].dst_ip;
  core.on_datagram(datagram, now);
}

// The peer is on a card, so a probe is a write that the transport repeats until it is acknowledged.
void probes_of_cards_are_in_no_figure() {
  const EnginePlan plan = test::one_send(test::kMessageBytes, 1);
  test::FlowCounter flows;
  auto made = Core::make(plan, 0, 1 << 20, flows.opener());
  CHECK(static_cast<bool>(made));
  Core& core = **made;
  Endpoint card;
  card.qpn = 0x800;
  card.va = 0x10000;
  card.rkey = 0x33;
  core.set_peer_endpoints({card});
  RecordingPort port;
  StillClock clock;
  core.start_probe();
  core.transmit(port, clock, 8);
  CHECK_EQ(port.sent.size(), 1u);
  clock.now_ns += 20 * plan.transport.timeout_ns;
  core.on_time(clock.now_ns);
  core.transmit(port, clock, 8);
  CHECK_EQ(port.sent.size(), 2u);  // sent again
  CHECK_EQ(core.flows()[0].retransmitted_packets, 1);
  CHECK_EQ(core.flows()[0].local_ack_timeout_err, 1);
  acknowledge(core, plan, 0x100, clock.now_ns + 10);
  CHECK(core.probing().prober().over());
  CHECK(core.probing().prober().result(0).verdict == ProbeVerdict::good);

  core.start(clock.now_ns + 1000);
  const FlowRecord left = core.flows()[0];
  CHECK_EQ(left.tx_packets, 0);
  CHECK_EQ(left.retransmitted_packets, 0);
  CHECK_EQ(left.local_ack_timeout_err, 0);
  CHECK_EQ(left.acks_rx, 0);
  CHECK_EQ(left.local_qpn, 0x100u);
  CHECK_EQ(left.remote_qpn, 0x800u);
  CHECK_EQ(left.sends_data, 1);
}

// The first packet of a READ's answer, or an acknowledgement, comes marked Congestion Experienced.
void marked_responses_are_told_of_and_marked_acknowledgements_are_not() {
  struct Row {
    const char* why;
    wire::Opcode opcode;
    uint32_t payload_bytes;
    int64_t notifications;
  };
  const Row rows[] = {
      {"a READ response carries data", wire::Opcode::read_response_only, 64, 1},
      {"an acknowledgement carries none", wire::Opcode::acknowledge, 0, 0},
      {"nor does an atomic's", wire::Opcode::atomic_acknowledge, 0, 0},
  };
  for (const Row& row : rows) {
    const EnginePlan plan = test::one_send(test::kMessageBytes, 1);
    test::FlowCounter flows;
    auto made = Core::make(plan, 0, 1 << 20, flows.opener());
    Core& core = **made;
    wire::Packet packet;
    packet.opcode = row.opcode;
    packet.dest_qpn = 0x100;
    packet.syndrome = 0x1F;
    packet.payload_bytes = row.payload_bytes;
    std::array<uint8_t, 160> bytes{};
    wire::encode_headers(packet, bytes);
    Datagram datagram;
    const size_t size = wire::datagram_bytes(row.opcode, row.payload_bytes);
    datagram.bytes = std::span<const uint8_t>(bytes).first(size);
    datagram.datagram_bytes = static_cast<uint32_t>(size);
    datagram.src_ip = plan.connections[0].dst_ip;
    datagram.traffic_class = 0x6B;
    core.on_datagram(datagram, 50);
    RecordingPort port;
    StillClock clock;
    core.transmit(port, clock, 8);
    const int64_t sent = std::count_if(port.sent.begin(), port.sent.end(),
                                       [](const PacketRun& run) { return run.head.opcode == wire::Opcode::cnp; });
    if (sent != row.notifications) std::fprintf(stderr, "%s\n", row.why);
    CHECK_EQ(sent, row.notifications);
    CHECK_EQ(core.flows()[0].np_ecn_marked_roce_packets, row.notifications);
  }
}

// Rank 1 of one send: what it is granted it is sent, and the port answers with calls that cost.
struct Receiver {
  explicit Receiver(int64_t messages, const std::function<void(EnginePlan&)>& change = {}, uint32_t queue_pairs = 1)
      : plan(planned(messages, queue_pairs)) {
    if (change) change(plan);
    auto opened = Core::make(plan, 1, 8 << 20, flows.opener());
    CHECK(static_cast<bool>(opened));
    core = *std::move(opened);
    core->set_answer_patience(1'000'000);
    core->start(clock.now_ns);
    core->on_time(clock.now_ns);
    core->issue(clock.now_ns);
    turn();
  }
  static EnginePlan planned(int64_t messages, uint32_t queue_pairs) {
    EnginePlan plan = test::one_send(messages * test::kMessageBytes, static_cast<int32_t>(queue_pairs));
    plan.transport.window_packets = 0;
    plan.transport.ack_every_packets = 256;
    return plan;
  }
  // One of the two packets of a message, by the number of its grant.
  void hear(size_t message, bool last) {
    wire::Packet packet;
    packet.opcode = last ? wire::Opcode::write_last_imm : wire::Opcode::write_first;
    const auto queue_pairs = static_cast<uint32_t>(plan.qps.size());  // messages use them in turn
    packet.dest_qpn = 0x200 + static_cast<uint32_t>(message) % queue_pairs;
    packet.psn = 2 * (static_cast<uint32_t>(message) / queue_pairs) + (last ? 1 : 0);
    packet.ack_req = last;
    packet.va = grants.at(message).va;
    packet.rkey = grants.at(message).rkey;
    packet.dma_bytes = test::kMessageBytes;
    packet.imm = test::kMessageBytes;
    packet.payload_bytes = test::kMtu;
    std::vector<uint8_t> bytes(wire::datagram_bytes(packet.opcode, test::kMtu));
    wire::encode_headers(packet, bytes);
    Datagram datagram;
    datagram.bytes = bytes;
    datagram.datagram_bytes = static_cast<uint32_t>(bytes.size());
    datagram.src_ip = plan.connections[0].src_ip;
    core->on_datagram(datagram, clock.now_ns);
  }
  void hear(size_t message) {
    hear(message, false);
    hear(message, true);
  }
  // The packets that were acknowledged, and the grants kept.
  std::vector<uint32_t> turn() {
    port.sent.clear();
    core->transmit(port, clock, 8);
    grants.insert(grants.end(), port.grants.begin(), port.grants.end());
    port.grants.clear();
    std::vector<uint32_t> acknowledged;
    for (const PacketRun& run : port.sent) {
      if (run.head.opcode == wire::Opcode::acknowledge) acknowledged.push_back(run.head.psn);
    }
    return acknowledged;
  }

  EnginePlan plan;
  test::FlowCounter flows;
  std::unique_ptr<Core> core;
  RecordingPort port;
  StillClock clock;
  std::vector<ClearToSend> grants;
};

using Acknowledged = std::vector<uint32_t>;

void messages_that_others_of_their_op_follow_are_answered_with_the_last() {
  Receiver receiver(3);
  CHECK_EQ(receiver.grants.size(), 3u);
  receiver.hear(0);
  CHECK(receiver.turn().empty());
  receiver.hear(1);
  CHECK(receiver.turn().empty());
  receiver.hear(2, false);
  CHECK(receiver.turn().empty());  // what is due from before does not leave with the beginning of another message
  receiver.hear(2, true);
  CHECK(receiver.turn() == Acknowledged{5});
  receiver.clock.now_ns += 1'000'000;
  CHECK(receiver.turn().empty());  // nothing is said twice
  CHECK(receiver.core->finished());
}

// The flows of the acknowledgements of a turn, which are numbered as the queue pairs.
std::vector<FlowId> answered_flows(Receiver& receiver) {
  const size_t count = receiver.turn().size();
  std::vector<FlowId> flows;
  for (const PacketRun& run : receiver.port.sent) {
    if (run.head.opcode == wire::Opcode::acknowledge) flows.push_back(run.flow);
  }
  CHECK_EQ(flows.size(), count);
  std::sort(flows.begin(), flows.end());
  return flows;
}

void an_acknowledgement_waits_only_for_messages_of_its_queue_pair() {
  using Answered = std::vector<FlowId>;
  for (const uint32_t queue_pairs : {2U, 4U}) {
    Receiver receiver(queue_pairs, {}, queue_pairs);
    for (uint32_t message = 0; message < queue_pairs; ++message) {
      receiver.hear(message);
      CHECK(answered_flows(receiver) == Answered{message});
    }
    CHECK(receiver.core->finished());
  }
  Receiver odd(3, {}, 2);
  odd.hear(0);
  CHECK(odd.turn().empty());  // message 2 follows on the same queue pair
  odd.hear(1);
  CHECK(answered_flows(odd) == Answered{1});
  odd.hear(2);
  CHECK(answered_flows(odd) == Answered{0});
}

void a_queue_pair_ahead_of_the_others_is_answered_with_the_last_message_of_the_op() {
  Receiver receiver(4, {}, 2);
  receiver.hear(0);
  receiver.hear(2);
  CHECK(receiver.turn().empty());  // two messages are missing: as many as there are queue pairs
  receiver.hear(1);
  CHECK(answered_flows(receiver) == std::vector<FlowId>{1});
  receiver.hear(3);
  CHECK(answered_flows(receiver) == (std::vector<FlowId>{0, 1}));
  CHECK(receiver.core->finished());
}

void nobody_waits_long_for_a_message_that_does_not_come() {
  Receiver receiver(3);
  receiver.hear(0);
  CHECK(receiver.turn().empty());
  CHECK(receiver.core->next_deadline() <= receiver.clock.now_ns + 62'500);  // a sixteenth of the peer's timeout
  receiver.clock.now_ns += 62'500;
  CHECK(receiver.turn() == Acknowledged{1});
}

// Four messages have slots: the sender of more of them never finds all taken.
void a_long_op_is_answered_before_its_slots_are_used_up() {
  Receiver receiver(8);
  CHECK_EQ(receiver.grants.size(), 4u);
  for (size_t message = 0; message < 4; ++message) receiver.hear(message);  // a burst, before the port had a turn
  CHECK(receiver.turn() == Acknowledged{7});
  CHECK_EQ(receiver.grants.size(), 8u);
  size_t answered = 4;
  for (size_t message = 4; message < 8; ++message) {
    receiver.hear(message);
    for (const uint32_t psn : receiver.turn()) answered = (psn + 1) / 2;
    CHECK(message + 1 - answered <= (message < 7 ? 1 : 0));  // less than half the slots, and nothing in the end
  }
}

void who_listens_to_acknowledgements_gets_each() {
  struct Row {
    const char* why;
    std::function<void(EnginePlan&)> change;
  };
  static const etloop_cc_algorithm listens = [] {
    etloop_cc_algorithm table = cc::kNone;
    table.on_ack = [](void*, const etloop_cc_path*, const etloop_cc_ack*, etloop_cc_decision*) {};
    return table;
  }();
  const Row rows[] = {
      {"congestion control hears when they come", [](EnginePlan& plan) { plan.congestion.algorithm = &listens; }},
      {"round trips are written down", [](EnginePlan& plan) { plan.series.interval_ns = 1'000'000; }},
      {"what is not acknowledged is soon asked for", [](EnginePlan& plan) { plan.transport.recovery.selective_repeat = true; }},
      {"the window is the scenario's", [](EnginePlan& plan) { plan.transport.window_packets = 64; }},
      {"one is asked for every so many packets", [](EnginePlan& plan) { plan.transport.ack_every_packets = 3; }},
  };
  for (const Row& row : rows) {
    Receiver receiver(3, row.change);
    receiver.hear(0);
    const Acknowledged acknowledged = receiver.turn();
    if (acknowledged != Acknowledged{1}) std::fprintf(stderr, "%s\n", row.why);
    CHECK(acknowledged == Acknowledged{1});
  }
}

// A packet is missing: the NAK answers what came before it, and leaves at once.
void a_gap_is_answered_at_once() {
  Receiver receiver(3);
  receiver.hear(0);
  CHECK(receiver.turn().empty());
  receiver.hear(1, true);
  CHECK(receiver.turn() == Acknowledged{2});
  CHECK_EQ(receiver.port.sent.back().head.syndrome, wire::kSyndromeNakSequence);
}

}  // namespace

int main() {
  messages_that_others_of_their_op_follow_are_answered_with_the_last();
  an_acknowledgement_waits_only_for_messages_of_its_queue_pair();
  a_queue_pair_ahead_of_the_others_is_answered_with_the_last_message_of_the_op();
  nobody_waits_long_for_a_message_that_does_not_come();
  a_long_op_is_answered_before_its_slots_are_used_up();
  who_listens_to_acknowledgements_gets_each();
  a_gap_is_answered_at_once();
  marked_responses_are_told_of_and_marked_acknowledgements_are_not();
  probes_of_cards_are_in_no_figure();
  return test::failures();
}
