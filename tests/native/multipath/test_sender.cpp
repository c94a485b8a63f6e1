// When a packet that others overtook counts as lost, and when its sender goes on although nobody says so.
#include "multipath/sender.h"

#include <bit>
#include <iostream>

#include "support/check.h"

namespace {

using namespace etloop;
using namespace etloop::multipath;

constexpr uint32_t kMtu = 1024;
constexpr Nanos kRoundTripNs = 10'000;

TransportSettings params() {
  TransportSettings made;
  made.kind = TransportKind::mrc;
  made.multipath.entropy_values = 16;
  made.path_mtu_bytes = kMtu;
  made.timeout_ns = 10'000'000;
  made.recovery.timeout_floor_ns = 1'000'000;
  made.recovery.reorder_packets = 64;
  return made;
}

// A sender that knows its round trip; what it sent at 20 us are packets 1 and on.
struct Sending {
  explicit Sending(uint32_t packets) {
    send(1, 0);
    report(0, 0, kRoundTripNs);
    send(packets, kSentNs, kHeldBack);
  }
  // So many packets of a message that has more, which congestion control holds back.
  void send(uint32_t packets, Nanos now, uint32_t held_back = 0) {
    WorkRequest request;
    request.kind = WorkKind::write;
    request.bytes = (packets + held_back) * kMtu;
    sender.post(request);
    go_on(packets, now);
  }
  void go_on(uint32_t packets, Nanos now) {
    for (uint32_t sent = 0; sent < packets; ++sent) {
      const Departure departure = sender.next();
      sender.sent(departure.psn, departure.entropy, departure.asks, now);
    }
  }
  // All up to `cumulative` has arrived, and of those behind it what the bits say.
  AckOutcome report(uint32_t cumulative, uint64_t bitmap, Nanos now) {
    ArrivalReport arrivals;
    arrivals.cumulative_psn = cumulative;
    arrivals.bitmap_psn = cumulative + 1;
    arrivals.bitmap = bitmap;
    arrivals.cause_psn = cumulative;
    return sender.on_report(arrivals, now);
  }
  Nanos late_ns() const { return sender.timer().patience_ns() / 2; }

  static constexpr Nanos kSentNs = 20'000;
  static constexpr uint32_t kHeldBack = 2;
  TransportSettings made = params();
  FlowRecord counters{};
  PathStates paths{made.multipath, 50'000};
  Sender sender{7, paths, made, counters, *std::pmr::new_delete_resource()};
};

// Packets 3 and 4 of 40, and the last two.
constexpr uint64_t kBehindTwo = ((uint64_t{1} << 36) - 1) & ~uint64_t{0b11};

void what_is_stuck_is_sent_again_once_the_last_packet_is_late() {
  Sending all(40);
  const AckOutcome first = all.report(2, kBehindTwo, 30'000);
  CHECK_EQ(first.lost_packets, 0U);  // forty were under way, and hardly as many overtook it
  CHECK_EQ(all.sender.packets().under_way(), 4U);
  const Nanos due_ns = Sending::kSentNs + all.late_ns();
  CHECK_EQ(all.sender.deadline(), due_ns);
  all.sender.on_timer(due_ns - 1);
  CHECK_EQ(all.sender.packets().lost(), 0U);
  all.sender.on_timer(due_ns);
  CHECK_EQ(all.sender.packets().lost(), 2U);
  CHECK_EQ(all.counters.tail_probes, 0);
  CHECK(all.sender.has_run());
  const Departure again = all.sender.next();
  CHECK(again.again);
  CHECK_EQ(again.psn, 3U);
  all.sender.sent(again.psn, again.entropy, again.asks, due_ns);
  // Congestion control hears of both with the next answer, once.
  const AckOutcome second = all.report(3, kBehindTwo >> 1, due_ns + kRoundTripNs);
  CHECK_EQ(second.lost_packets, 2U);
  CHECK(second.nak);
  CHECK_EQ(all.report(3, kBehindTwo >> 1, due_ns + kRoundTripNs + 1).lost_packets, 0U);
}

void while_others_leave_it_waits_for_them() {
  Sending all(40);
  all.report(2, kBehindTwo, 30'000);
  all.go_on(1, 35'000);
  CHECK_EQ(all.sender.deadline(), 35'000 + all.late_ns());
  all.go_on(1, 36'000);  // all of it has left: a probe asks
  CHECK(all.sender.deadline() > 36'000 + all.late_ns());
}

void two_that_came_before_it_do_not_make_it_late() {
  struct Row {
    const char* why;
    uint64_t arrived;
    bool stuck;
  };
  const Row rows[] = {
      {"overtaken by nobody", 0, false},
      {"by two, as paths differ", 0b0110, false},
      {"by three", 0b1110, true},
  };
  for (const Row& row : rows) {
    const int before = etloop::test::failures();
    Sending all(6);
    all.report(1, row.arrived, 30'000);
    const Nanos due_ns = Sending::kSentNs + all.late_ns();
    CHECK_EQ(all.sender.deadline() == due_ns, row.stuck);
    all.sender.on_timer(due_ns);
    CHECK_EQ(all.sender.packets().lost(), row.stuck ? 1U : 0U);
    if (etloop::test::failures() > before) std::cerr << row.why << '\n';
  }
}

// Liveness, by the rules at the head of sender.h.
TransportSettings params_of_window(uint32_t packets) {
  TransportSettings made = params();
  made.window_packets = packets;
  return made;
}

// Two packets of a message that has more fill the window; the second asks.
struct SmallWindow {
  SmallWindow() {
    WorkRequest request;
    request.kind = WorkKind::write;
    request.bytes = 6 * kMtu;
    sender.post(request);
  }
  Departure send(Nanos now) {
    const Departure departure = sender.next();
    sender.sent(departure.psn, departure.entropy, departure.asks, now);
    return departure;
  }
  void report(uint32_t cumulative, uint64_t bitmap, Nanos now) {
    ArrivalReport arrivals;
    arrivals.cumulative_psn = cumulative & wire::kPsnMask;
    arrivals.bitmap_psn = (cumulative + 1) & wire::kPsnMask;
    arrivals.bitmap = bitmap;
    arrivals.cause_psn = (cumulative + static_cast<uint32_t>(std::bit_width(bitmap))) & wire::kPsnMask;
    sender.on_report(arrivals, now);
  }
  TransportSettings made = params_of_window(2);
  FlowRecord counters{};
  PathStates paths{made.multipath, 50'000};
  Sender sender{7, paths, made, counters, *std::pmr::new_delete_resource()};
};

void the_last_packet_that_the_window_allows_asks() {
  SmallWindow all;
  CHECK(!all.send(0).asks);
  CHECK(!all.sender.answer_comes());
  CHECK(all.send(0).asks);
  CHECK(all.sender.answer_comes());
  CHECK(!all.sender.has_run());
  all.report(1, 0, kRoundTripNs);
  CHECK(!all.sender.answer_comes());
  CHECK(all.sender.has_run());
  CHECK(!all.sender.wants_probe());
}

void a_window_that_the_asking_packet_overtook_is_probed_at_once() {
  SmallWindow all;
  all.send(0);
  all.send(0);
  all.report(wire::kPsnMask, 0b10, kRoundTripNs);  // the second came, the first is still under way
  CHECK(!all.sender.has_run());
  CHECK(!all.sender.answer_comes());
  CHECK(all.sender.wants_probe());
  CHECK_EQ(all.counters.tail_probes, 0);
  const uint16_t id = all.sender.last_probe().next_id();
  all.sender.probe_sent(all.sender.probe_value(), kRoundTripNs);
  CHECK(!all.sender.wants_probe());
  ArrivalReport answer;
  answer.cumulative_psn = 1;
  answer.bitmap_psn = 2;
  answer.answers_probe = true;
  answer.probe_id = id;
  const AckOutcome outcome = all.sender.on_report(answer, 2 * kRoundTripNs);
  CHECK_EQ(outcome.packets, 1U);
  CHECK_EQ(outcome.lost_packets, 0U);
  CHECK(all.sender.has_run());
}

void what_is_sent_again_asks_and_a_lost_packet_brings_no_answer() {
  SmallWindow all;
  all.send(0);
  all.send(0);
  CHECK(all.sender.lose(1, kRoundTripNs));  // trimmed: a NACK says so
  CHECK(!all.sender.answer_comes());
  CHECK(all.sender.has_run());
  const Departure again = all.send(kRoundTripNs);
  CHECK(again.again);
  CHECK(again.asks);
  CHECK(all.sender.answer_comes());
}

}  // namespace

int main() {
  the_last_packet_that_the_window_allows_asks();
  a_window_that_the_asking_packet_overtook_is_probed_at_once();
  what_is_sent_again_asks_and_a_lost_packet_brings_no_answer();
  what_is_stuck_is_sent_again_once_the_last_packet_is_late();
  while_others_leave_it_waits_for_them();
  two_that_came_before_it_do_not_make_it_late();
  return etloop::test::failures();
}
