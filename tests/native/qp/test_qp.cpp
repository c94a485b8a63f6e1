// Two queue pair ends over a link that a test can cut: what leaves, what is acknowledged, what is sent again.
#include "qp/qp.h"

#include <deque>
#include <utility>
#include <vector>

#include "support/check.h"

using namespace etloop;
using wire::Opcode;

namespace {

constexpr uint32_t kRkey = 0x1201;

TransportSettings params(uint32_t psn = 0, uint32_t window = 64, uint32_t ack_every = 8) {
  TransportSettings p;
  p.path_mtu_bytes = 1024;
  p.window_packets = window;
  p.ack_every_packets = ack_every;
  p.timeout_ns = 8000;
  p.recovery.timeout_floor_ns = 1000;
  p.retry_limit = 3;
  p.recovery.initial_psn = psn;
  return p;
}

WorkRequest data(uint32_t bytes, uint32_t lane = 0) {
  WorkRequest request;
  request.bytes = bytes;
  request.imm = bytes;
  request.va = 0x7000 + lane;
  request.rkey = kRkey;
  request.lane = lane;
  return request;
}

std::vector<wire::Packet> unrolled(const PacketRun& run) {
  std::vector<wire::Packet> packets;
  for (uint32_t i = 0; i < run.count; ++i) {
    wire::Packet packet = run.head;
    packet.psn = (run.head.psn + i) & wire::kPsnMask;
    if (run.count > 1) packet.ack_req = (packet.psn + 1) % run.ack_every == 0;
    packets.push_back(packet);
  }
  return packets;
}

std::vector<wire::Packet> send_all(Qp& qp, Nanos now, uint32_t max_run = 4) {
  std::vector<wire::Packet> packets;
  while (qp.has_run()) {
    const PacketRun run = qp.next_run(max_run);
    qp.run_sent(run, now);
    for (const auto& packet : unrolled(run)) packets.push_back(packet);
  }
  return packets;
}

void drop_answer(Qp& qp) { qp.answer_sent(qp.answer()); }

struct Pair {
  explicit Pair(const TransportSettings& p)
      : sender(0x11, 0x12, 0, p, {.pattern_rkey = 0xF1}), receiver(0x12, 0x11, 1, p, {.pattern_rkey = kRkey}) {}
  Qp sender;
  Qp receiver;
  std::vector<uint32_t> arrived;
  std::vector<uint32_t> completed;

  void receive(const wire::Packet& packet) {
    Delivered delivered;
    for (bool whole = receiver.on_request(packet, delivered); whole; whole = receiver.next_delivered(delivered)) {
      arrived.push_back(delivered.bytes);
    }
  }
  void answer(Nanos now) {
    while (receiver.answer_due()) {
      const PacketRun run = receiver.answer();
      receiver.answer_sent(run);
      sender.on_answer(run.head, now);
    }
    WorkRequest done;
    while (sender.pop_completed(done)) completed.push_back(done.lane);
  }
};

void a_message_is_first_middles_last() {
  Pair pair(params());
  pair.sender.post(data(1024 * 5 + 10));
  const auto packets = send_all(pair.sender, 0);
  CHECK_EQ(packets.size(), 6u);
  CHECK(packets[0].opcode == Opcode::write_first);
  CHECK_EQ(packets[0].dma_bytes, 1024u * 5 + 10);
  for (size_t i = 1; i < 5; ++i) CHECK(packets[i].opcode == Opcode::write_middle);
  CHECK(packets[5].opcode == Opcode::write_last_imm);
  CHECK_EQ(packets[5].payload_bytes, 10u);
  CHECK_EQ(packets[5].imm, 1024u * 5 + 10);
  CHECK(packets[5].ack_req);
}

void sizes_at_the_edges_of_a_packet() {
  for (const uint32_t bytes : {0u, 1u, 1023u, 1024u, 1025u, 2048u, 2049u}) {
    Pair pair(params());
    pair.sender.post(data(bytes, 7));
    for (const auto& packet : send_all(pair.sender, 0)) pair.receive(packet);
    pair.answer(1);
    CHECK_EQ(pair.arrived.size(), 1u);
    CHECK_EQ(pair.arrived[0], bytes);
    CHECK_EQ(pair.completed.size(), 1u);
    CHECK_EQ(pair.sender.deadline(), kNever);
  }
}

void a_clear_to_send_is_one_write_with_content() {
  Pair pair(params());
  WorkRequest grant;
  grant.kind = WorkKind::clear_to_send;
  grant.bytes = kClearToSendBytes;
  grant.va = 0x99;
  grant.rkey = kRkey;
  grant.grant_va = 0x1122334455667788;
  pair.sender.post(grant);
  const PacketRun run = pair.sender.next_run(16);
  CHECK(run.head.opcode == Opcode::write_only);
  CHECK_EQ(run.head.payload_bytes, kClearToSendBytes);
  CHECK_EQ(static_cast<int>(run.head.payload[0]), 0x88);
  pair.sender.run_sent(run, 0);
  CHECK_EQ(pair.sender.counters.tx_messages, 0);  // grants are not data
}

void sequence_numbers_wrap() {
  Pair pair(params(0xFFFFFE));
  for (uint32_t m = 0; m < 4; ++m) pair.sender.post(data(3 * 1024, m));
  for (const auto& packet : send_all(pair.sender, 0)) pair.receive(packet);
  pair.answer(1);
  CHECK_EQ(pair.arrived.size(), 4u);
  CHECK_EQ(pair.completed.size(), 4u);
}

void the_window_holds_back_until_acknowledged() {
  Pair pair(params(0, 4, 256));
  pair.sender.post(data(10 * 1024));
  auto packets = send_all(pair.sender, 0);
  CHECK_EQ(packets.size(), 4u);
  bool asked = false;
  for (const auto& packet : packets) {
    asked = asked || packet.ack_req;
    pair.receive(packet);
  }
  CHECK(asked);  // or the window would only open by timeout
  pair.answer(1);
  CHECK(pair.sender.has_run());
}

void one_nak_per_gap_and_go_back() {
  Pair pair(params());
  pair.sender.post(data(6 * 1024));
  const auto packets = send_all(pair.sender, 0);
  pair.receive(packets[0]);
  pair.receive(packets[2]);  // 1 is lost
  pair.receive(packets[3]);
  CHECK(pair.receiver.answer_due());
  const wire::Packet nak = pair.receiver.answer().head;
  CHECK_EQ(static_cast<int>(nak.syndrome), static_cast<int>(wire::kSyndromeNakSequence));
  CHECK_EQ(nak.psn, 1u);
  drop_answer(pair.receiver);
  pair.receive(packets[4]);
  CHECK(!pair.receiver.answer_due());  // silence until the missing one comes
  pair.sender.on_answer(nak, 10);
  const auto again = send_all(pair.sender, 10);
  CHECK_EQ(again.size(), 5u);
  CHECK_EQ(again[0].psn, 1u);
  CHECK(again[0].opcode == Opcode::write_middle);  // exactly as first sent
  for (const auto& packet : again) pair.receive(packet);
  pair.answer(11);
  CHECK_EQ(pair.arrived.size(), 1u);
  CHECK_EQ(pair.sender.counters.retransmitted_packets, 5);
  CHECK_EQ(pair.receiver.counters.out_of_sequence, 3);
  CHECK_EQ(pair.receiver.counters.naks_tx, 1);
}

void a_gap_closed_in_the_same_batch_still_asks_again() {
  Pair pair(params());
  pair.sender.post(data(3 * 1024));
  const auto packets = send_all(pair.sender, 0);
  pair.receive(packets[0]);
  pair.receive(packets[2]);  // overtakes 1 and is dropped
  pair.receive(packets[1]);
  const wire::Packet nak = pair.receiver.answer().head;
  CHECK_EQ(static_cast<int>(nak.syndrome), static_cast<int>(wire::kSyndromeNakSequence));
  CHECK_EQ(nak.psn, 2u);
}

void duplicates_are_acknowledged_again() {
  Pair pair(params());
  pair.sender.post(data(2 * 1024));
  const auto packets = send_all(pair.sender, 0);
  for (const auto& packet : packets) pair.receive(packet);
  drop_answer(pair.receiver);  // lost on its way
  pair.receive(packets[1]);
  CHECK(pair.receiver.answer_due());
  CHECK_EQ(pair.receiver.answer().head.psn, 1u);
  pair.answer(5);
  CHECK_EQ(pair.arrived.size(), 1u);
  CHECK_EQ(pair.completed.size(), 1u);
}

void the_timeout_doubles_up_to_its_cap_and_gives_up_after_the_time_that_fixed_ones_would_take() {
  Pair pair(params());
  pair.sender.post(data(1024));
  send_all(pair.sender, 0);
  Nanos now = 0;
  for (const Nanos wait : {1000, 2000, 4000, 8000, 8000}) {
    CHECK_EQ(pair.sender.deadline(), now + wait);
    now = pair.sender.deadline();
    pair.sender.on_timer(now);
    CHECK(pair.sender.fault() == QpFault::none);
    CHECK_EQ(send_all(pair.sender, now).size(), 1u);
  }
  CHECK_EQ(pair.sender.counters.roce_adp_retrans, 3);
  CHECK_EQ(pair.sender.counters.roce_adp_retrans_to, 2);
  pair.sender.on_timer(pair.sender.deadline());  // at 31 us, past 3 times 8
  CHECK(pair.sender.fault() == QpFault::retries_exceeded);
  CHECK(!pair.sender.has_run());
  CHECK_EQ(pair.sender.deadline(), kNever);
  WorkRequest done;
  CHECK(pair.sender.pop_completed(done));
  CHECK(done.flushed);
}

void a_wait_that_doubled_halves_with_each_acknowledgement_and_ends_with_a_measured_round_trip() {
  Pair pair(params());
  const auto send_one = [&](Nanos now) {
    pair.sender.post(data(1024));
    return send_all(pair.sender, now);
  };
  auto packets = send_one(0);
  for (const Nanos silent_until : {1000, 3000}) {
    pair.sender.on_timer(silent_until);
    packets = send_all(pair.sender, silent_until);
  }
  pair.receive(packets.front());
  pair.answer(3100);  // of what was sent three times: nobody knows how long it took
  packets = send_one(4000);
  CHECK_EQ(pair.sender.deadline(), 4000 + 2000);
  pair.receive(packets.front());
  pair.answer(4100);
  send_one(5000);
  CHECK_EQ(pair.sender.deadline(), 5000 + 1000);
}

void time_in_which_this_end_did_not_run_is_not_the_silence_of_the_peer() {
  Pair pair(params());
  pair.sender.post(data(1024));
  send_all(pair.sender, 0);
  Nanos now = 1'000'000;  // the whole patience of 24 us is over before the first timer is looked at
  for (int retry = 1; retry <= 3; ++retry, now += 8000) {
    pair.sender.on_timer(now);
    CHECK(pair.sender.fault() == QpFault::none);
    CHECK_EQ(send_all(pair.sender, now).size(), 1u);
  }
  pair.sender.on_timer(now);
  CHECK(pair.sender.fault() == QpFault::retries_exceeded);
  CHECK_EQ(pair.sender.retries(), 3u);
  CHECK_EQ(now - pair.sender.progress_ns(), now);
}

void a_fixed_timeout_counts_its_retries() {
  TransportSettings fixed = params();
  fixed.recovery.adaptive_timeout = false;
  Pair pair(fixed);
  pair.sender.post(data(1024));
  send_all(pair.sender, 0);
  for (int retry = 1; retry <= 3; ++retry) {
    CHECK_EQ(pair.sender.deadline(), retry * 8000);
    pair.sender.on_timer(pair.sender.deadline());
    CHECK(pair.sender.fault() == QpFault::none);
    send_all(pair.sender, retry * 8000);
  }
  pair.sender.on_timer(pair.sender.deadline());
  CHECK(pair.sender.fault() == QpFault::retries_exceeded);
}

void an_acknowledgement_that_overtakes_a_rewind_moves_on() {
  Pair pair(params());
  pair.sender.post(data(4 * 1024, 1));
  pair.sender.post(data(1024, 2));
  const auto packets = send_all(pair.sender, 0);
  for (const auto& packet : packets) pair.receive(packet);
  pair.sender.on_timer(1000);  // goes back to the beginning, has not resent yet
  pair.answer(1001);             // acknowledges everything
  CHECK(!pair.sender.has_run());
  CHECK_EQ(pair.completed.size(), 2u);
}

void stale_and_foreign_acknowledgements_change_nothing() {
  Pair pair(params());
  pair.sender.post(data(2 * 1024));
  send_all(pair.sender, 0);
  wire::Packet foreign;
  foreign.opcode = Opcode::acknowledge;
  foreign.syndrome = wire::kSyndromeAck;
  for (const uint32_t psn : {2u, 100u, 0x7FFFFFu, 0x800000u, 0xFFFFFFu}) {
    foreign.psn = psn;
    pair.sender.on_answer(foreign, 1);
    CHECK_EQ(pair.sender.oldest_unacknowledged(), 0u);
  }
  CHECK_EQ(pair.sender.counters.acks_rx, 5);  // they came all the same: none was lost on the way
  foreign.syndrome = wire::kSyndromeNakSequence;
  foreign.psn = 2;
  pair.sender.on_answer(foreign, 1);
  CHECK_EQ(pair.sender.counters.naks_rx, 1);
  CHECK_EQ(pair.sender.counters.packet_seq_err, 0);
}

void a_wrong_key_is_a_remote_access_error() {
  Pair pair(params());
  WorkRequest request = data(100);
  request.rkey = 0xBAD;
  pair.sender.post(request);
  for (const auto& packet : send_all(pair.sender, 0)) pair.receive(packet);
  pair.answer(1);
  CHECK(pair.arrived.empty());
  CHECK(pair.sender.fault() == QpFault::none);  // it may be forged
  for (int round = 0; round < 100 && pair.sender.fault() == QpFault::none; ++round) {
    const Nanos now = pair.sender.deadline();
    pair.sender.on_timer(now);
    for (const auto& packet : send_all(pair.sender, now)) pair.receive(packet);
  }
  CHECK(pair.sender.fault() == QpFault::remote_access);
}

void a_forged_error_does_not_end_a_healthy_queue_pair() {
  Pair pair(params());
  pair.sender.post(data(100));
  const auto packets = send_all(pair.sender, 0);
  wire::Packet forged;
  forged.opcode = Opcode::acknowledge;
  forged.syndrome = wire::kSyndromeNakRemoteOperational;
  forged.psn = pair.sender.oldest_unacknowledged();
  for (int count = 0; count < 200; ++count) pair.sender.on_answer(forged, 1);
  for (const auto& packet : packets) pair.receive(packet);
  pair.answer(2);
  CHECK(pair.sender.fault() == QpFault::none);
  CHECK_EQ(pair.sender.counters.naks_rx, 200);
  CHECK_EQ(pair.arrived.size(), 1u);
}

void what_breaks_the_message_form_is_an_invalid_request() {
  wire::Packet middle;
  middle.opcode = Opcode::write_middle;
  middle.payload_bytes = 1024;
  wire::Packet first = middle;
  first.opcode = Opcode::write_first;
  first.rkey = kRkey;
  first.dma_bytes = 1024;  // a FIRST must leave something for a LAST
  wire::Packet longer = first;
  longer.opcode = Opcode::write_only;
  longer.dma_bytes = 2048;
  for (const wire::Packet& bad : {middle, first, longer}) {
    Pair pair(params());
    pair.receive(bad);
    CHECK_EQ(static_cast<int>(pair.receiver.answer().head.syndrome),
             static_cast<int>(wire::kSyndromeNakInvalidRequest));
  }
}

// Messages of all sizes over a link that loses, repeats and swaps as a generator says: all arrive once, in order.
void a_bad_link_loses_nothing(uint64_t seed) {
  uint64_t state = seed;
  const auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  Pair pair(params(static_cast<uint32_t>(random()) & wire::kPsnMask, 16, 4));
  std::vector<uint32_t> sizes;
  for (uint32_t m = 0; m < 60; ++m) {
    sizes.push_back(static_cast<uint32_t>(random() % 9000));
    pair.sender.post(data(sizes.back(), m));
  }
  Nanos now = 0;
  std::deque<wire::Packet> link;
  for (int turn = 0; turn < 20000 && pair.completed.size() < sizes.size(); ++turn) {
    now += 10;
    if (pair.sender.has_run()) {
      const PacketRun run = pair.sender.next_run(5);
      pair.sender.run_sent(run, now);
      for (const auto& packet : unrolled(run)) {
        if (random() % 20 == 0) continue;
        link.push_back(packet);
        if (random() % 30 == 0) link.push_back(packet);
        if (link.size() > 1 && random() % 30 == 0) std::swap(link.back(), link[link.size() - 2]);
      }
    }
    for (int i = 0; i < 3 && !link.empty(); ++i) {
      pair.receive(link.front());
      link.pop_front();
    }
    if (random() % 20 == 0 && pair.receiver.answer_due()) drop_answer(pair.receiver);  // lost
    pair.answer(now);
    if (pair.sender.deadline() <= now) pair.sender.on_timer(now);
    if (pair.sender.fault() != QpFault::none) break;
  }
  CHECK(pair.sender.fault() == QpFault::none);
  CHECK(pair.arrived == sizes);
  CHECK_EQ(pair.completed.size(), sizes.size());
}

}  // namespace

int main() {
  a_message_is_first_middles_last();
  sizes_at_the_edges_of_a_packet();
  a_clear_to_send_is_one_write_with_content();
  sequence_numbers_wrap();
  the_window_holds_back_until_acknowledged();
  one_nak_per_gap_and_go_back();
  a_gap_closed_in_the_same_batch_still_asks_again();
  duplicates_are_acknowledged_again();
  the_timeout_doubles_up_to_its_cap_and_gives_up_after_the_time_that_fixed_ones_would_take();
  a_wait_that_doubled_halves_with_each_acknowledgement_and_ends_with_a_measured_round_trip();
  time_in_which_this_end_did_not_run_is_not_the_silence_of_the_peer();
  a_fixed_timeout_counts_its_retries();
  an_acknowledgement_that_overtakes_a_rewind_moves_on();
  stale_and_foreign_acknowledgements_change_nothing();
  a_wrong_key_is_a_remote_access_error();
  a_forged_error_does_not_end_a_healthy_queue_pair();
  what_breaks_the_message_form_is_an_invalid_request();
  for (uint64_t seed = 1; seed <= 200; ++seed) a_bad_link_loses_nothing(seed);
  return etloop::test::failures();
}
