// Both halves of an MRC queue pair: what a responder says of what came, and what a requester makes of it.
#include "mrc/endpoint.h"

#include <deque>
#include <functional>
#include <random>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "support/check.h"

namespace {

using namespace etloop;
using namespace etloop::wire::mrc;
using mrc::Endpoint;
using mrc::Outgoing;

constexpr uint32_t kRkey = 0x1234;
constexpr uint32_t kMtu = 1024;
constexpr uint16_t kValue = 50'000;
constexpr uint32_t kFirst = 0xFFFFFE;  // sequence numbers wrap soon

TransportSettings params() {
  TransportSettings made;
  made.kind = TransportKind::mrc;
  made.path_mtu_bytes = kMtu;
  made.timeout_ns = 1'000'000;
  made.recovery.timeout_floor_ns = 100'000;
  made.recovery.initial_psn = kFirst;
  made.recovery.trimming.answer = TrimAnswer::nak;
  made.multipath.entropy_values = 16;
  return made;
}

struct End {
  explicit End(const TransportSettings& settings = params())
      : paths(settings.multipath, kValue), end(7, paths, kRkey, settings, counters, *std::pmr::new_delete_resource()) {}
  FlowRecord counters{};
  multipath::PathStates paths;
  Endpoint end;
};

uint32_t psn(uint32_t number) { return (kFirst + number) & wire::kPsnMask; }

Bth bth_of(uint32_t number, Opcode opcode) {
  Bth bth;
  bth.opcode = opcode;
  bth.psn = psn(number);
  return bth;
}

// Packet `number` of messages of one packet each, with immediate data.
void take(End& end, uint32_t number, bool marked = false) {
  Write write;
  write.reth = {uint64_t{number} * kMtu, kRkey, kMtu};
  write.imm = {number};
  write.payload_bytes = kMtu;
  end.end.responder.on_write(bth_of(number, Opcode::write_only_imm), write, static_cast<uint16_t>(kValue + number % 16), marked);
}

std::vector<uint32_t> handed_over(End& end) {
  std::vector<uint32_t> out;
  Delivered delivered;
  while (end.end.responder.next_delivered(delivered)) out.push_back(delivered.imm);
  return out;
}

// Everything that is due, in order.
std::vector<Packet> answers(End& end) {
  std::vector<Packet> out;
  while (end.end.responder.answer_due()) {
    out.push_back(end.end.responder.answer().packet);
    end.end.responder.answer_sent();
  }
  return out;
}

void a_sack_before_anything_was_sent_says_nothing() {
  End end;
  Sack sack;
  sack.seth.cack_psn = psn(0xFFFFFF);  // the one before the first
  sack.seth.sack_offset = 1;
  sack.seth.sack_bitmap = ~uint64_t{0};
  const AckOutcome outcome = end.end.requester.on_sack(sack, 1000);
  CHECK_EQ(outcome.packets, 0U);
  CHECK_EQ(outcome.lost_packets, 0U);
  CHECK(end.end.fault() == QpFault::none);
}

void a_message_is_whole_when_its_bytes_are() {
  struct Row {
    const char* why;
    Opcode opcode;
    uint32_t payload_bytes;
    uint32_t message_bytes;
    bool taken;
  };
  const Row rows[] = {
      {"a packet before the last is full", Opcode::write_first, kMtu, 3 * kMtu, true},
      {"one that is not is refused", Opcode::write_first, kMtu - 4, 3 * kMtu, false},
      {"the only packet has all of it", Opcode::write_only_imm, 100, 100, true},
      {"the last has what is left", Opcode::write_last_imm, 100, kMtu + 100, true},
      {"and not less", Opcode::write_last_imm, 96, kMtu + 100, false},
  };
  for (const Row& row : rows) {
    End end;
    Write write;
    write.reth = {0, kRkey, row.message_bytes};
    write.payload_bytes = row.payload_bytes;
    end.end.responder.on_write(bth_of(0, row.opcode), write, kValue, false);
    CHECK_EQ(end.end.fault() == QpFault::none, row.taken);
  }
}

void messages_are_handed_over_in_order_when_they_came_in_none() {
  End end;
  for (const uint32_t number : {3U, 1U, 2U}) take(end, number);
  CHECK(handed_over(end).empty());
  take(end, 0);
  CHECK(handed_over(end) == (std::vector<uint32_t>{0, 1, 2, 3}));
  CHECK_EQ(end.end.responder.expected_psn(), psn(4));
}

void a_mark_is_told_at_once_with_the_packets_value() {
  End end;
  take(end, 2, true);
  const std::vector<Packet> told = answers(end);
  CHECK_EQ(told.size(), size_t{1});
  const Seth& seth = std::get<Sack>(told[0].body).seth;
  CHECK(seth.mark == EntropyMark::skip_once);
  CHECK_EQ(seth.entropy, uint32_t{kValue + 2});
  CHECK_EQ(seth.cack_psn, psn(0) - 1);
  CHECK_EQ(seth.ack_psn_offset, int16_t{3});
  CHECK_EQ(seth.sack_offset, int16_t{1});
  CHECK_EQ(seth.sack_bitmap, uint64_t{0b100});
}

void a_bitmap_ends_with_the_packet_that_caused_it() {
  End end;
  for (uint32_t number = 1; number < 100; ++number) take(end, number);
  answers(end);
  take(end, 100, true);
  const Seth seth = std::get<Sack>(answers(end).back().body).seth;
  CHECK_EQ(seth.sack_offset, int16_t{101 - 63});
  CHECK_EQ(seth.sack_bitmap, ~uint64_t{0});
}

void a_duplicate_changes_nothing_and_is_answered() {
  End end;
  take(end, 0);
  handed_over(end);
  answers(end);
  take(end, 0);
  CHECK(handed_over(end).empty());
  const std::vector<Packet> told = answers(end);
  CHECK_EQ(told.size(), size_t{2});
  CHECK(told[0].bth.opcode == Opcode::sack);
  CHECK(told[1].bth.opcode == Opcode::ack);
  CHECK_EQ(end.counters.duplicate_request, int64_t{1});
}

void the_window_ends_where_it_ends() {
  End end;
  take(end, kMostSprayedWindow - 1);
  CHECK_EQ(end.counters.naks_tx, int64_t{0});
  answers(end);
  take(end, kMostSprayedWindow);
  const std::vector<Packet> told = answers(end);
  CHECK(std::get<Neth>(told.at(0).body).reason == NackReason::psn_out_of_window);
  CHECK_EQ(std::get<Neth>(told.at(0).body).nack_psn, psn(kMostSprayedWindow));
}

void a_trimmed_packet_is_asked_for_once_until_it_is_here() {
  End end;
  const CutPacket cut{Opcode::write_middle, 0, psn(2), std::nullopt};
  end.end.responder.on_trimmed(cut, kValue + 5, false);
  const Neth nack = std::get<Neth>(answers(end).at(0).body);
  CHECK(nack.reason == NackReason::trimmed);
  CHECK_EQ(nack.nack_psn, psn(2));
  CHECK_EQ(nack.entropy, uint32_t{kValue + 5});
  take(end, 2);
  answers(end);
  end.end.responder.on_trimmed(cut, kValue, false);
  CHECK(answers(end).empty());
  CHECK_EQ(end.counters.trimmed_received, int64_t{2});
}

void a_trim_by_the_last_hop_is_told_apart() {
  End end;
  end.end.responder.on_trimmed({Opcode::write_middle, 0, psn(2), std::nullopt}, kValue + 5, true);
  CHECK(std::get<Neth>(answers(end).at(0).body).reason == NackReason::trimmed_last_hop);
  CHECK_EQ(end.counters.trimmed_answered, int64_t{1});
}

void a_strange_key_ends_the_queue_pair() {
  End end;
  Write write;
  write.reth = {0, kRkey + 1, kMtu};
  write.payload_bytes = kMtu;
  end.end.responder.on_write(bth_of(0, Opcode::write_only), write, kValue, false);
  CHECK(end.end.responder.fault() == QpFault::refused_access);
  CHECK_EQ(std::get<Aeth>(answers(end).at(0).body).syndrome, wire::kSyndromeNakRemoteAccess);
}

// ---- the half that asks

WorkRequest message(uint32_t packets) {
  WorkRequest request;
  request.kind = WorkKind::data;
  request.bytes = packets * kMtu;
  request.rkey = kRkey;
  return request;
}

std::vector<Outgoing> send_all(End& end, Nanos now) {
  std::vector<Outgoing> out;
  while (end.end.requester.has_run()) {
    out.push_back(end.end.requester.next());
    end.end.requester.sent(out.back(), now);
  }
  return out;
}

Neth nack_of(uint32_t number, uint16_t value) {
  Neth nack;
  nack.reason = NackReason::trimmed;
  nack.nack_psn = psn(number);
  nack.entropy = value;
  return nack;
}

// Every path of a packet ends at the last hop, so none is worse than another for what was trimmed there.
void a_trim_blames_its_path_unless_the_last_hop_did_it() {
  for (const bool last_hop : {false, true}) {
    End end;
    end.end.requester.post(message(3));
    const std::vector<Outgoing> sent = send_all(end, 0);
    Neth nack = nack_of(1, sent[1].entropy);
    if (last_hop) nack.reason = NackReason::trimmed_last_hop;
    CHECK(end.end.requester.on_nack(nack, 1000).nak);
    CHECK_EQ(end.paths.state_of(sent[1].entropy) == multipath::EntropyState::good, last_hop);
    CHECK_EQ(end.counters.trimmed_resent, int64_t{1});
    CHECK_EQ(send_all(end, 2000).size(), size_t{1});
  }
}

void packets_of_a_message_say_where_they_go() {
  End end;
  end.end.requester.post(message(3));
  const std::vector<Outgoing> sent = send_all(end, 0);
  CHECK_EQ(sent.size(), size_t{3});
  const Opcode opcodes[] = {Opcode::write_first, Opcode::write_middle, Opcode::write_last_imm};
  std::set<uint16_t> values;
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(sent[i].packet.bth.opcode == opcodes[i]);
    CHECK_EQ(sent[i].packet.bth.psn, psn(i));
    CHECK_EQ(std::get<Write>(sent[i].packet.body).reth.va, uint64_t{i} * kMtu);
    CHECK_EQ(std::get<Write>(sent[i].packet.body).reth.dma_bytes, 3 * kMtu);
    values.insert(sent[i].entropy);
  }
  CHECK_EQ(values.size(), size_t{3});
}

void a_nack_sends_that_packet_again_by_another_path() {
  End end;
  end.end.requester.post(message(4));
  const std::vector<Outgoing> sent = send_all(end, 0);
  const AckOutcome outcome = end.end.requester.on_nack(nack_of(1, sent[1].entropy), 1000);
  CHECK(outcome.nak);
  const std::vector<Outgoing> again = send_all(end, 2000);
  CHECK_EQ(again.size(), size_t{1});
  CHECK_EQ(again[0].packet.bth.psn, psn(1));
  CHECK(again[0].packet.bth.rtx);
  CHECK(again[0].entropy != sent[1].entropy);
  // It was of the first transmission, and that has been seen to.
  CHECK(!end.end.requester.on_nack(nack_of(1, sent[1].entropy), 3000).nak);
  CHECK(!end.end.requester.has_run());
}

void a_nack_of_what_arrived_means_nothing() {
  End end;
  end.end.requester.post(message(4));
  const std::vector<Outgoing> sent = send_all(end, 0);
  Sack sack;
  sack.seth.cack_psn = psn(2);
  CHECK_EQ(end.end.requester.on_sack(sack, 1000).packets, 3U);
  CHECK(!end.end.requester.on_nack(nack_of(1, sent[1].entropy), 1100).nak);
  // An older SACK comes late.
  sack.seth.cack_psn = psn(0);
  CHECK_EQ(end.end.requester.on_sack(sack, 1200).packets, 0U);
  // One of what was never sent is no news.
  sack.seth.cack_psn = psn(9);
  CHECK_EQ(end.end.requester.on_sack(sack, 1300).packets, 0U);
  CHECK_EQ(end.end.requester.in_flight_packets(), 1U);
}

void a_message_is_over_when_the_peer_took_it() {
  End end;
  end.end.requester.post(message(2));
  send_all(end, 0);
  Sack sack;
  sack.seth.cack_psn = psn(1);
  end.end.requester.on_sack(sack, 1000);
  WorkRequest done;
  CHECK(!end.end.requester.pop_completed(done));
  CHECK(end.end.requester.deadline() != kNever);
  end.end.requester.on_acknowledgement(Aeth{wire::kSyndromeAck, 1}, 1100);
  CHECK(end.end.requester.pop_completed(done));
  CHECK(end.end.requester.deadline() == kNever);
}

// Let the peer be silent until the sender gives up; return the number of probes.
int silence(End& end) {
  int probes = 0;
  for (int i = 0; i < 400 && end.end.requester.fault() == QpFault::none; ++i) {
    const Nanos due = end.end.requester.deadline();
    CHECK(due != kNever);
    if (due == kNever) return probes;
    end.end.requester.on_timer(due);
    send_all(end, due);
    if (!end.end.requester.probe_due(due)) continue;
    CHECK(end.end.requester.probe().packet.bth.opcode == Opcode::probe);
    end.end.requester.probe_sent(end.end.requester.probe(), due);
    ++probes;
  }
  return probes;
}

void silence_is_probed_and_then_given_up() {
  End end;
  end.end.requester.post(message(1));
  CHECK_EQ(send_all(end, 0).size(), size_t{1});
  CHECK(silence(end) > 3);
  CHECK(end.end.requester.fault() == QpFault::retries_exceeded);
  CHECK(end.counters.retransmitted_packets >= 7);
}

void an_error_ends_the_queue_pair_only_if_silence_follows() {
  const std::pair<QpFault, std::function<void(End&)>> rows[] = {
      {QpFault::remote_access,
       [](End& end) { end.end.requester.on_acknowledgement(Aeth{wire::kSyndromeNakRemoteAccess, 0}, 500); }},
      {QpFault::remote_operational,
       [](End& end) { end.end.requester.on_nack({.reason = NackReason::unexpected_event}, 500); }},
  };
  for (const auto& [fault, report] : rows) {
    End end;
    end.end.requester.post(message(1));
    send_all(end, 0);
    report(end);
    CHECK(end.end.requester.fault() == QpFault::none);  // it may be forged
    silence(end);
    CHECK(end.end.requester.fault() == fault);
    End healthy;
    healthy.end.requester.post(message(1));
    report(healthy);
    send_all(healthy, 1'000);
    healthy.end.requester.on_acknowledgement(Aeth{wire::kSyndromeAck, 1}, 2'000);
    healthy.end.requester.post(message(1));
    send_all(healthy, 3'000);
    silence(healthy);
    CHECK(healthy.end.requester.fault() == QpFault::retries_exceeded);
  }
}

// Two ends joined by a network that loses, trims, repeats and reorders: all messages come, each once, in order.
void whatever_the_network_does_messages_come_once(uint64_t seed) {
  std::mt19937_64 random(seed);
  End from;
  End to;
  const uint32_t messages = 1 + random() % 20;
  for (uint32_t m = 0; m < messages; ++m) {
    WorkRequest request = message(1 + random() % 40);
    request.kind = WorkKind::write_imm;
    request.imm = m;
    from.end.requester.post(request);
  }
  struct Flying {
    Outgoing packet;
    Nanos at_ns;
  };
  std::deque<Flying> there;
  std::deque<Flying> back;
  std::vector<uint32_t> came;
  uint32_t over = 0;
  const auto fly = [&](std::deque<Flying>& way, const Outgoing& packet, Nanos now) {
    if (random() % 10 == 0) return;
    way.push_back({packet, now + 1000 + static_cast<Nanos>(random() % 20'000)});
    if (random() % 20 == 0) way.push_back({packet, now + static_cast<Nanos>(random() % 90'000)});
  };
  for (Nanos now = 0; now < 2'000'000'000 && over < messages; now += 1000) {
    for (int burst = 0; burst < 8 && from.end.requester.has_run(); ++burst) {
      const Outgoing outgoing = from.end.requester.next();
      from.end.requester.sent(outgoing, now);
      fly(there, outgoing, now);
    }
    if (from.end.requester.probe_due(now)) {
      const Outgoing probe = from.end.requester.probe();
      fly(there, probe, now);
      from.end.requester.probe_sent(probe, now);
    }
    for (size_t i = there.size(); i-- > 0;) {
      if (there[i].at_ns > now) continue;
      const Outgoing packet = there[i].packet;
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(i));
      const Bth& bth = packet.packet.bth;
      if (const auto* probe = std::get_if<Peth>(&packet.packet.body)) {
        to.end.responder.on_probe(*probe, packet.entropy, false);
      } else if (random() % 12 == 0) {
        to.end.responder.on_trimmed({bth.opcode, bth.dest_qpn, bth.psn, std::nullopt}, packet.entropy, false);
      } else {
        to.end.responder.on_write(bth, std::get<Write>(packet.packet.body), packet.entropy, random() % 5 == 0);
      }
      for (const uint32_t imm : handed_over(to)) came.push_back(imm);
    }
    while (to.end.responder.answer_due()) {
      fly(back, to.end.responder.answer(), now);
      to.end.responder.answer_sent();
    }
    for (size_t i = back.size(); i-- > 0;) {
      if (back[i].at_ns > now) continue;
      const Packet packet = back[i].packet.packet;
      back.erase(back.begin() + static_cast<std::ptrdiff_t>(i));
      if (const auto* sack = std::get_if<Sack>(&packet.body)) from.end.requester.on_sack(*sack, now);
      if (const auto* nack = std::get_if<Neth>(&packet.body)) from.end.requester.on_nack(*nack, now);
      if (const auto* aeth = std::get_if<Aeth>(&packet.body)) from.end.requester.on_acknowledgement(*aeth, now);
    }
    if (from.end.requester.deadline() <= now) from.end.requester.on_timer(now);
    WorkRequest done;
    while (from.end.requester.pop_completed(done)) {
      CHECK(!done.flushed);
      ++over;
    }
  }
  CHECK_EQ(over, messages);
  CHECK_EQ(came.size(), size_t{messages});
  for (uint32_t m = 0; m < came.size(); ++m) CHECK_EQ(came[m], m);
  if (over != messages) std::cerr << "seed " << seed << '\n';
}

}  // namespace

int main() {
  a_sack_before_anything_was_sent_says_nothing();
  a_message_is_whole_when_its_bytes_are();
  messages_are_handed_over_in_order_when_they_came_in_none();
  a_mark_is_told_at_once_with_the_packets_value();
  a_bitmap_ends_with_the_packet_that_caused_it();
  a_duplicate_changes_nothing_and_is_answered();
  the_window_ends_where_it_ends();
  a_trimmed_packet_is_asked_for_once_until_it_is_here();
  a_trim_by_the_last_hop_is_told_apart();
  a_trim_blames_its_path_unless_the_last_hop_did_it();
  a_strange_key_ends_the_queue_pair();
  packets_of_a_message_say_where_they_go();
  a_nack_sends_that_packet_again_by_another_path();
  a_nack_of_what_arrived_means_nothing();
  a_message_is_over_when_the_peer_took_it();
  silence_is_probed_and_then_given_up();
  an_error_ends_the_queue_pair_only_if_silence_follows();
  for (uint64_t seed = 1; seed <= 200; ++seed) whatever_the_network_does_messages_come_once(seed);
  return etloop::test::failures();
}
