// What peers of a card with several planes are told, until they have answered, and what they say themselves.
#include "core/multipath/plane_reports.h"

#include "support/check.h"

namespace {

using etloop::kNever;
using etloop::PlaneReports;
using etloop::multipath::PathStates;

constexpr uint32_t kPlanes = 4;

etloop::MultipathSettings params() {
  etloop::MultipathSettings made;
  made.entropy_values = 32;
  return made;
}

void every_peer_is_told_until_it_has_answered() {
  const auto settings = params();
  PathStates first(settings, 50'000, kPlanes);
  PathStates second(settings, 51'000, kPlanes);
  PlaneReports reports;
  CHECK_EQ(reports.add(first), 0U);
  CHECK_EQ(reports.add(second), 1U);
  PlaneReports::Due due;
  CHECK(!reports.next_due(1'000, due));
  CHECK_EQ(reports.due_ns(), kNever);
  reports.changed(0b1101, 1'000);
  CHECK_EQ(first.planes_up(), 0b1101U);
  CHECK_EQ(second.planes_up(), 0b1101U);
  for (uint32_t peer = 0; peer < 2; ++peer) {
    CHECK(reports.next_due(1'000, due));
    CHECK_EQ(due.peer, peer);
    CHECK_EQ(due.planes_up, 0b1101U);
    reports.sent(due, 1'000);
  }
  CHECK(!reports.next_due(1'000, due));
  CHECK_EQ(reports.due_ns(), 1'000 + PlaneReports::kRepeatNs);
  reports.answered(0, due.id);
  reports.answered(1, static_cast<uint16_t>(due.id + 1));  // of something else
  CHECK(reports.next_due(reports.due_ns(), due));
  CHECK_EQ(due.peer, 1U);
  // One that never answers is told sixteen times in all.
  etloop::Nanos now = 1'000;
  int times = 1;
  while (reports.due_ns() != kNever) {
    now = reports.due_ns();
    if (!reports.next_due(now, due)) continue;
    reports.sent(due, now);
    ++times;
  }
  CHECK_EQ(times, int{PlaneReports::kMostTimes});
}

void what_both_ends_have_is_used_and_old_news_is_not() {
  const auto settings = params();
  PathStates paths(settings, 50'000, kPlanes);
  PlaneReports reports;
  reports.add(paths);
  CHECK(reports.heard(0, 0xFFFF, 0b0111));
  CHECK_EQ(paths.planes_up(), 0b0111U);
  reports.changed(0b1110, 0);
  CHECK_EQ(paths.planes_up(), 0b0110U);
  CHECK(reports.heard(0, 1, 0b1111));  // numbers begin again
  CHECK_EQ(paths.planes_up(), 0b1110U);
  CHECK(!reports.heard(0, 0xFFFF, 0b0001));
  CHECK_EQ(paths.planes_up(), 0b1110U);
  CHECK(reports.heard(0, 1, 0b1111));  // the same again
}

}  // namespace

int main() {
  every_peer_is_told_until_it_has_answered();
  what_both_ends_have_is_used_and_old_news_is_not();
  return etloop::test::failures();
}
