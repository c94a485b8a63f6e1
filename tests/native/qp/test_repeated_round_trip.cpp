// The round trip of a packet that was sent again, alone.
#include "qp/repeated_round_trip.h"

#include "support/check.h"

namespace {

using namespace etloop;

void it_counts_from_the_last_transmission() {
  RepeatedRoundTrip repeated;
  CHECK_EQ(repeated.arrived(0, 100, 50), Nanos{-1});  // nothing was sent again
  repeated.note_sent(7, 1'000);
  repeated.note_sent(7, 3'000);
  CHECK_EQ(repeated.arrived(0, 7, 9'000), Nanos{-1});  // those before it
  CHECK_EQ(repeated.arrived(5, 3, 9'000), Nanos{6'000});
  CHECK_EQ(repeated.arrived(5, 3, 9'500), Nanos{-1});  // once
}

void numbers_wrap() {
  RepeatedRoundTrip repeated;
  repeated.note_sent(1, 0);
  CHECK_EQ(repeated.arrived(0xFFFFFE, 4, 10), Nanos{10});
}

void a_later_packet_takes_the_place_of_one_that_was_not_heard_of() {
  RepeatedRoundTrip repeated;
  repeated.note_sent(7, 0);
  repeated.note_sent(9, 100);
  CHECK_EQ(repeated.arrived(7, 1, 200), Nanos{-1});
  CHECK_EQ(repeated.arrived(9, 1, 300), Nanos{200});
}

}  // namespace

int main() {
  it_counts_from_the_last_transmission();
  numbers_wrap();
  a_later_packet_takes_the_place_of_one_that_was_not_heard_of();
  return etloop::test::failures();
}
