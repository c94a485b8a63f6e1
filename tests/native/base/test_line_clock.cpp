// A line's clock against exact arithmetic: frames that follow each other add up, idle time earns nothing.
#include "base/line_clock.h"

#include <cstdint>

#include "support/check.h"

namespace {

using namespace etloop;

constexpr int64_t kGbps = 1'000'000'000;
constexpr int64_t kRates[] = {1, 10 * kGbps, 25 * kGbps, 123'456'789'012, 400 * kGbps, 3200 * kGbps, 12'800 * kGbps};

Nanos exact_ns(__int128 bytes, int64_t rate_bps) {
  const __int128 scaled_bits = bytes * 8'000'000'000;
  return static_cast<Nanos>((scaled_bits + rate_bps - 1) / rate_bps);
}

void frames_that_follow_each_other_add_up_exactly() {
  for (const int64_t rate_bps : kRates) {
    LineClock line;
    int64_t bytes = 0;
    for (int64_t frame = 0; frame < 1'000; ++frame) {
      bytes += 84 + frame * 37 % 4000;
      if (exact_ns(bytes, rate_bps) > INT64_MAX / 4) break;
      CHECK_EQ(line.take(84 + frame * 37 % 4000, rate_bps, 0), exact_ns(bytes, rate_bps));
    }
  }
}

void a_frame_that_comes_as_the_line_falls_free_follows_at_once() {
  LineClock line;
  Nanos now = 0;
  for (int64_t frame = 1; frame <= 1'000; ++frame) {
    now = line.take(338, 3200 * kGbps, now);
    CHECK_EQ(now, exact_ns(frame * 338, 3200 * kGbps));
  }
}

void an_idle_line_saves_nothing_up() {
  LineClock line;
  CHECK_EQ(line.take(338, 800 * kGbps, 0), 4);  // 3.38
  CHECK_EQ(line.take(338, 800 * kGbps, 5), 9);  // 8.38
  CHECK_EQ(line.take(338, 800 * kGbps, 9), 12);  // 11.76
  CHECK_EQ(line.free_ns(), 12);
}

void a_message_of_gigabytes_fits() {
  LineClock line;
  const int64_t bytes = int64_t{1} << 40;
  CHECK_EQ(line.take(bytes, 7 * kGbps, 0), exact_ns(bytes, 7 * kGbps));
  CHECK_EQ(line.take(bytes, 7 * kGbps, 0), exact_ns(2 * __int128{bytes}, 7 * kGbps));
}

}  // namespace

int main() {
  frames_that_follow_each_other_add_up_exactly();
  a_frame_that_comes_as_the_line_falls_free_follows_at_once();
  an_idle_line_saves_nothing_up();
  a_message_of_gigabytes_fits();
  return etloop::test::failures();
}
