// Congestion control by itself: DCQCN against its rules carried out tick by tick, schedules without drift, windows and
// paces, tables that are refused, and flows that share a queue.
#include <cmath>
#include <vector>

#include "cc/flow_control.h"
#include "cc/pacer.h"
#include "cc/rate_series.h"
#include "cc/registry.h"
#include "support/cc_bottleneck.h"
#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint64_t kLine = 100'000'000'000;

PacketRun run_of(uint32_t packets) {
  PacketRun run;
  run.head = {.opcode = wire::Opcode::write_middle, .payload_bytes = 4096};
  run.count = packets;
  return run;
}

struct Driven {
  explicit Driven(const etloop_cc_algorithm& algorithm, const char* profile, std::vector<cc::GivenParameter> given = {},
                  uint32_t burst_bytes = 4178, Nanos catch_up_ns = 1'000'000, uint64_t limit_bps = 0) {
    std::vector<std::string> mistakes;
    params.algorithm = &algorithm;
    params.parameters = cc::parameter_values(algorithm, profile, given, mistakes);
    params.pacing.burst_bytes = burst_bytes;
    params.pacing.catch_up_ns = catch_up_ns;
    params.pacing.limit_bps = limit_bps;
    CHECK(mistakes.empty());
    control = std::make_unique<FlowControl>(params, FlowPath{kLine, 256 * 4096, 16'000, 4096, 4178}, state);
    control->allowed(1, 0, true, 0);
  }
  double rate(Nanos now) {
    control->settle(now);
    return static_cast<double>(control->decision().rate_bps);
  }
  alignas(16) uint8_t state[1024] = {};
  CongestionParams params;
  std::unique_ptr<FlowControl> control;
};

// The rules of docs/congestion_control.md for ConnectX, one microsecond at a time from the first CNP on.
std::vector<double> connectx_tick_by_tick(const std::vector<Nanos>& cnps, int ticks) {
  constexpr double g = 5.0 / 1024;
  double rate = kLine;
  double target = kLine;
  double alpha = 1023.0 / 1024;
  bool alpha_cnp = false;
  bool cut_cnp = true;
  int stage = 0;
  int timer = -1;
  size_t next = 1;
  std::vector<double> rates;
  for (int us = 1; us <= ticks; ++us) {
    while (next < cnps.size() && cnps[next] < cnps[0] + us * 1000) {
      alpha_cnp = cut_cnp = true;
      ++next;
    }
    alpha = (1 - g) * alpha + (alpha_cnp ? g : 0);
    alpha_cnp = false;
    if (us % 4 == 0 && cut_cnp) {
      if (stage != 0) target = rate;
      rate = std::max(1e6, rate * std::max(1 - alpha / 2, 0.5));
      stage = 0;
      cut_cnp = false;
      timer = us + 300;
    } else if (us == timer) {
      ++stage;
      if (stage > 1) target = std::min<double>(kLine, target + 5e6);  // no byte counter expired: never hyper
      rate = (rate + target) / 2;
      timer = rate < kLine * (1 - 1e-6) ? us + 300 : -1;
      if (timer < 0) rate = kLine;
    }
    rates.push_back(rate);
  }
  return rates;
}

void dcqcn_of_a_nic_follows_its_rules() {
  const std::vector<std::vector<Nanos>> schedules = {
      {1'000'500},
      {1'000'500, 1'001'700, 1'003'000, 1'009'900},
      {5'000, 105'000, 405'000, 412'345, 413'000, 1'705'000, 1'706'001},
  };
  for (const auto& cnps : schedules) {
    Driven driven(cc::kDcqcn, "connectx");
    const auto expected = connectx_tick_by_tick(cnps, 12'000);
    size_t next = 0;
    for (size_t tick = 0; tick < expected.size(); ++tick) {
      const Nanos now = cnps[0] + static_cast<Nanos>(tick + 1) * 1000;
      while (next < cnps.size() && cnps[next] < now) driven.control->notified(0, cnps[next++]);
      // Asked now and then only: what lies between is worked out from the times.
      if (tick % 7 != 3) continue;
      CHECK(std::abs(driven.rate(now) - expected[tick]) <= 1 + 1e-9 * expected[tick]);
    }
  }
}

void one_notification_has_a_closed_form() {
  Driven nic(cc::kDcqcn, "connectx");
  nic.control->notified(0, 50'000);
  CHECK_EQ(nic.rate(53'999), static_cast<double>(kLine));
  const double alpha = std::pow(1 - 5.0 / 1024, 4) * 1023 / 1024;
  for (int k = 0; k < 12; ++k) {
    const double expected = kLine * (1 - alpha / 2 / std::exp2(k));
    CHECK(std::abs(nic.rate(54'000 + k * 300'000) - expected) <= 1);
  }
  Driven paper(cc::kDcqcn, "paper");
  paper.control->notified(0, 50'000);
  for (int k = 0; k <= 5; ++k) {  // fast recovery back to the target, which is the rate before: the line
    CHECK(std::abs(paper.rate(50'000 + k * 55'000) - kLine * (1 - 0.5 / std::exp2(k))) <= 1);
  }
  // A second one: alpha was 1, took (1-g)·1+g, and has faded for the whole periods since.
  const double before = paper.rate(400'000);
  const double faded = std::pow(255.0 / 256, 6);
  paper.control->notified(0, 400'000);
  CHECK(std::abs(paper.rate(400'000) - before * (1 - faded / 2)) <= 1);
}

void bytes_bring_increases_too() {
  Driven driven(cc::kDcqcn, "connectx", {{"byte_reset", 1e6}, {"time_reset", 1e9}});
  driven.control->notified(0, 0);
  const double cut = driven.rate(4'000);
  driven.control->sent(run_of(1), 999'999, 1, 4096, true, 5'000);
  CHECK_EQ(driven.rate(5'000), cut);
  driven.control->sent(run_of(1), 1, 1, 4096, true, 5'000);
  CHECK(std::abs(driven.rate(5'000) - (cut + kLine) / 2) <= 1);
}

void a_schedule_does_not_drift() {
  // 83.16 ns a packet would be 16 us off after 10^5 packets if each gap were rounded.
  for (const uint64_t rate : {100'000'000ULL, 333'333'333ULL, 50'000'000'000ULL, 400'000'000'000ULL}) {
    Pacer pacer(1'000'000);
    pacer.set_rate(rate, 0);
    pacer.begin_busy(1'000);
    const int packets = 100'000;
    for (int i = 0; i < packets; ++i) pacer.sent(4158);
    const auto exact = static_cast<Nanos>(static_cast<unsigned __int128>(packets) * 4158 * 8'000'000'000 / rate);
    CHECK_EQ(pacer.next_ns(), 1'000 + exact);
  }
  for (const Nanos catch_up_ns : {Nanos{0}, Nanos{1'000'000}, Nanos{7'000'000}}) {
    Pacer late(catch_up_ns);
    late.set_rate(1'000'000'000, 0);
    late.begin_busy(0);
    CHECK(late.due(10'000'000));
    CHECK_EQ(late.next_ns(), 10'000'000 - catch_up_ns);  // a long pause is made up for in part only
    late.begin_busy(20'000'000);
    CHECK_EQ(late.next_ns(), 20'000'000);  // and idleness not at all
  }
}

// Packets of one queue pair until `until_ns`, always sending.
Nanos departure_of_packet(const cc::GivenParameter& given, uint64_t limit_bps, uint32_t packets) {
  Driven driven(cc::kDcqcn, "connectx", {given}, 4178, 1'000'000, limit_bps);
  Nanos now = 0;
  for (uint32_t sent = 0; sent < packets; ++sent) {
    while (driven.control->allowed(1, 0, true, now) == 0) now = driven.control->wake_ns();
    driven.control->sent(run_of(1), 4178, 1, 0, true, now);
  }
  return now;
}

void a_limit_bounds_the_rate_of_every_algorithm() {
  const cc::GivenParameter usual{"min_rate", 1e6};
  constexpr uint64_t kLimit = 1'000'000'000;
  const auto expected = static_cast<Nanos>(999 * 4178 * 8'000'000'000ULL / kLimit);
  CHECK_EQ(departure_of_packet(usual, kLimit, 1000), expected);
  CHECK_EQ(departure_of_packet(usual, 0, 1000), 0);                   // without a limit the line paces
  CHECK_EQ(departure_of_packet(usual, 2 * kLine, 1000), 0);           // a limit above the line is none
  Driven slower(cc::kDcqcn, "connectx", {}, 4178, 1'000'000, kLimit);
  slower.control->notified(0, 1'000);
  CHECK(slower.rate(1'000'000) > kLimit);                             // the algorithm does not see the limit
}

void a_change_of_rate_at_every_packet_does_not_drift() {
  constexpr uint64_t kSlow = 790'000'000'000;
  constexpr uint64_t kFast = 810'000'000'000;
  Pacer pacer(0);
  double exact_ns = 0;
  Nanos now = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t rate = i % 2 == 0 ? kSlow : kFast;
    pacer.set_rate(rate, now);
    pacer.sent(338);
    exact_ns += 338 * 8e9 / static_cast<double>(rate);
    now = pacer.next_ns();
  }
  CHECK(std::abs(static_cast<double>(now) / exact_ns - 1) < 0.002);  // what is left of a nanosecond passes at the new rate
}

void a_paced_rate_is_kept_over_ten_milliseconds() {
  for (const double rate : {100e6, 1e9, 7.7e9, 50e9}) {
    for (const Nanos lateness : {Nanos{0}, Nanos{3'000}, Nanos{60'000}}) {
      Driven driven(cc::kDcqcn, "connectx", {{"rate_on_first_cnp", rate}, {"min_rate", rate}, {"max_rate", rate}});
      driven.control->notified(0, 0);
      Nanos now = 10'000;
      int64_t sent = 0;
      Nanos began = 0;
      while (now < 30'010'000) {
        const uint32_t packets = driven.control->allowed(64, 0, true, now);
        if (packets == 0) {
          now = std::max(now + 1, driven.control->wake_ns() + lateness);
          continue;
        }
        if (began == 0 && now >= 10'000'000) began = now;
        if (now >= 10'000'000 && now < 20'000'000) sent += int64_t{packets} * 4178;
        driven.control->sent(run_of(packets), uint64_t{packets} * 4178, packets, 0, true, now);
      }
      const double measured = static_cast<double>(sent) * 8e9 / 10e6;
      const double packet = 2 * 4178 * 8e9 / 10e6;  // one at each edge of the window is in or out
      const double burst = rate * FlowControl::kBurstNs / 10e6 + rate * static_cast<double>(lateness) / 10e6;
      CHECK(std::abs(measured - rate) <= rate * 0.005 + packet * 0.5 + burst);
    }
  }
}

// What leaves at once after a hole of the host: what was due in the hole, at most in the time that is made up for.
void so_much_of_a_hole_is_made_up_for_as_was_said() {
  constexpr double kRate = 1e9;
  for (const Nanos catch_up_ns : {Nanos{0}, Nanos{1'000'000}, Nanos{5'000'000}, Nanos{50'000'000}}) {
    for (const Nanos hole_ns : {Nanos{500'000}, Nanos{3'000'000}, Nanos{20'000'000}}) {
      Driven driven(cc::kDcqcn, "connectx", {{"rate_on_first_cnp", kRate}, {"min_rate", kRate}, {"max_rate", kRate}}, 4178,
                    catch_up_ns);
      driven.control->notified(0, 0);
      const auto send_all_due = [&driven](Nanos now) {
        int64_t bytes = 0;
        for (uint32_t packets; (packets = driven.control->allowed(64, 0, true, now)) != 0; bytes += int64_t{packets} * 4178) {
          driven.control->sent(run_of(packets), uint64_t{packets} * 4178, packets, 0, true, now);
        }
        return bytes;
      };
      send_all_due(10'000);
      const double made_up_for = static_cast<double>(send_all_due(10'000 + hole_ns));
      const double expected = static_cast<double>(std::min(hole_ns, catch_up_ns)) * kRate / 8e9;
      CHECK(std::abs(made_up_for - expected) <= 4178);
    }
  }
}

// A port that keeps departure times makes up for a loop that sleeps too long: what leaves does not know of it.
void a_late_loop_moves_no_departure() {
  for (const double rate : {100e6, 1e9, 7.7e9, 50e9}) {
    Driven driven(cc::kDcqcn, "connectx", {{"rate_on_first_cnp", rate}, {"min_rate", rate}, {"max_rate", rate}}, 65'536);
    driven.control->notified(0, 0);
    const Nanos lateness = 100'000;  // below half of what is handed over ahead
    Nanos now = 10'000;
    Nanos last = 0;
    int64_t sent = 0;
    while (now < 20'000'000) {
      const uint32_t packets = driven.control->allowed(64, 0, true, now, 1'000'000'000);
      if (packets == 0) {
        now = std::max(now + 1, driven.control->wake_ns() + lateness);
        continue;
      }
      const Nanos departs = driven.control->departs_ns(now);
      CHECK(departs >= last && departs <= now + FlowControl::kClosedLoopAheadNs);
      if (last != 0) {  // exactly what the bytes before take from the begin, which was at 0
        const double due = static_cast<double>(sent) * 8e9 / rate;
        CHECK(std::abs(static_cast<double>(departs) - due) <= 1 + 1e-6 * due);
      }
      if (departs != 0) last = departs;
      sent += int64_t{packets} * 4178;
      driven.control->sent(run_of(packets), uint64_t{packets} * 4178, packets, 0, true, now);
    }
    CHECK(last > 19'000'000);
  }
}

// What was handed over waits in the kernel: a rate that grows, or ends, must not let later packets leave before it.
void a_rate_that_grows_lets_nothing_overtake() {
  Driven driven(cc::kDcqcn, "connectx", {{"rate_on_first_cnp", 1e9}, {"min_rate", 1e9}, {"ai_rate", 5e9}, {"hai_rate", 1e10}});
  driven.control->notified(0, 0);
  Nanos last = 0;
  Nanos now = 0;
  int paced = 0;
  for (int turn = 0; turn < 200'000 && driven.control->decision().rate_bps < kLine; ++turn) {
    const uint32_t packets = driven.control->allowed(64, 0, true, now, 1'000'000'000);
    if (packets == 0) {
      now = std::max(now + 1, driven.control->wake_ns());
      continue;
    }
    const Nanos leaves = std::max(now, driven.control->departs_ns(now));
    CHECK(leaves >= last);
    last = leaves;
    ++paced;
    driven.control->sent(run_of(packets), uint64_t{packets} * 4178, packets, 0, true, now);
  }
  CHECK(driven.control->decision().rate_bps >= kLine && paced > 100);
  CHECK_EQ(driven.control->allowed(64, 0, true, now, 1'000'000'000), 64U);
  CHECK(std::max(now, driven.control->departs_ns(now)) >= last);
}

void a_window_lets_one_packet_through_and_no_more_than_it_holds() {
  Driven driven(cc::kDctcp, "rfc8257", {{"initial_window", 4}});
  CHECK_EQ(driven.control->allowed(64, 0, true, 1), 4u);
  CHECK_EQ(driven.control->allowed(64, 3 * 4096, true, 1), 1u);
  CHECK_EQ(driven.control->allowed(64, 4 * 4096, true, 1), 0u);
  CHECK_EQ(driven.control->wake_ns(), kNever);
  driven.control->timed_out(4 * 4096, 2);
  CHECK_EQ(driven.control->allowed(64, 0, true, 3), 1u);
  CHECK_EQ(driven.control->allowed(64, 4096, true, 3), 0u);
}

void a_window_that_shrank_behind_what_asked_for_nothing_lets_one_more_packet_ask() {
  Driven driven(cc::kDctcp, "rfc8257", {{"initial_window", 4}});
  CHECK_EQ(driven.control->allowed(64, 0, false, 1), 4u);
  CHECK_EQ(driven.control->allowed(64, 5 * 4096, true, 1), 0u);
  CHECK_EQ(driven.control->allowed(64, 5 * 4096, false, 1), 1u);
  PacketRun run;
  driven.control->ask(run);
  CHECK(run.head.ack_req);
  // The last packet of the window asks, and every one of a window that is below the interval of answers.
  CHECK(!driven.control->closes(3 * 4096, 0));
  CHECK(driven.control->closes(4 * 4096, 0));
  CHECK(driven.control->closes(4096, 5 * 4096));
}

void wrong_parameters_are_all_named() {
  std::vector<std::string> mistakes;
  const std::vector<cc::GivenParameter> given = {{"t_low", 1e6}, {"no_such", 1}, {"beta", 7}, {"hai_after", 1.5}};
  cc::parameter_values(cc::kTimely, "other", given, mistakes);
  CHECK_EQ(mistakes.size(), 4u);
  mistakes.clear();
  cc::parameter_values(cc::kTimely, "", std::vector<cc::GivenParameter>{{"t_low", 1e6}}, mistakes);
  CHECK_EQ(mistakes.size(), 1u);
  CHECK(mistakes[0] == "t_low must be below t_high");
}

void tables_that_cannot_be_used_are_refused() {
  for (const etloop_cc_algorithm* table : cc::built_in()) CHECK(cc::refusal(table).empty());
  CHECK(!cc::refusal(nullptr).empty());
  const auto refused = [](auto change) {
    etloop_cc_algorithm table = cc::kDcqcn;
    change(table);
    return !cc::refusal(&table).empty();
  };
  CHECK(refused([](auto& t) { t.abi_version = 2; }));
  CHECK(refused([](auto& t) { t.table_bytes -= 8; }));
  CHECK(refused([](auto& t) { t.name = "two words"; }));
  CHECK(refused([](auto& t) { t.needs = 64; }));
  CHECK(refused([](auto& t) { t.init = nullptr; }));
  CHECK(refused([](auto& t) { t.next_timer_ns = nullptr; }));
  CHECK(refused([](auto& t) { t.state_bytes = 1 << 20; }));
  CHECK(refused([](auto& t) { t.parameters = nullptr; }));
  const etloop_cc_parameter twice[] = {cc::kDcqcn.parameters[0], cc::kDcqcn.parameters[0]};
  CHECK(refused([&](auto& t) {
    t.parameters = twice;
    t.parameter_count = 2;
    t.profile_count = 0;
  }));
}

void a_series_covers_a_run_of_any_length() {
  RateSeries series(10, 2, 16);
  series.start(0);
  Nanos now = 0;
  for (int i = 0; i < 1000; ++i) {
    now = series.due_ns();
    CcRecord* row = series.sample(now);
    row[0].time_ns = row[1].time_ns = now;
  }
  CHECK(series.rows().size() <= 16u);
  CHECK_EQ(series.rows().front().time_ns, 0);
  CHECK(series.rows().back().time_ns == now);
  CHECK(series.interval_ns() > 10);
}

void a_queue_is_what_came_and_has_not_left() {
  EgressQueue queue({8'000'000'000, 5'000, 1'000, 3'000, 500'000});  // a byte a nanosecond
  CHECK_EQ(queue.arrive(1'000, 0, 0).departs_ns, 1'000);
  CHECK_EQ(queue.arrive(1'000, 0, 0).departs_ns, 2'000);
  CHECK_EQ(queue.queued_bytes(1'500), 1'000);
  CHECK(!queue.arrive(1'000, 1'500, 0).mark);    // at Kmin: none
  CHECK(queue.arrive(1'000, 1'500, 249'999).mark);   // half way: a quarter
  CHECK(!queue.arrive(1'000, 1'500, 400'000).mark || queue.queued_bytes(1'500) > 3'000);
  CHECK(!queue.arrive(2'000, 1'500, 0).admitted);
  CHECK_EQ(queue.counters().dropped, 1);
}

void flows_share_a_queue() {
  test::Bottleneck setup;
  setup.algorithm = &cc::kSwift;
  setup.flows = 4;
  const auto outcome = test::BottleneckRun(setup).run();
  CHECK(outcome.utilisation > 0.95);
  for (const double share : outcome.share) CHECK(std::abs(share * 4 - 1) < 0.1);
}

}  // namespace

int main() {
  dcqcn_of_a_nic_follows_its_rules();
  one_notification_has_a_closed_form();
  bytes_bring_increases_too();
  a_schedule_does_not_drift();
  a_limit_bounds_the_rate_of_every_algorithm();
  a_change_of_rate_at_every_packet_does_not_drift();
  a_paced_rate_is_kept_over_ten_milliseconds();
  so_much_of_a_hole_is_made_up_for_as_was_said();
  a_late_loop_moves_no_departure();
  a_rate_that_grows_lets_nothing_overtake();
  a_window_lets_one_packet_through_and_no_more_than_it_holds();
  a_window_that_shrank_behind_what_asked_for_nothing_lets_one_more_packet_ask();
  wrong_parameters_are_all_named();
  tables_that_cannot_be_used_are_refused();
  a_series_covers_a_run_of_any_length();
  a_queue_is_what_came_and_has_not_left();
  flows_share_a_queue();
  return test::failures();
}
