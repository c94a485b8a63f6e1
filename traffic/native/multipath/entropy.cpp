#include "multipath/entropy.h"

#include <algorithm>

namespace etloop::multipath {

EntropyState after(EntropyState state, EntropyEvent event) {
  switch (event) {
    case EntropyEvent::marked: return state == EntropyState::good ? EntropyState::skip : state;
    case EntropyEvent::withdrawn: return state == EntropyState::denied ? state : EntropyState::assumed_bad;
    case EntropyEvent::turn_missed: return state == EntropyState::skip ? EntropyState::good : state;
    case EntropyEvent::probe_answered: return state == EntropyState::assumed_bad ? EntropyState::good : state;
    case EntropyEvent::marked_by_probe:
      return state == EntropyState::assumed_bad || state == EntropyState::good ? EntropyState::skip : state;
    case EntropyEvent::deny: return EntropyState::denied;
    case EntropyEvent::allow: return state == EntropyState::denied ? EntropyState::good : state;
  }
  return state;
}

EntropyValues::EntropyValues(const MultipathParams& params, uint16_t first_port, uint32_t seed)
    : choice_(params.choice),
      least_active_(std::min(params.least_active, params.entropy_values)),
      offset_((first_port - kFirstPort) % kPorts),
      random_(seed | 1U),
      active_(params.entropy_values),
      values_(params.entropy_values) {
  turn_ = seed % params.entropy_values;
}

bool EntropyValues::index_of(uint16_t port, uint32_t& index) const {
  index = (port - kFirstPort - offset_) % kPorts;
  return port >= kFirstPort && index < values_.size();
}

EntropyState EntropyValues::state_of(uint16_t value) const {
  uint32_t index = 0;
  return index_of(value, index) ? values_[index].state : EntropyState::denied;
}

void EntropyValues::change(uint32_t index, EntropyEvent event) {
  EntropyState& state = values_[index].state;
  // Withdrawing too many would leave a queue pair with few paths, or none.
  if (event == EntropyEvent::withdrawn && in_use(state) && active_ <= least_active_) event = EntropyEvent::marked;
  const bool was_in_use = in_use(state);
  state = after(state, event);
  if (was_in_use != in_use(state)) active_ += in_use(state) ? size_t{1} : ~size_t{0};
}

void EntropyValues::tell(uint16_t value, EntropyEvent event) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  if (choice_ == EntropyChoice::penalties && event == EntropyEvent::marked) {
    values_[index].penalty = std::min<uint8_t>(kMostPenalty, values_[index].penalty + 1);
    return;
  }
  change(index, event);
}

void EntropyValues::arrived_clean(uint16_t value) {
  uint32_t index = 0;
  if (choice_ != EntropyChoice::recycled || !index_of(value, index) || values_[index].state != EntropyState::good) return;
  if (recycled_count_ == kRecycled) {
    recycled_head_ = (recycled_head_ + 1) % kRecycled;
    --recycled_count_;
  }
  recycled_[(recycled_head_ + recycled_count_++) % kRecycled] = static_cast<uint16_t>(index);
}

void EntropyValues::arrived(uint16_t value) {
  uint32_t index = 0;
  if (index_of(value, index)) values_[index].losses = 0;
}

void EntropyValues::lost(uint16_t value) {
  uint32_t index = 0;
  if (!index_of(value, index) || ++values_[index].losses < kMostLosses) return;
  values_[index].losses = 0;
  change(index, EntropyEvent::withdrawn);
}

// The next good one. The first to be skipped misses this turn and is good again, one at most for each packet; where none is
// good, one that is to be skipped goes all the same.
uint32_t EntropyValues::rotate() {
  const auto count = static_cast<uint32_t>(values_.size());
  bool forgiven = false;
  uint32_t spare = turn_;
  for (uint32_t tried = 0; tried < count; ++tried) {
    const uint32_t index = turn_;
    turn_ = (turn_ + 1) % count;
    const EntropyState state = values_[index].state;
    if (state == EntropyState::good) return index;
    if (state != EntropyState::skip) continue;
    spare = index;
    if (!forgiven) change(index, EntropyEvent::turn_missed);
    forgiven = true;
  }
  return spare;
}

uint32_t EntropyValues::rotate_with_penalties() {
  const auto count = static_cast<uint32_t>(values_.size());
  for (uint32_t tried = 0; tried < count * (kMostPenalty + 1U); ++tried) {
    Value& value = values_[turn_];
    const uint32_t index = turn_;
    turn_ = (turn_ + 1) % count;
    if (!in_use(value.state)) continue;
    if (value.penalty == 0) return index;
    --value.penalty;
  }
  return turn_;
}

uint32_t EntropyValues::draw() {
  // Xorshift (Marsaglia 2003): every queue pair its own row of draws, the same in every run.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  const auto count = static_cast<uint32_t>(values_.size());
  const uint32_t from = random_ % count;
  for (uint32_t tried = 0; tried < count; ++tried) {
    const uint32_t index = (from + tried) % count;
    if (in_use(values_[index].state)) return index;
  }
  return from;
}

uint32_t EntropyValues::recycle() {
  while (recycled_count_ > 0) {
    const uint32_t index = recycled_[recycled_head_];
    recycled_head_ = (recycled_head_ + 1) % kRecycled;
    --recycled_count_;
    if (values_[index].state == EntropyState::good) return index;
  }
  return draw();
}

uint16_t EntropyValues::next() {
  switch (choice_) {
    case EntropyChoice::rotation: return port_of(rotate());
    case EntropyChoice::oblivious: return port_of(draw());
    case EntropyChoice::recycled: return port_of(recycle());
    case EntropyChoice::penalties: return port_of(rotate_with_penalties());
  }
  return port_of(0);
}

uint16_t EntropyValues::next_but(uint16_t failed) {
  const uint16_t value = next();
  return value == failed ? next() : value;
}

bool EntropyValues::next_to_probe(uint16_t& value) {
  const auto count = static_cast<uint32_t>(values_.size());
  if (active_ == count) return false;
  for (uint32_t tried = 0; tried < count; ++tried) {
    probed_ = (probed_ + 1) % count;
    if (values_[probed_].state != EntropyState::assumed_bad) continue;
    value = port_of(probed_);
    return true;
  }
  return false;
}

}  // namespace etloop::multipath
