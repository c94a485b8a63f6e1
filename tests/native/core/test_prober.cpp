// Round trips before the load: asked several times, and the least counts.
#include "core/packets/probe.h"

#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint8_t kClass = 106;

Prober of(uint32_t targets) {
  Prober prober;
  for (uint32_t i = 0; i < targets; ++i) prober.add(static_cast<int32_t>(i), 0, i);
  return prober;
}

// Asks the only target and has the answer later.
void exchange(Prober& prober, Nanos at_ns, Nanos round_trip_ns) {
  CHECK_EQ(prober.next(at_ns), 0);
  prober.sent(0, at_ns);
  prober.on_reply(0, kClass, kClass, at_ns + round_trip_ns);
}

void one_probe_is_enough_to_know_the_way() {
  Prober prober = of(1);
  prober.start(ProbeRounds::one);
  exchange(prober, 0, 900);
  CHECK(prober.over());
  CHECK_EQ(prober.result(0).round_trip_ns, 900);
}

void the_least_of_several_round_trips_counts() {
  Prober prober = of(1);
  prober.start(ProbeRounds::several);
  for (uint32_t round = 0; round < kMostRounds; ++round) {
    CHECK(!prober.over());
    exchange(prober, 10'000 * round, round == 3 ? 400 : 900 + round);
  }
  CHECK(prober.over());
  CHECK(prober.result(0).verdict == ProbeVerdict::good);
  CHECK_EQ(prober.result(0).round_trip_ns, 400);
}

void many_targets_are_asked_once() {
  Prober prober = of(kMeasuringProbes);
  prober.start(ProbeRounds::several);
  CHECK_EQ(prober.next(0), 0);
  prober.sent(0, 0);
  prober.on_reply(0, kClass, kClass, 70);
  CHECK(prober.result(0).verdict == ProbeVerdict::good);
}

// A reply to the first of two probes would pass for a quick one to the second.
void after_a_probe_that_was_repeated_the_first_reply_is_the_last_that_counts() {
  Prober prober = of(1);
  prober.start(ProbeRounds::several);
  exchange(prober, 0, 500);
  CHECK_EQ(prober.next(1000), 0);
  prober.sent(0, 1000);
  const Nanos late = 1000 + kProbeTimeoutNs;
  CHECK_EQ(prober.next(late), 0);
  prober.sent(0, late);
  prober.on_reply(0, kClass, kClass, late + 10);
  CHECK(prober.over());
  CHECK_EQ(prober.result(0).round_trip_ns, 500);
}

void a_reply_that_comes_twice_counts_once() {
  Prober prober = of(1);
  prober.start(ProbeRounds::several);
  exchange(prober, 0, 500);
  prober.on_reply(0, kClass, kClass, 501);
  prober.on_reply(0, kClass, kClass, 502);
  CHECK(!prober.over());
  CHECK_EQ(prober.result(0).round_trip_ns, 500);
}

void a_class_that_changes_ends_it() {
  Prober prober = of(1);
  prober.start(ProbeRounds::several);
  CHECK_EQ(prober.next(0), 0);
  prober.sent(0, 0);
  prober.on_reply(0, 0, kClass, 70);
  CHECK(prober.over());
  CHECK(prober.result(0).verdict == ProbeVerdict::wrong_traffic_class);
}

// Probes until the target is given up; `is_answered`: whether a probe has a reply, by whether it is short.
ProbeVerdict given_up(bool (*is_answered)(bool is_short)) {
  Prober prober = of(1);
  prober.start(ProbeRounds::one);
  uint32_t short_probes = 0;
  for (Nanos now = 0; !prober.over(); now += kProbeTimeoutNs) {
    if (prober.next(now) < 0) continue;
    const bool is_short = prober.is_short(0);
    prober.sent(0, now);
    short_probes += is_short ? 1 : 0;
    if (!is_answered(is_short)) continue;
    if (is_short) prober.on_short_reply(0);
    else prober.on_reply(0, kClass, kClass, now + 10);
  }
  CHECK(short_probes == kShortAttempts || prober.result(0).verdict == ProbeVerdict::good);
  return prober.result(0).verdict;
}

void a_path_that_drops_full_size_frames_is_told_from_one_that_drops_all() {
  CHECK(given_up([](bool) { return false; }) == ProbeVerdict::no_reply);
  CHECK(given_up([](bool is_short) { return is_short; }) == ProbeVerdict::only_short);
  CHECK(given_up([](bool) { return true; }) == ProbeVerdict::good);
}

// Once a target was given up, the others have fewer attempts left, but their short ones.
void a_target_beside_a_dead_one_is_probed_with_short_packets() {
  Prober prober = of(2);
  prober.start(ProbeRounds::one);
  for (Nanos now = 0; !prober.over(); now += kProbeTimeoutNs / 2) {
    // The second begins later.
    for (int64_t target = prober.next(now); target >= 0; target = prober.next(now)) {
      const auto probed = static_cast<size_t>(target);
      const bool is_short = prober.is_short(probed);
      prober.sent(probed, now + (probed == 1 && prober.fresh(1) ? 5 * kProbeTimeoutNs : 0));
      if (probed == 1 && is_short) prober.on_short_reply(1);
    }
  }
  CHECK(prober.result(0).verdict == ProbeVerdict::no_reply);
  CHECK(prober.result(1).verdict == ProbeVerdict::only_short);
}

void a_card_is_not_probed_with_short_packets() {
  Prober prober = of(1);
  prober.start(ProbeRounds::one);
  for (Nanos now = 0; !prober.over(); now += kWriteProbeTimeoutNs) {
    if (prober.next(now) < 0) continue;
    CHECK(!prober.is_short(0));
    prober.sent(0, now, kWriteProbeTimeoutNs);
  }
  CHECK(prober.result(0).verdict == ProbeVerdict::no_reply);
}

void a_late_reply_to_a_full_size_probe_counts_after_one_to_a_short_probe() {
  Prober prober = of(1);
  prober.start(ProbeRounds::one);
  CHECK_EQ(prober.next(0), 0);
  prober.sent(0, 0);
  prober.on_short_reply(0);
  prober.on_reply(0, kClass, kClass, 900);
  CHECK(prober.result(0).verdict == ProbeVerdict::good);
}

}  // namespace

int main() {
  one_probe_is_enough_to_know_the_way();
  the_least_of_several_round_trips_counts();
  many_targets_are_asked_once();
  after_a_probe_that_was_repeated_the_first_reply_is_the_last_that_counts();
  a_reply_that_comes_twice_counts_once();
  a_class_that_changes_ends_it();
  a_path_that_drops_full_size_frames_is_told_from_one_that_drops_all();
  a_target_beside_a_dead_one_is_probed_with_short_packets();
  a_card_is_not_probed_with_short_packets();
  a_late_reply_to_a_full_size_probe_counts_after_one_to_a_short_probe();
  return test::failures();
}
