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

PathStates::PathStates(const MultipathSettings& params, uint16_t first_port, uint32_t planes)
    : penalties_(params.choice == EntropyChoice::penalties),
      keep_one_(params.uet.order == DeliveryOrder::sent),
      least_active_(std::min(params.least_active, params.entropy_values)),
      offset_((first_port - kFirstPort) % kPorts),
      planes_(planes),
      active_(keep_one_ ? planes : params.entropy_values),
      values_(active_) {
  assert(std::has_single_bit(planes) && planes <= kMostPlanes);
}

bool PathStates::index_of(uint16_t port, uint32_t& index) const {
  index = (port - kFirstPort - offset_) % kPorts;
  return port >= kFirstPort && index < values_.size();
}

EntropyState PathStates::state_of(uint16_t value) const {
  uint32_t index = 0;
  return index_of(value, index) ? values_[index].state : EntropyState::denied;
}

size_t PathStates::usable() const {
  if (planes_ == 1 || usable_planes_ == kAllPlanes) return active_;
  size_t count = 0;
  for (uint32_t i = 0; i < size(); ++i) count += in_use(i) ? 1 : 0;
  return count;
}

// A queue pair that uses one path never probes others: when the last plane fails, retry those that failed before. False: there is
// none.
bool PathStates::forget_others(uint32_t index) {
  const uint32_t others = planes_up_ & ~(1U << plane_of(port_of(index)));
  if (!keep_one_ || (others & ((1U << planes_) - 1)) == 0) return false;
  restore_planes(others);
  return true;
}

void PathStates::change(uint32_t index, EntropyEvent event) {
  EntropyState& state = values_[index].state;
  // Withdrawing too many values would leave few paths to a peer, or none.
  if (event == EntropyEvent::withdrawn && in_use(state) && usable() <= least_active_ && !forget_others(index)) {
    event = EntropyEvent::marked;
  }
  const bool was_in_use = in_use(state);
  state = after(state, event);
  if (was_in_use != in_use(state)) active_ += in_use(state) ? size_t{1} : ~size_t{0};
}

void PathStates::apply(uint16_t value, EntropyEvent event) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  if (penalties_ && event == EntropyEvent::marked) {
    values_[index].penalty = std::min<uint8_t>(kMostPenalty, values_[index].penalty + 1);
    return;
  }
  if (event == EntropyEvent::withdrawn) note_plane_lost(value);
  if (event == EntropyEvent::probe_answered || event == EntropyEvent::marked_by_probe) {
    if ((suspected_ >> plane_of(value) & 1) != 0) restore_planes(1U << plane_of(value));
  }
  change(index, event);
}

void PathStates::set_planes(uint32_t up) {
  up = up == 0 ? kAllPlanes : up;
  const uint32_t came_up = up & ~planes_up_;
  planes_up_ = up;
  restore_planes(came_up);
}

// Forget what was learnt of the paths of these planes while they were down.
void PathStates::restore_planes(uint32_t planes) {
  suspected_ &= ~planes;
  for (uint32_t i = 0; i < size() && planes != 0; ++i) {
    if (!has_plane(planes, i)) continue;
    values_[i].losses = 0;
    change(i, EntropyEvent::probe_answered);
  }
  update_usable_planes();
}

void PathStates::update_usable_planes() {
  const uint32_t trusted = planes_up_ & ~suspected_;
  usable_planes_ = trusted != 0 ? trusted : planes_up_;
}

// Withdraw a failed plane as a whole: otherwise each of its values would have to lose packets.
void PathStates::note_plane_lost(uint16_t value) {
  if (planes_ == 1) return;
  const uint32_t plane = plane_of(value);
  if (++plane_losses_[plane] < kMostPlaneLosses) return;
  plane_losses_[plane] = 0;
  suspected_ |= 1U << plane;
  if ((((1U << planes_) - 1) & planes_up_ & ~suspected_) == 0) suspected_ = 0;  // all fail: the network is cut, not a plane
  update_usable_planes();
}

void PathStates::arrived(uint16_t value) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  values_[index].losses = 0;
  plane_losses_[plane_of(value)] = 0;
  const auto known = std::find(proven_.begin(), proven_.begin() + proven_count_, index);
  if (known != proven_.begin() + proven_count_) return;
  proven_[proven_next_] = static_cast<uint16_t>(index);
  proven_next_ = (proven_next_ + 1) % kProven;
  proven_count_ = std::min(proven_count_ + 1, kProven);
}

void PathStates::lost(uint16_t value) {
  uint32_t index = 0;
  if (!index_of(value, index)) return;
  note_plane_lost(value);
  if (++values_[index].losses < kMostLosses) return;
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

bool PathStates::next_proven(uint16_t& value, uint32_t planes) {
  for (uint32_t tried = 0; tried < proven_count_; ++tried) {
    proven_turn_ = (proven_turn_ + 1) % proven_count_;
    const uint32_t index = proven_[proven_turn_];
    if (!is_good(index) || !has_plane(planes, index)) continue;
    value = port_of(index);
    return true;
  }
  return false;
}

bool PathStates::next_to_probe(uint16_t& value, Nanos now, Nanos interval_ns) {
  if ((active_ == values_.size() && suspected_ == 0) || now - probed_ns_ < interval_ns) return false;
  for (uint32_t tried = 0; tried < size(); ++tried) {
    probed_ = (probed_ + 1) % size();
    const bool is_left = values_[probed_].state == EntropyState::assumed_bad || has_plane(suspected_, probed_);
    if (!is_left || !has_plane(planes_up_, probed_)) continue;
    value = port_of(probed_);
    probed_ns_ = now;
    return true;
  }
  return false;
}

}  // namespace etloop::multipath
