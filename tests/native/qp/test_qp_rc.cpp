// SEND, READ and atomics between two ends: what is delivered, what is refused, what is asked for again.
#include <cstring>

#include "support/check.h"
#include "support/qp_link.h"

using namespace etloop;
using namespace etloop::test;
using wire::Opcode;

namespace {

WorkRequest request(WorkKind kind, uint32_t bytes, uint64_t va = kMemoryBase, uint32_t rkey = kMemoryKey) {
  WorkRequest made;
  made.kind = kind;
  made.bytes = bytes;
  made.va = va;
  made.rkey = rkey;
  return made;
}

std::vector<uint8_t> counted(size_t bytes) {
  std::vector<uint8_t> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<uint8_t>(i * 7 + 1);
  return made;
}

void a_send_takes_a_receive_and_its_bytes_land_there() {
  const auto bytes = counted(3000);
  for (const WorkKind kind : {WorkKind::send, WorkKind::send_imm, WorkKind::send_invalidate}) {
    Link link(link_params(), true);
    std::vector<uint8_t> room(3000);
    link.b.receives.post({42, 3000, room.data()});
    WorkRequest send = request(kind, 3000);
    send.source = bytes.data();
    send.imm = 0xABCD;
    link.a.qp.post(send);
    link.settle(0);
    CHECK_EQ(link.b.delivered.size(), 1u);
    if (link.b.delivered.empty()) return;
    const Delivered& got = link.b.delivered[0];
    CHECK(got.is_send);
    CHECK_EQ(got.bytes, 3000u);
    CHECK_EQ(got.receive, 42u);
    CHECK_EQ(got.has_imm, kind == WorkKind::send_imm);
    CHECK_EQ(got.imm, kind == WorkKind::send_imm ? 0xABCDu : 0u);
    CHECK_EQ(got.invalidates, kind == WorkKind::send_invalidate);
    CHECK_EQ(got.invalidated_rkey, kind == WorkKind::send_invalidate ? kMemoryKey : 0u);
    CHECK(room == bytes);
    CHECK_EQ(link.a.completed.size(), 1u);
  }
}

void without_a_receive_the_sender_waits_the_receivers_timer() {
  for (const WorkKind kind : {WorkKind::send, WorkKind::write_imm}) {
    TransportSettings params = link_params();
    params.recovery.min_rnr_timer_code = 1;  // 10 us
    Link link(params, true);
    link.a.qp.post(request(kind, 2500));
    link.settle(0);
    CHECK(link.b.delivered.empty());
    CHECK_EQ(link.a.qp.counters.rnr_nak_retry_err, 1);
    CHECK_EQ(link.b.qp.counters.out_of_buffer, 1);
    CHECK(!link.a.qp.has_run());
    CHECK_EQ(link.a.qp.deadline(), 10'000);
    link.a.qp.on_timer(9'999);
    CHECK(!link.a.qp.has_run());
    link.a.qp.on_timer(10'000);
    link.settle(10'000);  // still nothing posted: told once more
    CHECK_EQ(link.a.qp.counters.rnr_nak_retry_err, 2);
    link.b.receives.post({});
    link.a.qp.on_timer(20'000);
    link.settle(20'000);
    CHECK_EQ(link.b.delivered.size(), 1u);
    CHECK_EQ(link.a.completed.size(), 1u);
    CHECK_EQ(link.b.receives.size(), 0u);
    CHECK_EQ(link.a.qp.counters.local_ack_timeout_err, 0);
  }
}

void receiver_not_ready_ends_after_its_own_retries() {
  TransportSettings params = link_params();
  params.recovery.rnr_retry_limit = 2;
  params.recovery.min_rnr_timer_code = 0;  // 655 ms
  Link link(params, true);
  link.a.qp.post(request(WorkKind::send, 10));
  Nanos now = 0;
  for (int told = 0; told < 2; ++told) {
    link.settle(now);
    CHECK_EQ(link.a.qp.deadline(), now + 655'360'000);
    now = link.a.qp.deadline();
    link.a.qp.on_timer(now);
  }
  link.settle(now);
  CHECK(link.a.qp.fault() == QpFault::rnr_retries_exceeded);
}

void every_timer_code_has_its_time() {
  CHECK_EQ(rnr_timer_ns(0), 655'360'000);
  CHECK_EQ(rnr_timer_ns(1), 10'000);
  CHECK_EQ(rnr_timer_ns(12), 640'000);
  CHECK_EQ(rnr_timer_ns(31), 491'520'000);
  for (uint8_t code = 2; code < 32; ++code) CHECK(rnr_timer_ns(code) > rnr_timer_ns(static_cast<uint8_t>(code - 1)));
}

void a_read_brings_the_bytes() {
  for (const uint32_t bytes : {0u, 1u, 1024u, 1025u, 5000u}) {
    Link link(link_params(0xFFFFFE));
    const auto there = counted(bytes);
    std::copy(there.begin(), there.end(), link.b.memory.bytes().begin());
    std::vector<uint8_t> here(bytes);
    WorkRequest read = request(WorkKind::read, bytes);
    read.into = here.data();
    link.a.qp.post(read);
    link.a.qp.post(request(WorkKind::write, 100, kMemoryBase + 8192));  // without a fence it may overtake the READ
    link.settle(0);
    CHECK(here == there);
    CHECK_EQ(link.a.completed.size(), 2u);
    CHECK_EQ(link.a.qp.counters.read_response_bytes, bytes);
    CHECK_EQ(link.b.qp.counters.rx_read_requests, 1);
    CHECK_EQ(link.a.qp.deadline(), kNever);
  }
}

void a_lost_response_is_asked_for_again_from_there() {
  Link link(link_params());
  const auto there = counted(5000);
  std::copy(there.begin(), there.end(), link.b.memory.bytes().begin());
  std::vector<uint8_t> here(5000);
  WorkRequest read = request(WorkKind::read, 5000);
  read.into = here.data();
  link.a.qp.post(read);
  for (const auto& packet : send_all(link.a.qp, 0)) link.b.hear(packet, 0);
  auto responses = answers(link.b.qp);
  CHECK_EQ(responses.size(), 5u);
  responses.erase(responses.begin() + 2);
  for (const auto& packet : responses) link.a.hear(packet, 1);
  CHECK_EQ(link.a.qp.counters.implied_nak_seq_err, 1);
  const auto again = send_all(link.a.qp, 2);
  CHECK_EQ(again.size(), 1u);
  CHECK(again[0].opcode == Opcode::read_request);
  CHECK_EQ(again[0].psn, 2u);
  CHECK_EQ(again[0].va, kMemoryBase + 2048);
  CHECK_EQ(again[0].dma_bytes, 5000u - 2048);
  link.b.hear(again[0], 3);
  CHECK_EQ(link.b.qp.counters.duplicate_request, 1);
  for (const auto& packet : answers(link.b.qp)) link.a.hear(packet, 4);
  CHECK(here == there);
  CHECK_EQ(link.a.completed.size(), 1u);
}

// An acknowledgement of what follows a READ says that its responses were lost, not that it is over.
void an_acknowledgement_does_not_complete_a_read() {
  Link link(link_params());
  link.a.qp.post(request(WorkKind::write, 10));
  link.a.qp.post(request(WorkKind::read, 2000));
  link.a.qp.post(request(WorkKind::write, 10));
  for (const auto& packet : send_all(link.a.qp, 0)) link.b.hear(packet, 0);
  const auto back = answers(link.b.qp);
  CHECK(back.back().opcode == Opcode::acknowledge);
  CHECK_EQ(back.back().psn, 3u);
  link.a.hear(back.back(), 1);
  CHECK_EQ(link.a.completed.size(), 1u);
  CHECK_EQ(link.a.qp.oldest_unacknowledged(), 1u);
  CHECK_EQ(link.a.qp.counters.implied_nak_seq_err, 1);
  link.settle(2);
  CHECK_EQ(link.a.completed.size(), 3u);
  CHECK_EQ(link.b.delivered.size(), 2u);  // the second write was carried out once
}

void no_more_reads_at_once_than_agreed() {
  TransportSettings params = link_params();
  params.recovery.outstanding_reads = 2;
  Link link(params);
  for (int i = 0; i < 5; ++i) link.a.qp.post(request(WorkKind::read, 100));
  CHECK_EQ(send_all(link.a.qp, 0).size(), 2u);

  Link greedy(params);  // a peer that does not keep to it
  wire::Packet read;
  read.opcode = Opcode::read_request;
  read.rkey = kPatternKey;
  read.dma_bytes = 100;
  for (uint32_t psn = 0; psn < 3; ++psn) {
    read.psn = psn;
    greedy.b.hear(read, 0);
  }
  CHECK(greedy.b.qp.fault() == QpFault::refused_request);
}

uint64_t word(End& end, size_t at = 0) {
  uint64_t value = 0;
  std::memcpy(&value, end.memory.bytes().data() + at, sizeof value);
  return value;
}

void atomics_happen_once_whatever_is_repeated() {
  Link link(link_params());
  WorkRequest add = request(WorkKind::fetch_add, 0);
  add.swap_add = 5;
  link.a.qp.post(add);
  const auto sent = send_all(link.a.qp, 0);
  CHECK_EQ(sent.size(), 1u);
  link.b.hear(sent[0], 0);
  CHECK_EQ(answers(link.b.qp).size(), 1u);  // lost on its way
  link.a.qp.on_timer(link.a.qp.deadline());
  link.settle(2000);
  CHECK_EQ(word(link.b), 5u);
  CHECK_EQ(link.a.completed.size(), 1u);
  CHECK_EQ(link.a.completed[0].original, 0u);

  WorkRequest swap = request(WorkKind::compare_swap, 0);
  swap.compare = 5;
  swap.swap_add = 0xFFFF'0000'1111'2222;
  link.a.qp.post(swap);
  link.a.qp.post(swap);  // the second finds another value and changes nothing
  link.settle(3000);
  CHECK_EQ(word(link.b), 0xFFFF'0000'1111'2222u);
  CHECK_EQ(link.a.completed[1].original, 5u);
  CHECK_EQ(link.a.completed[2].original, 0xFFFF'0000'1111'2222u);
  CHECK_EQ(link.b.qp.counters.rx_atomic_requests, 3);
}

void a_result_too_old_for_the_cache_is_not_made_up() {
  TransportSettings params = link_params();
  params.recovery.outstanding_reads = 2;
  Link link(params);
  wire::Packet add;
  add.opcode = Opcode::fetch_add;
  add.va = kMemoryBase;
  add.rkey = kMemoryKey;
  add.swap_add = 1;
  for (uint32_t psn = 0; psn < 4; ++psn) {
    add.psn = psn;
    link.b.hear(add, 0);
    answers(link.b.qp);
  }
  add.psn = 1;
  link.b.hear(add, 0);
  CHECK(answers(link.b.qp).empty());
  add.psn = 2;
  link.b.hear(add, 0);
  const auto repeated = answers(link.b.qp);
  CHECK_EQ(repeated.size(), 1u);
  CHECK_EQ(repeated[0].original, 2u);
  CHECK_EQ(word(link.b), 4u);
}

// Memory of pattern keeps nothing: an atomic there is told to the message layer, and answered with the pattern.
void an_atomic_on_memory_that_is_not_kept_is_delivered() {
  Link link(link_params(), true);
  link.a.qp.post(request(WorkKind::fetch_add, 0, 64, kPatternKey));
  link.settle(0);
  CHECK(link.a.qp.fault() == QpFault::none);
  CHECK_EQ(link.a.completed.size(), 1u);
  CHECK_EQ(link.b.delivered.size(), 1u);
  CHECK(link.b.delivered[0].is_atomic);
  CHECK_EQ(link.b.delivered[0].va, 64u);
}

// What is refused, with which NAK; the responder then hears nothing more, and the requester's queue is flushed.
void what_may_not_be_done_ends_the_queue_pair() {
  struct Row {
    const char* why;
    WorkRequest request;
    QpFault theirs;
    QpFault ours;
  };
  const Row rows[] = {
      {"a write behind the end of the region", request(WorkKind::write, 10, kMemoryBase + kMemoryBytes - 9),
       QpFault::remote_access, QpFault::refused_access},
      {"a write that wraps around the address space", request(WorkKind::write, 10, UINT64_MAX - 4),
       QpFault::remote_access, QpFault::refused_access},
      {"a read below the region", request(WorkKind::read, 10, kMemoryBase - 1), QpFault::remote_access,
       QpFault::refused_access},
      {"a read with a foreign key", request(WorkKind::read, 10, kMemoryBase, 0xBAD), QpFault::remote_access,
       QpFault::refused_access},
      {"an atomic with a foreign key", request(WorkKind::fetch_add, 0, kMemoryBase, 0xBAD), QpFault::remote_access,
       QpFault::refused_access},
      {"an atomic that is not aligned", request(WorkKind::compare_swap, 0, kMemoryBase + 4),
       QpFault::remote_invalid_request, QpFault::refused_request},
      {"a send longer than the receive", request(WorkKind::send, 101), QpFault::remote_invalid_request,
       QpFault::refused_request},
  };
  for (const Row& row : rows) {
    const int before = test::failures();
    Link link(link_params(), true);
    link.b.receives.post({0, 100, nullptr});
    link.a.qp.post(row.request);
    link.a.qp.post(request(WorkKind::write, 10));
    link.settle(0);
    for (int round = 0; round < 100 && link.a.qp.fault() == QpFault::none; ++round) {
      const Nanos now = link.a.qp.deadline();
      link.a.qp.on_timer(now);
      link.settle(now);
    }
    WorkRequest done;
    while (link.a.qp.pop_completed(done)) link.a.completed.push_back(done);
    CHECK(link.a.qp.fault() == row.theirs);
    CHECK(link.b.qp.fault() == row.ours);
    CHECK(link.b.delivered.empty());
    CHECK_EQ(link.a.completed.size(), 2u);
    for (const WorkRequest& flushed : link.a.completed) CHECK(flushed.flushed);
    link.a.qp.post(request(WorkKind::write, 10));
    CHECK(!link.a.qp.has_run());
    if (test::failures() > before) std::cerr << "  in: " << row.why << '\n';
  }
}

void writes_with_content_land_at_their_address() {
  const auto bytes = counted(2500);
  Link link(link_params());
  WorkRequest write = request(WorkKind::write, 2500, kMemoryBase + 100);
  write.source = bytes.data();
  link.a.qp.post(write);
  link.settle(0);
  CHECK(std::memcmp(link.b.memory.bytes().data() + 100, bytes.data(), bytes.size()) == 0);
  CHECK_EQ(link.b.memory.bytes()[99], 0);
  CHECK_EQ(link.b.memory.bytes()[2600], 0);
}

void a_response_of_another_form_is_a_fault() {
  Link link(link_params());
  link.a.qp.post(request(WorkKind::read, 2000));
  send_all(link.a.qp, 0);
  wire::Packet wrong;
  wrong.opcode = Opcode::read_response_only;  // two were due
  wrong.payload_bytes = 100;
  link.a.hear(wrong, 1);
  CHECK(link.a.qp.fault() == QpFault::bad_response);
}

void acknowledgements_tell_of_congestion_and_time() {
  Link link(link_params());
  link.a.qp.post(request(WorkKind::write, 3000));
  for (const auto& packet : send_all(link.a.qp, 100)) link.b.hear(packet, 150);
  link.b.qp.note_congestion();
  const auto back = answers(link.b.qp);
  CHECK(back[0].becn);
  link.a.hear(back[0], 700);
  CHECK(link.a.last_outcome.ecn_echo);
  CHECK_EQ(link.a.last_outcome.rtt_ns, 600);
  CHECK_EQ(link.a.last_outcome.bytes, 3000u);
  CHECK_EQ(link.a.last_outcome.packets, 3u);
  CHECK_EQ(link.a.qp.in_flight_bytes(), 0);
  link.a.qp.post(request(WorkKind::write, 10));
  for (const auto& packet : send_all(link.a.qp, 800)) link.b.hear(packet, 800);
  CHECK(!answers(link.b.qp)[0].becn);  // told once
}

}  // namespace

int main() {
  a_send_takes_a_receive_and_its_bytes_land_there();
  without_a_receive_the_sender_waits_the_receivers_timer();
  receiver_not_ready_ends_after_its_own_retries();
  every_timer_code_has_its_time();
  a_read_brings_the_bytes();
  a_lost_response_is_asked_for_again_from_there();
  an_acknowledgement_does_not_complete_a_read();
  no_more_reads_at_once_than_agreed();
  atomics_happen_once_whatever_is_repeated();
  a_result_too_old_for_the_cache_is_not_made_up();
  an_atomic_on_memory_that_is_not_kept_is_delivered();
  what_may_not_be_done_ends_the_queue_pair();
  writes_with_content_land_at_their_address();
  a_response_of_another_form_is_a_fault();
  acknowledgements_tell_of_congestion_and_time();
  return etloop::test::failures();
}
