// What a NACK of each code makes its receiver do with the packet that it names, over unordered delivery. The codes and what they
// ask for are those on which public implementations of UET 1.0 agree (docs/uet.md).
#include "support/uet_ends.h"

namespace {

using namespace etloop;
using namespace etloop::test::uet_ends;

enum class Then : uint8_t { again, timer, ends, stale };

struct Row {
  const char* why;
  uint8_t code;
  Then then;
};

constexpr Row kRows[] = {
    {"a switch trimmed it", 0x01, Then::again},
    {"the last switch trimmed it", 0x02, Then::again},
    {"reserved since 1.0.3: taken for the first", 0x03, Then::again},
    {"no context is free", 0x04, Then::timer},
    {"no congestion context is free", 0x05, Then::timer},
    {"no bitmap is free", 0x06, Then::timer},
    {"no buffer is free", 0x07, Then::timer},
    {"no more responses can be kept", 0x08, Then::timer},
    {"no message can be begun", 0x09, Then::timer},
    {"something else is short", 0x0A, Then::timer},
    {"it is beyond the window", 0x0B, Then::timer},
    {"out of order, where order is not kept", 0x0D, Then::timer},
    {"of no context there", 0x0E, Then::ends},
    {"another header than its context has", 0x0F, Then::ends},
    {"the context closes", 0x10, Then::ends},
    {"the context closes after an error", 0x11, Then::ends},
    {"it did not come", 0x12, Then::again},
    {"its response is gone", 0x13, Then::ends},
    {"it is to be acknowledged with data", 0x14, Then::timer},
    {"a SYN out of its place", 0x15, Then::ends},
    {"another mode of delivery", 0x16, Then::ends},
    {"another first number: of secure contexts alone", 0x17, Then::timer},
    {"it came, and is being worked on", 0x18, Then::timer},
    {"something unexpected", 0x19, Then::ends},
    {"the receiver takes it for lost", 0x1A, Then::again},
    {"a code that nobody has", 0x42, Then::ends},
};

void a_nack_has_its_effect(const Row& row) {
  const int before = etloop::test::failures();
  Pair pair;
  pair.exchange(kMtu, 0);  // the context is open
  pair.a.end.post(message(3 * kMtu));
  const std::vector<Outgoing> sent = pair.send_all(2'000);
  Nack nack;
  nack.nack_code = static_cast<NackCode>(row.code);
  nack.psn = request_of(sent[1]).psn;
  nack.dpdcid = request_of(sent[1]).spdcid;
  pair.a.end.requester.on_nack(nack, 3'000);
  CHECK_EQ(pair.a.counters.naks_rx, 1);
  CHECK_EQ(pair.a.counters.stale_answers, 0);
  CHECK(pair.a.end.fault() == QpFault::none);  // it may be forged
  const std::vector<Outgoing> again = pair.send_all(4'000);
  CHECK_EQ(again.size(), size_t{row.then == Then::again ? 1U : 0U});
  if (!again.empty()) CHECK_EQ(request_of(again[0]).psn, nack.psn);
  if (row.then == Then::ends) CHECK(pair.silence() == QpFault::remote_operational);
  // Nobody answers: the timer has what the NACK did not bring.
  if (row.then == Then::timer) {
    pair.a.end.on_timer(pair.a.end.deadline());
    CHECK(pair.a.end.probe_due(3'000'000) || pair.a.end.has_run());
  }
  if (etloop::test::failures() > before) std::cerr << "code " << int{row.code} << ": " << row.why << '\n';
}

void a_nack_of_nothing_under_way_is_discarded() {
  Pair pair;
  pair.exchange(kMtu, 0);
  pair.a.end.post(message(kMtu));
  const std::vector<Outgoing> sent = pair.send_all(2'000);
  Nack nack;
  nack.nack_code = NackCode::trimmed;
  nack.psn = request_of(sent[0]).psn + 5;
  pair.a.end.requester.on_nack(nack, 3'000);
  CHECK_EQ(pair.a.counters.stale_answers, 1);
  CHECK(pair.send_all(4'000).empty());
}

void a_forged_nack_does_not_end_a_healthy_queue_pair() {
  Pair pair;
  pair.exchange(kMtu, 0);
  Nack forged;
  forged.nack_code = NackCode::closing_in_error;
  pair.a.end.requester.on_nack(forged, 1'500);
  pair.exchange(kMtu, 2'000);
  CHECK_EQ(pair.delivered.size(), size_t{2});
  pair.a.end.post(message(kMtu));
  CHECK_EQ(pair.send_all(4'000).size(), size_t{1});
  CHECK(pair.silence() == QpFault::retries_exceeded);  // a later silence is none of its business
}

}  // namespace

int main() {
  for (const Row& row : kRows) a_nack_has_its_effect(row);
  a_nack_of_nothing_under_way_is_discarded();
  a_forged_nack_does_not_end_a_healthy_queue_pair();
  return etloop::test::failures();
}
