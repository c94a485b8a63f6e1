// Both halves of a queue pair over UET: the life of a packet delivery context, and what is refused. What networks do to its
// packets is tried in tests/traffic/multipath.
#include "support/uet_ends.h"

namespace {

using namespace etloop;
using namespace etloop::test::uet_ends;
using uet::PdcEvent;
using uet::PdcRole;
using uet::PdcState;

void the_states_of_a_context_follow_one_table() {
  constexpr PdcState kStates[] = {PdcState::closed, PdcState::opening, PdcState::open, PdcState::closing};
  constexpr PdcState kAfter[][4] = {
      // closed             opening             open               closing
      {PdcState::opening, PdcState::opening, PdcState::open, PdcState::closing},    // sends
      {PdcState::closed, PdcState::open, PdcState::open, PdcState::closing},        // answered
      {PdcState::closed, PdcState::opening, PdcState::closing, PdcState::closing},  // rests
      {PdcState::closed, PdcState::opening, PdcState::open, PdcState::closed},      // ended
  };
  constexpr PdcEvent kEvents[] = {PdcEvent::sends, PdcEvent::answered, PdcEvent::rests, PdcEvent::ended};
  for (size_t event = 0; event < 4; ++event) {
    for (size_t state = 0; state < 4; ++state) CHECK(uet::after(kStates[state], kEvents[event]) == kAfter[event][state]);
  }
}

void packets_carry_syn_until_the_target_told_its_number() {
  Pair pair;
  pair.a.end.post(message(3 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(0);
  CHECK_EQ(sent.size(), size_t{3});
  for (uint16_t i = 0; i < 3; ++i) {
    const Request& request = request_of(sent[i]);
    CHECK(request.syn);
    CHECK_EQ(request.psn_offset, i);
    CHECK_EQ(request.psn, request_of(sent[0]).psn + i);
    CHECK_EQ(request.psn & 0xFFFFFF, (kFirst + i) & 0xFFFFFF);
    CHECK_EQ(request.ack_request, i == 2);
  }
  pair.arrive(sent[1]);
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});  // the first packet of a context is answered at once
  pair.answer(told[0], 1000);
  CHECK(pair.a.end.requester.state() == PdcState::open);
  pair.a.end.post(message(1));
  const std::vector<Outgoing> next = pair.send_all(2000);
  CHECK(!request_of(next[0]).syn);
  CHECK_EQ(request_of(next[0]).dpdcid, std::get<Ack>(told[0].pds).spdcid);
  pair.arrive(sent[0]);
  pair.arrive(next[0]);
  CHECK(pair.delivered.empty());
  pair.arrive(sent[2]);
  CHECK_EQ(pair.delivered.size(), size_t{2});
}

void a_message_says_where_it_goes_in_every_packet_and_is_answered_once() {
  Pair pair;
  pair.a.end.post(message(2 * kMtu + 10, 99));
  const std::vector<Outgoing> sent = pair.send_all(0);
  const auto& first = std::get<StandardRequest>(sent[0].packet.ses);
  const auto& last = std::get<StandardRequest>(sent[2].packet.ses);
  CHECK(first.start.som && !first.start.eom && first.start.hd);
  CHECK(!last.start.som && last.start.eom && !last.start.hd);
  CHECK_EQ(first.header_data, uint64_t{99});
  CHECK_EQ(last.message_offset, 2 * kMtu);
  CHECK_EQ(last.payload_length, 10);
  CHECK_EQ(first.buffer_offset, last.buffer_offset);
  CHECK_EQ(first.memory_key, uint64_t{6} << 32 | kRkey);
  for (const size_t i : {2U, 0U, 1U}) pair.arrive(sent[i]);
  CHECK_EQ(pair.delivered.size(), size_t{1});
  CHECK_EQ(pair.delivered[0], 99U);
  int responses = 0;
  for (const Packet& packet : pair.answers()) {
    if (const auto* response = std::get_if<Response>(&packet.ses)) {
      ++responses;
      CHECK(response->return_code == ReturnCode::ok && response->response == ResponseKind::normal);
      CHECK_EQ(response->modified_length, 2 * kMtu + 10);
    }
    pair.answer(packet, 1000);
  }
  CHECK_EQ(responses, 1);
  WorkRequest done;
  CHECK(pair.a.end.pop_completed(done) && !done.flushed);
}

void a_context_that_rests_is_closed_and_the_next_begins_where_it_ended() {
  Pair pair;
  pair.exchange(kMtu, 0);
  CHECK(pair.a.end.requester.state() == PdcState::open);
  const uint16_t first_id = pair.a.end.requester.pdc();
  const Nanos due = pair.a.end.deadline();
  CHECK_EQ(due, 1000 + kRest);
  const Outgoing command = pair.close(due);
  const auto& close = std::get<Control>(command.packet.pds);
  CHECK(close.control_type == ControlType::close_command && close.ack_request);
  pair.a.end.post(message(kMtu));
  CHECK(!pair.a.end.has_run());  // it waits for the next context
  pair.arrive(command);
  CHECK(!pair.b.end.responder.is_open());
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});
  CHECK_EQ(std::get<Ack>(told[0].pds).cack_psn, close.psn);
  pair.arrive(command);  // its answer was lost: it is answered again
  CHECK_EQ(pair.answers().size(), size_t{1});
  pair.answer(told[0], due + 1000);
  CHECK(pair.a.end.requester.state() == PdcState::closed);
  const std::vector<Outgoing> next = pair.send_all(due + 2000);
  CHECK(request_of(next[0]).syn);
  CHECK(request_of(next[0]).spdcid != first_id);
  CHECK_EQ(request_of(next[0]).psn, close.psn);
  pair.arrive(next[0]);
  CHECK_EQ(pair.delivered.size(), size_t{2});
}

void a_close_command_is_repeated_until_it_is_answered() {
  Pair pair;
  pair.exchange(kMtu, 0);
  pair.close(pair.a.end.deadline());
  for (int i = 0; i < 20; ++i) {
    const Nanos due = pair.a.end.deadline();
    CHECK(due != kNever);
    const Outgoing again = pair.close(due);
    CHECK(std::get<Control>(again.packet.pds).retransmitted);
  }
  CHECK(pair.a.end.fault() == QpFault::none);
}

// A host that answers late is no device that lost the command.
void a_close_command_is_repeated_no_sooner_than_the_timeout_floor() {
  TransportSettings made = params();
  made.recovery.timeout_floor_ns = 5'000'000;
  made.timeout_ns = 50'000'000;
  Pair pair(made);
  pair.exchange(kMtu, 0);
  const Nanos begun = pair.a.end.deadline();
  pair.close(begun);
  CHECK_EQ(pair.a.end.deadline(), begun + 5'000'000);
}

// The run is over: no command leaves that a peer which has stopped would not answer.
void a_context_that_stays_open_is_not_closed_because_it_rests() {
  Pair resting;
  resting.exchange(kMtu, 0);
  CHECK(!resting.a.end.awaits_answer());
  resting.a.end.stay_open();
  CHECK_EQ(resting.a.end.deadline(), kNever);

  Pair closing;
  closing.exchange(kMtu, 0);
  closing.close(closing.a.end.deadline());
  CHECK(closing.a.end.awaits_answer());
  closing.a.end.stay_open();
  CHECK(closing.a.end.deadline() != kNever);  // what is under way is brought to its end
}

void a_copy_that_comes_after_the_close_command_ends_nothing() {
  Pair pair;
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(kMtu));
  const Outgoing second = pair.send_all(2000)[0];
  pair.arrive(second);
  for (const Packet& packet : pair.answers()) pair.answer(packet, 3000);
  pair.arrive(pair.close(pair.a.end.deadline()));
  const std::vector<Packet> lost = pair.answers();  // the answer to the command
  pair.arrive(second);
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});
  CHECK(std::get<Nack>(told[0].pds).nack_code == NackCode::invalid_dpdcid);
  pair.answer(told[0], 60'000);
  CHECK(pair.a.end.fault() == QpFault::none);
  CHECK(pair.a.end.requester.state() == PdcState::closing);
}

void what_comes_late_opens_nothing() {
  Pair pair;
  pair.a.end.post(message(kMtu));
  const std::vector<Outgoing> first = pair.send_all(0);
  pair.arrive(first[0]);
  for (const Packet& packet : pair.answers()) pair.answer(packet, 1000);
  const Outgoing command = pair.close(pair.a.end.deadline());
  pair.arrive(command);
  for (const Packet& packet : pair.answers()) pair.answer(packet, 60'000);
  pair.arrive(first[0]);  // a copy of the SYN, late
  CHECK(!pair.b.end.responder.is_open());
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});
  CHECK(std::get<Nack>(told[0].pds).nack_code == NackCode::invalid_syn);
  CHECK(!pair.a.end.requester.is_own(std::get<Nack>(told[0].pds).dpdcid));
  CHECK_EQ(pair.delivered.size(), size_t{1});
}

// A change to a packet of an open context, and what is said of it.
template <typename Change>
std::vector<Packet> said_of(const Change& change) {
  Pair pair;
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(kMtu));
  Outgoing packet = pair.send_all(2000)[0];
  change(std::get<Request>(packet.packet.pds), std::get<StandardRequest>(packet.packet.ses));
  pair.arrive(packet);
  CHECK_EQ(pair.delivered.size(), size_t{1});
  return pair.answers();
}

void what_is_not_for_this_end_is_refused_by_its_reason() {
  const auto nacked = [](const auto& change, NackCode code) {
    const std::vector<Packet> told = said_of(change);
    CHECK_EQ(told.size(), size_t{1});
    CHECK(!told.empty() && std::holds_alternative<Nack>(told[0].pds) && std::get<Nack>(told[0].pds).nack_code == code);
  };
  nacked([](Request& request, StandardRequest&) { ++request.dpdcid; }, NackCode::invalid_dpdcid);
  nacked([](Request& request, StandardRequest&) { request.type = PdsType::rod_request; }, NackCode::mode_mismatch);
  nacked([](Request& request, StandardRequest&) { request.psn += 1 << 23; }, NackCode::psn_out_of_window);
  nacked([](Request& request, StandardRequest&) { request.psn += 1024; }, NackCode::psn_out_of_window);
  const auto answered = [](const auto& change, ReturnCode code) {
    const std::vector<Packet> told = said_of(change);
    CHECK_EQ(told.size(), size_t{1});
    const auto* response = told.empty() ? nullptr : std::get_if<Response>(&told[0].ses);
    CHECK(response != nullptr && response->return_code == code && response->response == ResponseKind::response);
  };
  answered([](Request&, StandardRequest& write) { ++write.memory_key; }, ReturnCode::bad_key);
  answered([](Request&, StandardRequest& write) { ++write.start.job_id; }, ReturnCode::bad_job);
  answered([](Request&, StandardRequest& write) { write.start.opcode = Operation::read; }, ReturnCode::unsupported_operation);
  answered([](Request&, StandardRequest& write) { ++write.message_length; }, ReturnCode::unsupported_size);
}

void an_error_of_the_peer_ends_the_queue_pair() {
  Pair pair;
  WorkRequest wrong = message(kMtu);
  wrong.rkey = kRkey + 1;
  pair.a.end.post(wrong);
  for (const Outgoing& packet : pair.send_all(0)) pair.arrive(packet);
  CHECK(pair.b.end.fault() == QpFault::refused_access);
  for (const Packet& packet : pair.answers()) pair.answer(packet, 1000);
  CHECK(pair.a.end.fault() == QpFault::none);  // it may be forged
  CHECK(pair.silence() == QpFault::remote_access);
}

void a_trimmed_packet_is_asked_for_also_before_the_context_is_open() {
  Pair pair;
  pair.a.end.post(message(2 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(0);
  pair.b.end.responder.on_trimmed(request_of(sent[0]), false);
  const std::vector<Packet> told = pair.answers();
  CHECK_EQ(told.size(), size_t{1});
  CHECK(std::get<Nack>(told[0].pds).nack_code == NackCode::trimmed);
  CHECK_EQ(std::get<Nack>(told[0].pds).spdcid, 0);
  pair.answer(told[0], 1000);
  CHECK(pair.a.end.requester.state() == PdcState::opening);
  const std::vector<Outgoing> again = pair.send_all(2000);
  CHECK_EQ(again.size(), size_t{1});
  CHECK(request_of(again[0]).retransmitted && request_of(again[0]).syn);
  pair.answer(told[0], 3000);  // of the first transmission: it says nothing of the second
  CHECK(!pair.a.end.has_run());
  pair.arrive(again[0]);
  pair.arrive(sent[1]);
  CHECK_EQ(pair.delivered.size(), size_t{1});
}

void a_trim_by_the_last_hop_is_told_apart_and_sent_again() {
  Pair pair;
  pair.a.end.post(message(2 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(0);
  pair.b.end.responder.on_trimmed(request_of(sent[0]), true);
  const std::vector<Packet> told = pair.answers();
  CHECK(std::get<Nack>(told.at(0).pds).nack_code == NackCode::trimmed_last_hop);
  CHECK_EQ(pair.b.counters.trimmed_answered, int64_t{1});
  pair.answer(told[0], 1000);
  CHECK_EQ(pair.a.counters.trimmed_resent, int64_t{1});
  CHECK_EQ(pair.send_all(2000).size(), size_t{1});
}

void what_the_peer_has_no_room_for_is_left_to_the_timer() {
  Pair pair;
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(kMtu));
  const Request request = request_of(pair.send_all(2000)[0]);
  Nack nack;
  nack.nack_code = NackCode::no_packet_buffer;
  nack.psn = request.psn;
  pair.a.end.requester.on_nack(nack, 3000);
  CHECK(!pair.a.end.has_run());
  CHECK(pair.a.end.fault() == QpFault::none);
  CHECK(pair.a.end.deadline() != kNever);
  nack.nack_code = NackCode::closing_in_error;
  pair.a.end.requester.on_nack(nack, 4000);
  CHECK(pair.silence() == QpFault::remote_operational);
}

void numbers_of_contexts_are_used_again_as_late_as_possible() {
  PdcIds ids(3);
  const volatile uint16_t beyond = 4;  // the compiler is not to see that it is
  const uint16_t first = ids.take(10, PdcRole::initiator);
  CHECK_EQ(first, 1);
  CHECK(ids.find(first) != nullptr && ids.find(first)->end == 10 && ids.find(first)->role == PdcRole::initiator);
  ids.give_back(first);
  CHECK(ids.find(first) == nullptr);
  ids.give_back(0);
  CHECK_EQ(ids.take(11, PdcRole::target), 2);
  CHECK_EQ(ids.take(11, PdcRole::target), 3);
  CHECK_EQ(ids.take(12, PdcRole::target), 1);
  for (const uint16_t nobodys : {uint16_t{0}, beyond}) CHECK(ids.find(nobodys) == nullptr);
}

void wide_numbers_follow_from_one_nearby() {
  uet::WidePsn psns(0x00FFFFFE);
  CHECK_EQ(psns.widen(0xFFFFFF), 0x00FFFFFFU);
  CHECK_EQ(psns.widen(0), 0x01000000U);
  psns.move_to(5);
  CHECK_EQ(psns.wide(), 0x01000005U);
  CHECK(psns.is_near(0x00FFFFF0) && !psns.is_near(0x02000005) && !psns.is_near(0x00000005));
  uet::WidePsn last(0xFFFFFFFF);
  CHECK_EQ(last.widen(0), 0U);
}

}  // namespace

int main() {
  the_states_of_a_context_follow_one_table();
  packets_carry_syn_until_the_target_told_its_number();
  a_message_says_where_it_goes_in_every_packet_and_is_answered_once();
  a_context_that_rests_is_closed_and_the_next_begins_where_it_ended();
  a_close_command_is_repeated_until_it_is_answered();
  a_close_command_is_repeated_no_sooner_than_the_timeout_floor();
  a_context_that_stays_open_is_not_closed_because_it_rests();
  a_copy_that_comes_after_the_close_command_ends_nothing();
  what_comes_late_opens_nothing();
  what_is_not_for_this_end_is_refused_by_its_reason();
  an_error_of_the_peer_ends_the_queue_pair();
  a_trimmed_packet_is_asked_for_also_before_the_context_is_open();
  a_trim_by_the_last_hop_is_told_apart_and_sent_again();
  what_the_peer_has_no_room_for_is_left_to_the_timer();
  numbers_of_contexts_are_used_again_as_late_as_possible();
  wide_numbers_follow_from_one_nearby();
  return etloop::test::failures();
}
