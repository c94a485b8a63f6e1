#include "cc/credit_pacer.h"

#include <algorithm>

namespace etloop {

namespace {

// Quanta of lateness of the host that are caught up.
constexpr int64_t kCatchUpQuanta = 4;

}  // namespace

CreditPacer::CreditPacer(uint32_t senders, uint64_t rate_bps, uint32_t quantum_bytes)
    : rate_bps_(std::max<uint64_t>(rate_bps, 1)),
      quantum_(static_cast<int32_t>(std::max(quantum_bytes / kCreditUnitBytes, 1U))),
      senders_(senders) {}

void CreditPacer::asked(uint32_t sender, uint32_t target, Nanos now) {
  Sender& state = senders_[sender];
  const int32_t units = credit_since(target, state.total);
  state.most_asked = std::max(state.most_asked, units);
  if (credit_since(target, state.target) > 0) want(sender, units, now);
}

void CreditPacer::lost(uint32_t sender, uint32_t packet_bytes, Nanos now) {
  const Sender& state = senders_[sender];
  const auto units = static_cast<int32_t>((packet_bytes + kCreditUnitBytes - 1) / kCreditUnitBytes);
  want(sender, std::max(credit_since(state.target, state.total), 0) + units, now);
}

void CreditPacer::want(uint32_t sender, int32_t units, Nanos now) {
  Sender& state = senders_[sender];
  state.target = (state.total + static_cast<uint32_t>(units)) & kCreditMask;
  if (units <= 0 || state.queue == Queue::active) return;
  if (active_.empty() && idle_.empty()) not_before(now);
  if (state.queue == Queue::idle) idle_.erase(std::find(idle_.begin(), idle_.end(), sender));
  state.queue = Queue::active;
  state.extra_granted = 0;
  active_.push_back(sender);
}

int32_t CreditPacer::take(uint32_t& sender) {
  std::deque<uint32_t>& from = active_.empty() ? idle_ : active_;
  if (from.empty()) return -1;
  sender = from.front();
  from.pop_front();
  Sender& state = senders_[sender];
  const int32_t needed = credit_since(state.target, state.total);
  if (state.queue == Queue::active && needed > 0) return std::min(needed, quantum_);
  const int32_t units = std::min(state.most_asked - state.extra_granted, quantum_);
  state.extra_granted += std::max(units, 0);
  return std::max(units, 0);
}

bool CreditPacer::next(Nanos now, Grant& grant) {
  if (due_ns() > now) return false;
  int32_t units = 0;
  while (units == 0) {
    units = take(grant.sender);
    if (units < 0) return false;
    Sender& state = senders_[grant.sender];
    state.total = (state.total + static_cast<uint32_t>(units)) & kCreditMask;
    if (credit_since(state.target, state.total) > 0) {
      active_.push_back(grant.sender);
      state.queue = Queue::active;
    } else if (state.extra_granted < state.most_asked) {
      idle_.push_back(grant.sender);
      state.queue = Queue::idle;
    } else {
      state.queue = Queue::none;
    }
    grant.total = state.total;
  }
  const uint64_t scaled_bits = static_cast<uint64_t>(units) * kCreditUnitBytes * 8'000'000'000;
  not_before(now - kCatchUpQuanta * static_cast<Nanos>(scaled_bits / rate_bps_));
  next_ns_ += static_cast<Nanos>((scaled_bits + remainder_) / rate_bps_);
  remainder_ = (scaled_bits + remainder_) % rate_bps_;
  return true;
}

void CreditPacer::not_before(Nanos at_ns) {
  if (next_ns_ >= at_ns) return;
  next_ns_ = at_ns;
  remainder_ = 0;
}

}  // namespace etloop
