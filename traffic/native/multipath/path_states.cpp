#include "multipath/path_states.h"

#include <algorithm>
#include <bit>
#include <cassert>

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

PathStates::PathStates(const MultipathParams& params, uint16_t first_port, uint32_t planes)
    : penalties_(params.choice == EntropyChoice::penalties),
      least_active_(std::min(params.least_active, params.entropy_values)),
      offset_((first_port - kFirstPort) % kPorts),
      planes_(planes),
      active_(params.entropy_values),
      values_(params.entropy_values) {
  assert(std::has_single_bit(planes));
}

bool PathStates::index_of(uint16_t port, uint32_t& index) const {
  index = (port - kFirstPort - offset_) % kPorts;
  return port >= kFirstPort && index < values_.size();
}

EntropyState PathStates::state_of(uint16_t value) const {
  uint32_t index = 0;
  return index_of(value, index) ? values_[index].state : EntropyState::denied;
}

void PathStates::change(uint32_t index, EntropyEvent event) {
  EntropyState& state = values_[index].state;
  // Withdrawing too many would leave a peer with few paths, or none.
  if (event == EntropyEvent::withdrawn && in_use(state) && active_ <= least_active_) event = EntropyEvent::marked;
  const bool was_in_use = in_use(state);
  state = after(state, event);
  if (was_in_use != in_use(state)) active_ += in_use(state) ? size_t{1} : ~size_t{0};
}

void PathStates::tell(uint16_t value, EntropyEvent event) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  if (penalties_ && event == EntropyEvent::marked) {
    values_[index].penalty = std::min<uint8_t>(kMostPenalty, values_[index].penalty + 1);
    return;
  }
  change(index, event);
}

void PathStates::arrived(uint16_t value) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  values_[index].losses = 0;
  const auto known = std::find(proven_.begin(), proven_.begin() + proven_count_, index);
  if (known != proven_.begin() + proven_count_) return;
  proven_[proven_next_] = static_cast<uint16_t>(index);
  proven_next_ = (proven_next_ + 1) % kProven;
  proven_count_ = std::min(proven_count_ + 1, kProven);
}

void PathStates::lost(uint16_t value) {
  uint32_t index = 0;
  if (!index_of(value, index) || ++values_[index].losses < kMostLosses) return;
  values_[index].losses = 0;
  change(index, EntropyEvent::withdrawn);
}

bool PathStates::miss_turn(uint32_t index) {
  Value& value = values_[index];
  if (penalties_) {
    if (value.penalty == 0) return false;
    --value.penalty;
    return true;
  }
  if (value.state != EntropyState::skip) return false;
  change(index, EntropyEvent::turn_missed);
  return true;
}

bool PathStates::next_proven(uint16_t& value) {
  for (uint32_t tried = 0; tried < proven_count_; ++tried) {
    proven_turn_ = (proven_turn_ + 1) % proven_count_;
    const uint32_t index = proven_[proven_turn_];
    if (!is_good(index)) continue;
    value = port_of(index);
    return true;
  }
  return false;
}

bool PathStates::next_to_probe(uint16_t& value, Nanos now, Nanos interval_ns) {
  if (active_ == values_.size() || now - probed_ns_ < interval_ns) return false;
  for (uint32_t tried = 0; tried < size(); ++tried) {
    probed_ = (probed_ + 1) % size();
    if (values_[probed_].state != EntropyState::assumed_bad || !plane_is_up(probed_)) continue;
    value = port_of(probed_);
    probed_ns_ = now;
    return true;
  }
  return false;
}

}  // namespace etloop::multipath
