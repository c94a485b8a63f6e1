// Posted requests: which sequence numbers they take, what an acknowledgement completes, what is sent again and what a fault
// takes with it.
#include "qp/request_ring.h"

#include <memory_resource>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint32_t kMtuShift = 10;

WorkRequest request(WorkKind kind, uint32_t bytes, uint64_t index = 0) {
  WorkRequest made;
  made.kind = kind;
  made.bytes = bytes;
  made.index = index;
  return made;
}

RequestRing ring(uint32_t first_psn = 0) { return {first_psn, kMtuShift, *std::pmr::new_delete_resource()}; }

void requests_take_numbers_one_after_another() {
  RequestRing requests = ring(wire::kPsnMask);  // wraps
  requests.post(request(WorkKind::write, 3000, 1));
  requests.post(request(WorkKind::write, 0, 2));
  CHECK_EQ(requests.next().first_psn, wire::kPsnMask);
  CHECK_EQ(requests.next().packets, 3u);
  CHECK_EQ(requests.at_psn(1).index, 1u);
  CHECK_EQ(requests.at_psn(2).index, 2u);
  CHECK_EQ(requests.at_psn(2).packets, 1u);
}

void many_more_than_the_first_room_keep_their_order() {
  RequestRing requests = ring();
  for (uint64_t i = 0; i < 100; ++i) {
    requests.post(request(WorkKind::write, 1024, i));
    requests.advance();
  }
  AckOutcome outcome;
  requests.complete_before(60, outcome);
  CHECK_EQ(outcome.bytes, 60u * 1024u);
  WorkRequest done;
  for (uint64_t i = 0; i < 60; ++i) {
    CHECK(requests.pop_completed(done));
    CHECK_EQ(done.index, i);
  }
  CHECK(!requests.pop_completed(done));
  CHECK(!requests.empty());
}

void a_part_is_told_once() {
  RequestRing requests = ring();
  requests.post(request(WorkKind::write, 4096));
  AckOutcome first;
  requests.complete_before(3, first);
  CHECK_EQ(first.bytes, 3072u);
  AckOutcome rest;
  requests.complete_before(4, rest);
  CHECK_EQ(rest.bytes, 1024u);
  CHECK(requests.empty());
}

void an_acknowledgement_stops_before_a_read() {
  RequestRing requests = ring();
  requests.post(request(WorkKind::write, 1024));
  requests.post(request(WorkKind::read, 2048));
  requests.post(request(WorkKind::write, 1024));
  CHECK(requests.any_responses());
  CHECK_EQ(requests.acknowledgeable_to(4, 0), 1u);
  CHECK_EQ(requests.acknowledgeable_to(1, 0), 1u);
}

void no_more_reads_begin_than_may_wait() {
  RequestRing requests = ring();
  requests.post(request(WorkKind::read, 1024));
  requests.post(request(WorkKind::read, 1024));
  CHECK(requests.may_begin(1));
  requests.advance();
  CHECK(!requests.may_begin(1));
  CHECK(requests.may_begin(2));
}

void a_rewind_sends_from_the_request_that_has_the_number() {
  RequestRing requests = ring();
  requests.post(request(WorkKind::write, 2048, 1));
  requests.post(request(WorkKind::write, 2048, 2));
  requests.advance();
  requests.advance();
  CHECK(!requests.any_to_send());
  requests.rewind(3);
  CHECK(requests.any_to_send());
  CHECK_EQ(requests.next().index, 2u);
}

void a_fault_flushes_what_is_not_over() {
  RequestRing requests = ring();
  requests.post(request(WorkKind::write, 1024));
  requests.post(request(WorkKind::read, 1024));
  AckOutcome outcome;
  requests.complete_before(1, outcome);
  requests.flush();
  WorkRequest done;
  CHECK(requests.pop_completed(done));
  CHECK(!done.flushed);
  CHECK(requests.pop_completed(done));
  CHECK(done.flushed);
  CHECK(requests.empty());
  CHECK(!requests.any_responses());
}

}  // namespace

int main() {
  requests_take_numbers_one_after_another();
  many_more_than_the_first_room_keep_their_order();
  a_part_is_told_once();
  an_acknowledgement_stops_before_a_read();
  no_more_reads_begin_than_may_wait();
  a_rewind_sends_from_the_request_that_has_the_number();
  a_fault_flushes_what_is_not_over();
  return test::failures();
}
