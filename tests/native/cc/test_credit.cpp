// Credit by a receiver: who is granted how much next and when, and what a sender makes of it.
#include "cc/credit_account.h"
#include "cc/credit_pacer.h"
#include "support/check.h"

namespace {

using namespace etloop;

constexpr uint32_t kQuantum = 64 * kCreditUnitBytes;
constexpr uint64_t kRate = 100'000'000'000;

void senders_that_ask_take_turns_at_the_rate_of_the_link() {
  CreditPacer pacer(3, kRate, kQuantum);
  CHECK_EQ(pacer.due_ns(), kNever);
  pacer.asked(0, 200, 1000);
  pacer.asked(2, 128, 1000);
  CreditPacer::Grant grant;
  uint64_t granted_bytes = 0;
  for (const uint32_t sender : {0U, 2U, 0U, 2U, 0U, 0U}) {
    const Nanos due = 1000 + static_cast<Nanos>(granted_bytes * 8 / 100);  // rounding does not add up
    CHECK_EQ(pacer.due_ns(), due);
    CHECK(pacer.next(due, grant));
    CHECK_EQ(grant.sender, sender);
    CHECK(!pacer.next(due, grant));
    granted_bytes += grant.sender == 0 && pacer.total(0) == 200 ? 8 * kCreditUnitBytes : kQuantum;
  }
  CHECK_EQ(pacer.total(0), 200U);
  CHECK_EQ(pacer.total(2), 128U);
}

void who_has_enough_is_given_once_more_what_it_asked_for() {
  CreditPacer pacer(1, kRate, kQuantum);
  pacer.asked(0, 100, 0);
  CreditPacer::Grant grant;
  for (Nanos now = 0; pacer.next(now, grant); now = pacer.due_ns()) {
    if (pacer.due_ns() == kNever) break;
  }
  CHECK_EQ(pacer.total(0), 200U);
  pacer.asked(0, 150, 10'000);  // of before the last grants: it has more than that
  CHECK_EQ(pacer.due_ns(), kNever);
}

void a_lost_packet_is_granted_again_and_totals_wrap() {
  CreditPacer pacer(1, kRate, kQuantum);
  pacer.lost(0, 1000, 0);
  CreditPacer::Grant grant;
  CHECK(pacer.next(0, grant));
  CHECK_EQ(grant.total, 4U);
  CHECK_EQ(credit_since(2, 0xFFFFFE), 4);
  CHECK_EQ(credit_since(0xFFFFFE, 2), -4);
}

void a_packet_needs_any_credit_and_no_more_than_a_window_is_kept() {
  CreditAccount account;
  account.spend(100);
  CHECK(account.may_send() && !account.is_open());
  account.open(1000);
  CHECK_EQ(account.target(5000, 0), 0U);  // a window is there
  CHECK_EQ(account.target(5000, 600), 3U);
  CHECK(account.ends_with(1000) && !account.ends_with(999));
  account.spend(999);
  CHECK(account.may_send());
  account.spend(500);
  CHECK(!account.may_send());
  CHECK(!account.granted(0));
  CHECK(account.granted(2));
  CHECK(!account.granted(2));
  CHECK(!account.granted(1));  // of before
  CHECK(account.may_send());
  CHECK(account.granted(100));  // far more than a window
  account.spend(1000);
  CHECK(!account.may_send());
}

}  // namespace

int main() {
  senders_that_ask_take_turns_at_the_rate_of_the_link();
  who_has_enough_is_given_once_more_what_it_asked_for();
  a_lost_packet_is_granted_again_and_totals_wrap();
  a_packet_needs_any_credit_and_no_more_than_a_window_is_kept();
  return etloop::test::failures();
}
