// Packets that arrive cut: what is asked for again, when, and how often.
#include "support/check.h"
#include "support/qp_link.h"

using namespace etloop;
using namespace etloop::test;
using wire::Opcode;

namespace {

constexpr uint32_t kMtu = 1024;

TransportSettings params(TrimAnswer answer) {
  TransportSettings made = link_params(100);
  made.recovery.trimming.answer = answer;
  made.recovery.selective_repeat = answer == TrimAnswer::selective;
  return made;
}

// Five packets from 100 on, on their way to b.
std::vector<wire::Packet> five(Link& link) {
  WorkRequest request;
  request.kind = WorkKind::write_imm;
  request.rkey = kPatternKey;
  request.bytes = 5 * kMtu;
  link.a.qp.post(request);
  return send_all(link.a.qp, 0, 1);
}

wire::CutPacket cut(const wire::Packet& packet) { return {packet.opcode, packet.dest_qpn, packet.psn}; }

void a_nak_answers_the_expected_packet_once_a_gap() {
  Link link(params(TrimAnswer::nak));
  const auto packets = five(link);
  link.b.hear(packets[0], 10);
  link.b.qp.on_trimmed(cut(packets[1]));
  link.b.qp.on_trimmed(cut(packets[1]));
  const auto told = answers(link.b.qp);
  CHECK_EQ(told.size(), 1u);
  CHECK_EQ(told[0].opcode, Opcode::acknowledge);
  CHECK_EQ(told[0].syndrome, wire::kSyndromeNakSequence);
  CHECK_EQ(told[0].psn, 101u);
  link.a.hear(told[0], 20);
  const auto again = send_all(link.a.qp, 20, 1);
  CHECK_EQ(again.size(), 4u);  // it goes back
  for (const auto& packet : again) link.b.hear(packet, 30);
  CHECK_EQ(link.b.delivered.size(), 1u);
  CHECK_EQ(link.b.qp.counters.trimmed_received, 2);
  CHECK_EQ(link.b.qp.counters.trimmed_answered, 1);
}

void a_header_that_passed_waiting_data_is_answered_in_its_turn() {
  Link link(params(TrimAnswer::nak));
  const auto packets = five(link);
  link.b.qp.on_trimmed(cut(packets[4]));
  link.b.qp.on_trimmed(cut(packets[3]));
  CHECK(answers(link.b.qp).empty());
  for (const size_t i : {0, 1, 2}) link.b.hear(packets[i], 10);
  const auto told = answers(link.b.qp);
  CHECK_EQ(told.size(), 1u);
  CHECK_EQ(told[0].psn, 103u);
  CHECK_EQ(told[0].syndrome, wire::kSyndromeNakSequence);
}

void a_packet_that_is_asked_for_comes_alone() {
  Link link(params(TrimAnswer::selective));
  const auto packets = five(link);
  link.b.hear(packets[0], 10);
  for (const size_t i : {1, 3}) link.b.qp.on_trimmed(cut(packets[i]));
  const auto told = answers(link.b.qp);
  CHECK_EQ(told.size(), 2u);
  for (const auto& packet : told) {
    CHECK_EQ(packet.opcode, Opcode::trimmed_nak);
    link.a.hear(packet, 20);
    CHECK(link.a.last_outcome.nak);
  }
  const auto again = send_all(link.a.qp, 20, 1);
  CHECK_EQ(again.size(), 2u);
  CHECK_EQ(again[0].psn, 101u);
  CHECK_EQ(again[1].psn, 103u);
  link.b.hear(packets[2], 30);
  link.b.hear(packets[4], 30);
  for (const auto& packet : again) link.b.hear(packet, 40);
  CHECK_EQ(link.b.delivered.size(), 1u);
  for (const auto& packet : answers(link.b.qp)) link.a.hear(packet, 50);
  CHECK_EQ(link.a.completed.size(), 1u);
  CHECK_EQ(link.a.qp.counters.trimmed_resent, 2);
  CHECK_EQ(link.a.qp.counters.retransmitted_packets, 2);
  CHECK_EQ(link.a.qp.counters.local_ack_timeout_err, 0);
}

void what_is_here_is_not_asked_for() {
  Link link(params(TrimAnswer::selective));
  const auto packets = five(link);
  link.b.hear(packets[0], 10);
  link.b.hear(packets[2], 10);
  answers(link.b.qp);
  link.b.qp.on_trimmed(cut(packets[2]));  // ahead, and kept
  CHECK(answers(link.b.qp).empty());
  link.b.qp.on_trimmed(cut(packets[0]));  // in its turn before: the peer has not heard
  const auto told = answers(link.b.qp);
  CHECK_EQ(told.size(), 1u);
  CHECK_EQ(link.b.qp.counters.trimmed_answered, 0);
}

void an_answer_to_what_arrived_since_sends_nothing() {
  Link link(params(TrimAnswer::selective));
  const auto packets = five(link);
  link.b.qp.on_trimmed(cut(packets[0]));
  const auto late = answers(link.b.qp);
  for (const auto& packet : packets) link.b.hear(packet, 10);
  for (const auto& packet : answers(link.b.qp)) link.a.hear(packet, 20);
  CHECK_EQ(link.a.completed.size(), 1u);
  link.a.hear(late[0], 30);
  CHECK(!link.a.qp.has_run());
  CHECK_EQ(link.a.qp.counters.trimmed_resent, 0);
}

void with_the_answer_off_trimmed_packets_are_only_counted() {
  Link link(params(TrimAnswer::none));
  const auto packets = five(link);
  link.b.qp.on_trimmed(cut(packets[0]));
  CHECK(answers(link.b.qp).empty());
  CHECK_EQ(link.b.qp.counters.trimmed_received, 1);
}

void answers_that_came_cut_call_for_nothing() {
  Link link(params(TrimAnswer::selective));
  link.b.qp.on_trimmed({Opcode::acknowledge, 0x12, 100});
  link.b.qp.on_trimmed({Opcode::read_response_middle, 0x12, 100});
  CHECK(answers(link.b.qp).empty());
  CHECK_EQ(link.b.qp.counters.trimmed_received, 2);
}

}  // namespace

int main() {
  a_nak_answers_the_expected_packet_once_a_gap();
  a_header_that_passed_waiting_data_is_answered_in_its_turn();
  a_packet_that_is_asked_for_comes_alone();
  what_is_here_is_not_asked_for();
  an_answer_to_what_arrived_since_sends_nothing();
  with_the_answer_off_trimmed_packets_are_only_counted();
  answers_that_came_cut_call_for_nothing();
  return test::failures();
}
