// That a port sends no more than is allowed, whatever it has to send, and as much as that.
#include "loop/send_allowance.h"

#include "support/check.h"

using namespace etloop;

namespace {

constexpr Nanos kSecond = 1'000'000'000;

// Turns of a microsecond, each of which would send so much; how many bytes left within a second.
int64_t sent_in_a_second(SendAllowance allowance, int64_t bytes, int64_t packets) {
  int64_t sent = 0;
  for (Nanos now = kSecond; now < 2 * kSecond; now += 1'000) {
    if (allowance.holds_back(now)) continue;
    allowance.spend(now, bytes, packets);
    sent += bytes;
  }
  return sent;
}

void without_limits_nothing_is_held_back() {
  SendAllowance allowance(SendLimits{});
  CHECK(!allowance.is_limited());
  allowance.spend(0, int64_t{1} << 40, int64_t{1} << 30);
  CHECK(!allowance.holds_back(1));
}

void the_mean_of_bits_is_kept_and_reached() {
  // 1 Gb/s is 125 MB; turns of 266 kB would be 266 GB.
  const int64_t sent = sent_in_a_second(SendAllowance({kSecond, 0}), 266'240, 64);
  CHECK(sent <= 125'000'000 + 2 * 266'240);
  CHECK(sent >= 124'000'000);
}

void the_mean_of_packets_is_kept_and_reached() {
  const int64_t sent = sent_in_a_second(SendAllowance({0, 10'000}), 64, 1);
  CHECK(sent / 64 <= 10'002);
  CHECK(sent / 64 >= 9'990);
}

void the_tighter_of_two_limits_holds() {
  CHECK(sent_in_a_second(SendAllowance({kSecond, 1'000}), 64, 1) / 64 <= 1'001);
  CHECK(sent_in_a_second(SendAllowance({8'000, 1'000'000}), 100, 1) <= 1'200);
}

void time_without_traffic_is_not_saved_up() {
  SendAllowance allowance({8'000'000'000, 0});  // a byte a nanosecond
  allowance.spend(3600 * kSecond, SendAllowance::kBurstNs + 5'000, 1);
  CHECK_EQ(allowance.free_ns(), 3600 * kSecond + 5'000);
}

void a_fraction_of_time_counts_as_a_whole_one() {
  SendAllowance allowance({3, 0});
  allowance.spend(kSecond, 1, 1);
  CHECK_EQ(allowance.free_ns(), kSecond - SendAllowance::kBurstNs + 2'666'666'667);
}

}  // namespace

int main() {
  without_limits_nothing_is_held_back();
  the_mean_of_bits_is_kept_and_reached();
  the_mean_of_packets_is_kept_and_reached();
  the_tighter_of_two_limits_holds();
  time_without_traffic_is_not_saved_up();
  a_fraction_of_time_counts_as_a_whole_one();
  return test::failures();
}
