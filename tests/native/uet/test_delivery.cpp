// Over UET, packets in the order in which they were numbered (ROD), and messages as sends: what is taken, what is refused, and
// what is sent again.
#include "support/uet_ends.h"

namespace {

using namespace etloop;
using namespace etloop::test::uet_ends;

TransportSettings in_order() {
  TransportSettings made = params();
  made.multipath.uet.order = DeliveryOrder::sent;
  made.multipath.entropy_values = made.multipath.least_active = 1;
  return made;
}

TransportSettings sending() {
  TransportSettings made = params();
  made.multipath.uet.sends = true;
  return made;
}

std::vector<Nack> nacks_of(const std::vector<Packet>& answers) {
  std::vector<Nack> found;
  for (const Packet& answer : answers) {
    if (const auto* nack = std::get_if<Nack>(&answer.pds)) found.push_back(*nack);
  }
  return found;
}

void what_follows_a_gap_is_refused_once_and_all_of_it_is_sent_again() {
  Pair pair(in_order());
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(5 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(2000);
  CHECK_EQ(sent.size(), size_t{5});
  for (const Outgoing& packet : sent) {
    CHECK(request_of(packet).type == PdsType::rod_request);
    CHECK_EQ(packet.entropy, sent[0].entropy);
  }
  pair.arrive(sent[0]);
  for (const size_t i : {2U, 3U, 4U}) pair.arrive(sent[i]);
  const std::vector<Packet> told = pair.answers();
  const std::vector<Nack> nacks = nacks_of(told);
  CHECK_EQ(nacks.size(), size_t{1});
  CHECK(nacks[0].nack_code == NackCode::rod_out_of_order);
  CHECK_EQ(nacks[0].psn, request_of(sent[2]).psn);
  CHECK_EQ(nacks[0].payload, request_of(sent[1]).psn);  // what was expected
  for (const Packet& packet : told) pair.answer(packet, 3000);
  const std::vector<Outgoing> again = pair.send_all(4000);
  CHECK_EQ(again.size(), size_t{4});
  for (size_t i = 0; i < again.size(); ++i) {
    CHECK_EQ(request_of(again[i]).psn, request_of(sent[i + 1]).psn);
    CHECK(request_of(again[i]).retransmitted);
    pair.arrive(again[i]);
  }
  CHECK_EQ(pair.delivered.size(), size_t{2});
}

void what_is_lost_again_is_told_again() {
  Pair pair(in_order());
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(4 * kMtu));
  std::vector<Outgoing> sent = pair.send_all(2000);
  for (Nanos now = 3000; now < 6000; now += 1000) {
    for (size_t i = 1; i < sent.size(); ++i) pair.arrive(sent[i]);  // the first is lost every time
    const std::vector<Packet> told = pair.answers();
    CHECK_EQ(nacks_of(told).size(), size_t{1});
    for (const Packet& packet : told) pair.answer(packet, now);
    for (const Packet& packet : told) pair.answer(packet, now);  // a copy of it changes nothing
    sent = pair.send_all(now);
    CHECK_EQ(sent.size(), size_t{4});
  }
  for (const Outgoing& packet : sent) pair.arrive(packet);
  CHECK_EQ(pair.delivered.size(), size_t{2});
}

void behind_a_trimmed_packet_one_answer_is_enough() {
  Pair pair(in_order());
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(4 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(2000);
  pair.b.end.responder.on_trimmed(request_of(sent[0]), false);
  pair.arrive(sent[1]);
  pair.b.end.responder.on_trimmed(request_of(sent[2]), false);
  pair.arrive(sent[3]);
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});
  CHECK(std::get<Nack>(told[0].pds).nack_code == NackCode::trimmed);
  pair.answer(told[0], 3000);
  const std::vector<Outgoing> again = pair.send_all(4000);
  CHECK_EQ(again.size(), size_t{4});
  for (const Outgoing& packet : again) pair.arrive(packet);
  CHECK_EQ(pair.delivered.size(), size_t{2});
}

void a_probe_in_order_is_a_control_packet_of_its_mode() {
  Pair pair(in_order());
  pair.exchange(kMtu, 0);
  const Outgoing command = pair.close(pair.a.end.deadline());
  CHECK(std::get<Control>(command.packet.pds).rod);
}

void sends_name_the_queue_pair_and_the_receive() {
  Pair pair(sending());
  pair.a.end.post(message(2 * kMtu, 42));
  const std::vector<Outgoing> sent = pair.send_all(0);
  for (const Outgoing& packet : sent) {
    const auto& request = std::get<StandardRequest>(packet.packet.ses);
    CHECK(request.start.opcode == Operation::tagged_send && request.start.rel);
    CHECK_EQ(queue_pair_at(request.start), 6U);
    CHECK_EQ(request.memory_key, uint64_t{0x10000});  // the tag: what the grant named
    CHECK_EQ(request.buffer_offset, uint64_t{0});
    pair.arrive(packet);
  }
  CHECK_EQ(std::get<StandardRequest>(sent[0].packet.ses).header_data, uint64_t{42});
  CHECK_EQ(pair.delivered.size(), size_t{1});
  CHECK_EQ(pair.delivered[0], 42U);
}

void a_grant_is_a_send_without_a_tag() {
  Pair pair(sending());
  WorkRequest grant = message(kClearToSendBytes);
  grant.kind = WorkKind::clear_to_send;
  grant.grant_va = 0x20000;
  pair.a.end.post(grant);
  const Outgoing packet = pair.send_all(0)[0];
  const auto& request = std::get<StandardRequest>(packet.packet.ses);
  CHECK(request.start.opcode == Operation::send);
  CHECK_EQ(request.memory_key, uint64_t{0});
  CHECK(packet.packet.payload != nullptr);
  CHECK_EQ(request.message_length, kClearToSendBytes);
}

template <typename Change>
void refused(const TransportSettings& made, ReturnCode code, const Change& change) {
  Pair pair(made);
  pair.a.end.post(message(kMtu));
  Outgoing packet = pair.send_all(0)[0];
  change(std::get<StandardRequest>(packet.packet.ses));
  pair.arrive(packet);
  CHECK(pair.delivered.empty());
  const std::vector<Packet> told = pair.answers();
  const auto* response = told.empty() ? nullptr : std::get_if<Response>(&told[0].ses);
  CHECK(response != nullptr && response->return_code == code);
  CHECK(pair.b.end.fault() != QpFault::none);
}

void messages_of_the_other_form_are_refused() {
  refused(sending(), ReturnCode::bad_index, [](StandardRequest& request) { ++request.start.resource_index; });
  refused(sending(), ReturnCode::unsupported_operation, [](StandardRequest& request) { request.start.rel = false; });
  refused(sending(), ReturnCode::unsupported_operation,
          [](StandardRequest& request) { request.start.opcode = Operation::write; });
  refused(params(), ReturnCode::unsupported_operation,
          [](StandardRequest& request) { request.start.opcode = Operation::tagged_send; });
}

}  // namespace

int main() {
  what_follows_a_gap_is_refused_once_and_all_of_it_is_sent_again();
  what_is_lost_again_is_told_again();
  behind_a_trimmed_packet_one_answer_is_enough();
  a_probe_in_order_is_a_control_packet_of_its_mode();
  sends_name_the_queue_pair_and_the_receive();
  a_grant_is_a_send_without_a_tag();
  messages_of_the_other_form_are_refused();
  return etloop::test::failures();
}
