// Records of ops: numbers are given again, an op is over no earlier than what it did, and progress is of awaited ranks alone.
#include "core/op_records.h"

#include "support/check.h"

using namespace etloop;

namespace {

void a_number_is_given_again_with_an_empty_record() {
  OpRecords records;
  records.reserve(4);
  const uint32_t first = records.open(7, 3, 1, true);
  records.note_sent(first, 100, true);
  CHECK_EQ(records.open(7, 4, 1, true), first + 1);
  CHECK_EQ(records.complete(first, 50), 50);
  records.close(first);
  CHECK_EQ(records.open(8, 0, 0, false), first);
  CHECK_EQ(records[first].rank, 8);
  CHECK_EQ(records[first].wire_tx_bytes, 0);
  CHECK_EQ(records.completed().size(), 1u);
  CHECK_EQ(records.completed()[0].rank, 7);
  CHECK_EQ(records.completed()[0].op, 3);
  CHECK_EQ(records.completed()[0].tx_messages, 1);
  CHECK_EQ(records.status().wire_tx_bytes, 100);
}

void an_op_is_over_no_earlier_than_it_began_and_sent() {
  OpRecords records;
  const uint32_t run = records.open(0, 0, 0, true);
  records[run].issued_ns = 200;
  records.note_departure(run, 300);
  records.note_departure(run, 900);  // only the first counts
  CHECK_EQ(records.complete(run, 100), 300);
  records.close(run);
  CHECK_EQ(records.status().ops_done, 1);
}

void ranks_that_nobody_awaits_make_no_progress() {
  OpRecords records;
  records.start(10);
  const uint32_t run = records.open(0, 0, 0, false);
  records.note_progress(run, Nanos{500});
  records.complete(run, 500);
  records.close(run);
  CHECK_EQ(records.status().last_progress_ns, 10);
  CHECK_EQ(records.status().ops_done, 0);
  records.note_progress(true, 400);
  records.note_progress(true, 300);
  CHECK_EQ(records.status().last_progress_ns, 400);
}

void only_released_messages_have_a_turnaround() {
  OpRecords records;
  records.note_turnaround(0, 700);
  int64_t counted = 0;
  for (const uint64_t count : records.turnarounds()) counted += static_cast<int64_t>(count);
  CHECK_EQ(counted, 0);
  records.note_turnaround(600, 700);
  CHECK_EQ(records.turnarounds()[turnaround_bucket(100)], 1u);
}

void bytes_inside_the_host_are_not_of_the_wire() {
  OpRecords records;
  const uint32_t run = records.open(0, 0, 0, true);
  records.note_sent(run, 10, false);
  records.note_received(run, 2, 20, false);
  records.note_received(run, 0, 5, true);
  CHECK_EQ(records[run].local_tx_bytes, 10);
  CHECK_EQ(records[run].local_rx_bytes, 20);
  CHECK_EQ(records[run].wire_rx_bytes, 5);
  CHECK_EQ(records[run].rx_messages, 2);
  CHECK_EQ(records.status().wire_tx_bytes, 0);
  CHECK_EQ(records.status().wire_rx_bytes, 5);
}

}  // namespace

int main() {
  a_number_is_given_again_with_an_empty_record();
  an_op_is_over_no_earlier_than_it_began_and_sent();
  ranks_that_nobody_awaits_make_no_progress();
  only_released_messages_have_a_turnaround();
  bytes_inside_the_host_are_not_of_the_wire();
  return test::failures();
}
