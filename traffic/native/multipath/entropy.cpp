#include "multipath/entropy.h"

#include <algorithm>

namespace etloop::multipath {

EntropyValues::EntropyValues(EntropyChoice choice, PathStates& paths, uint32_t seed)
    : choice_(choice), paths_(paths), turn_(seed % paths.size()), random_(seed | 1U) {}

void EntropyValues::arrived_clean(uint16_t value, uint32_t packets) {
  uint32_t index = 0;
  if (choice_ != EntropyChoice::recycled || !paths_.index_of(value, index)) return;
  paths_.miss_turn(index);  // a mark of before is outdated
  if (!paths_.is_good(index)) return;
  if (recycled_count_ == kRecycled) {
    recycled_head_ = (recycled_head_ + 1) % kRecycled;
    --recycled_count_;
  }
  const auto uses = static_cast<uint16_t>(std::clamp<uint32_t>(packets, 1, kMostUses));
  recycled_[(recycled_head_ + recycled_count_++) % kRecycled] = {static_cast<uint16_t>(index), uses};
}

// Return the previous value while it is in use. A value chosen for other planes, as for answers, is not remembered.
uint32_t EntropyValues::keep(uint32_t planes) {
  uint32_t index = turn_;
  for (uint32_t tried = 0; tried < paths_.size() && !may_take(index, planes); ++tried) index = (index + 1) % paths_.size();
  if (planes == kAllPlanes) turn_ = index;
  return index;
}

// Return the next good value. The first `skip` value met loses this turn and becomes good, at most one per packet; if no value is
// good, a `skip` value is used.
uint32_t EntropyValues::rotate(uint32_t planes) {
  bool skipped = false;
  uint32_t spare = turn_;
  for (uint32_t tried = 0; tried < paths_.size(); ++tried) {
    const uint32_t index = step();
    if (!may_take(index, planes)) continue;
    if (paths_.is_good(index)) return index;
    spare = index;
    if (!skipped) skipped = paths_.miss_turn(index);
  }
  return spare;
}

uint32_t EntropyValues::rotate_with_penalties(uint32_t planes) {
  for (uint32_t tried = 0; tried < paths_.size() * kMostRounds; ++tried) {
    const uint32_t index = step();
    if (may_take(index, planes) && !paths_.miss_turn(index)) return index;
  }
  return turn_;
}

uint32_t EntropyValues::draw(uint32_t planes) {
  // Xorshift (Marsaglia 2003): each queue pair has its own sequence, the same in every run.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  const uint32_t from = random_ % paths_.size();
  for (uint32_t tried = 0; tried < paths_.size(); ++tried) {
    const uint32_t index = (from + tried) % paths_.size();
    if (may_take(index, planes)) return index;
  }
  return from;
}

// Return the oldest value that arrived clean. A value that several packets may take returns to the end, so that values alternate.
uint32_t EntropyValues::recycle(uint32_t planes) {
  while (recycled_count_ > 0) {
    Recycled oldest = recycled_[recycled_head_];
    recycled_head_ = (recycled_head_ + 1) % kRecycled;
    --recycled_count_;
    if (!paths_.is_good(oldest.index) || !may_take(oldest.index, planes)) continue;
    if (--oldest.packets > 0) recycled_[(recycled_head_ + recycled_count_++) % kRecycled] = oldest;
    return oldest.index;
  }
  return draw(planes);
}

// Whether a value of these planes is in use.
bool EntropyValues::any_of(uint32_t planes) const {
  for (uint32_t index = 0; index < paths_.size(); ++index) {
    if (may_take(index, planes)) return true;
  }
  return false;
}

uint16_t EntropyValues::next(uint32_t planes) {
  if (planes != kAllPlanes && !any_of(planes)) planes = kAllPlanes;
  if (paths_.keep_one()) return paths_.port_of(keep(planes));
  switch (choice_) {
    case EntropyChoice::rotation: return paths_.port_of(rotate(planes));
    case EntropyChoice::oblivious: return paths_.port_of(draw(planes));
    case EntropyChoice::recycled: return paths_.port_of(recycle(planes));
    case EntropyChoice::penalties: return paths_.port_of(rotate_with_penalties(planes));
  }
  return paths_.port_of(0);
}

uint16_t EntropyValues::next_but(uint16_t failed, uint32_t planes) {
  if (paths_.planes() > 1) {
    const uint32_t others = planes & ~(1U << paths_.plane_of(failed));
    if (any_of(others)) return next(others);
  }
  const uint16_t value = next(planes);
  return value == failed ? next(planes) : value;
}

// Consecutive values belong to consecutive planes.
uint16_t EntropyValues::next_plane(uint16_t failed) {
  uint32_t index = 0;
  if (paths_.planes() == 1 || !paths_.index_of(failed, index)) return next_proven();
  for (uint32_t tried = 0; tried < paths_.planes(); ++tried) {
    index = (index + 1) % paths_.size();
    if ((paths_.planes_up() >> paths_.plane_of(paths_.port_of(index)) & 1) != 0) break;
  }
  return paths_.port_of(index);
}

uint16_t EntropyValues::next_proven(uint32_t planes) {
  uint16_t value = 0;
  if (paths_.keep_one()) return next(planes);
  return paths_.next_proven(value, planes) ? value : next(planes);
}

}  // namespace etloop::multipath
