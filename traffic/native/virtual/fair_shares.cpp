#include "virtual/fair_shares.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace etloop {

namespace {

// Smaller differences are rounding errors.
constexpr double kLeastTolerance = 1e-12;
// Average evaluations per queued link before the tolerance is doubled. Far more than any network tried needs.
constexpr int64_t kMostEvaluationsPerLink = 256;

}  // namespace

FairShares::FairShares(std::span<const int64_t> link_bps) : links_(link_bps.size()), levels_bps_(link_bps.size(), kUnlimited) {
  for (size_t l = 0; l < link_bps.size(); ++l) {
    links_[l].capacity_bps = links_[l].left_bps = static_cast<double>(link_bps[l]);
  }
}

uint32_t FairShares::begin(std::span<const LinkShare> way) {
  if (way.size() >= free_.size()) free_.resize(way.size() + 1);
  std::vector<uint32_t>& numbers = free_[way.size()];
  uint32_t flow;
  if (numbers.empty()) {
    flow = static_cast<uint32_t>(flows_.size());
    flows_.push_back({0, static_cast<uint32_t>(hops_.size()), static_cast<uint32_t>(way.size()), true, false});
    hops_.resize(hops_.size() + way.size());
  } else {
    flow = numbers.back();
    numbers.pop_back();
    flows_[flow].live = true;
  }
  flows_[flow].rate_bps = way.empty() ? kUnlimited : 0;
  const std::span<Hop> hops = hops_of(flows_[flow]);
  for (uint32_t hop = 0; hop < hops.size(); ++hop) {
    const LinkShare& share = way[hop];
    std::vector<Member>& members = links_[static_cast<size_t>(share.link)].members;
    hops[hop] = {share.link, share.part, static_cast<uint32_t>(members.size())};
    members.push_back({0, flow, hop, share.part});
  }
  for (const Hop& hop : hops) {
    Link& link = links_[static_cast<size_t>(hop.link)];
    Member& member = link.members[hop.place];
    member.wanted_bps = demand(flows_[flow], hop.link);
    take(link, member, level_at(hop.link));
    note_membership(hop.link);
  }
  note_change(flow);
  return flow;
}

void FairShares::end(uint32_t flow) {
  Flow& ended = flows_[flow];
  for (const Hop& hop : hops_of(ended)) {
    Link& link = links_[static_cast<size_t>(hop.link)];
    leave(link, link.members[hop.place], level_at(hop.link));
    note_membership(hop.link);
    const Member last = link.members.back();
    link.members[hop.place] = last;
    hops_of(flows_[last.flow])[last.hop].place = hop.place;
    link.members.pop_back();
  }
  ended.live = false;
  free_[ended.hops].push_back(flow);
}

std::span<const uint32_t> FairShares::settle(double tolerance) {
  slack_ = std::max(tolerance, kLeastTolerance);
  for (const int32_t link : stirred_) {
    links_[static_cast<size_t>(link)].stirred = false;
    if (is_off(link)) enqueue_link(link);
  }
  stirred_.clear();
  int64_t patience = kMostEvaluationsPerLink * static_cast<int64_t>(waiting_.size() + 64);
  for (size_t next = 0; next < waiting_.size(); ++next) {
    const int32_t link = waiting_[next];
    links_[static_cast<size_t>(link)].waiting = false;
    evaluate(link);
    if (--patience == 0) {
      ++loosened_;
      slack_ *= 2;
      patience = kMostEvaluationsPerLink * static_cast<int64_t>(waiting_.size() - next + 64);
    }
  }
  waiting_.clear();
  changed_.clear();
  for (const uint32_t flow : touched_) {
    Flow& touched = flows_[flow];
    touched.changed = false;
    if (!touched.live || touched.hops == 0) continue;  // ended, or unlimited
    const double rate_bps = demand(touched, -1);
    if (rate_bps == touched.rate_bps) continue;
    touched.rate_bps = rate_bps;
    changed_.push_back(flow);
  }
  touched_.clear();
  return changed_;
}

// Return the lowest level on a flow's way, excluding one link.
double FairShares::demand(const Flow& flow, int32_t except) const {
  double least = kUnlimited;
  for (const Hop& hop : hops_of(flow)) {
    if (hop.link != except) least = std::min(least, level_at(hop.link));
  }
  return least;
}

bool FairShares::differs(double a, double b) const {
  if (a == b) return false;
  if (a == kUnlimited || b == kUnlimited) return true;
  return std::abs(a - b) > slack_ * std::min(a, b);
}

// Account for a flow's share of a link, or remove it.
void FairShares::take(Link& link, const Member& member, double level_bps) {
  link.left_bps -= std::min(member.wanted_bps, level_bps) * static_cast<double>(member.part);
  if (member.wanted_bps > level_bps) link.limited_parts += static_cast<double>(member.part);
}

void FairShares::leave(Link& link, const Member& member, double level_bps) {
  link.left_bps += std::min(member.wanted_bps, level_bps) * static_cast<double>(member.part);
  if (member.wanted_bps > level_bps) link.limited_parts -= static_cast<double>(member.part);
}

// Whether a link's level is off by more than the tolerance. The negated comparisons handle NaN from infinities.
bool FairShares::is_off(int32_t number) const {
  const Link& link = links_[static_cast<size_t>(number)];
  const double level_bps = level_at(number);
  if (level_bps == kUnlimited) return !(link.left_bps >= -slack_ * link.capacity_bps);
  return link.members.empty() || !(std::abs(link.left_bps) <= slack_ * level_bps * std::max(link.limited_parts, 0.0));
}

// Return the level x at which the flows, each with the smaller of x and its rate elsewhere, fill the link.
double FairShares::level_of(const Link& link) {
  wants_.clear();
  double parts = 0;
  for (const Member& member : link.members) {
    wants_.push_back({member.wanted_bps, static_cast<double>(member.part)});
    parts += static_cast<double>(member.part);
  }
  double left_bps = link.capacity_bps;
  double level_bps = left_bps / parts;
  // Flows below the level leave the remainder to the others; the level only rises.
  for (size_t kept = wants_.size(); kept > 0;) {
    size_t still = 0;
    for (size_t i = 0; i < kept; ++i) {
      if (wants_[i].rate_bps > level_bps) {
        wants_[still++] = wants_[i];
      } else {
        left_bps -= wants_[i].rate_bps * wants_[i].part;
        parts -= wants_[i].part;
      }
    }
    if (still == 0) return kUnlimited;  // all flows are limited elsewhere, and there is room
    if (still == kept) break;
    kept = still;
    level_bps = std::max(left_bps / parts, level_bps);
  }
  return level_bps;
}

void FairShares::evaluate(int32_t number) {
  ++looks_;
  Link& link = links_[static_cast<size_t>(number)];
  double& level_bps = levels_bps_[static_cast<size_t>(number)];
  const double found_bps = link.members.empty() ? kUnlimited : level_of(link);
  const bool is_new = differs(found_bps, level_bps);
  if (is_new) level_bps = found_bps;
  link.left_bps = link.capacity_bps;
  link.limited_parts = 0;
  for (const Member& member : link.members) take(link, member, level_bps);
  if (!is_new) return;
  for (const Member& member : link.members) {
    const Flow& flow = flows_[member.flow];
    if (std::min(level_bps, member.wanted_bps) != flow.rate_bps) note_change(member.flow);
    update_other_links(flow, number);
  }
}

// Update a flow's rate on its other links after the level of one link changed.
void FairShares::update_other_links(const Flow& flow, int32_t number) {
  double least_bps = kUnlimited;
  double second_bps = kUnlimited;
  int32_t least_at = -1;
  for (const Hop& hop : hops_of(flow)) {
    const double level_bps = level_at(hop.link);
    if (least_at < 0 || level_bps < least_bps) {
      second_bps = least_bps;
      least_bps = level_bps;
      least_at = hop.link;
    } else {
      second_bps = std::min(second_bps, level_bps);
    }
  }
  for (const Hop& hop : hops_of(flow)) {
    if (hop.link == number) continue;
    Link& there = links_[static_cast<size_t>(hop.link)];
    Member& member = there.members[hop.place];
    const double wanted_bps = hop.link == least_at ? second_bps : least_bps;
    if (wanted_bps == member.wanted_bps) continue;
    const double level_bps = level_at(hop.link);
    const bool affects_level = wanted_bps <= level_bps || member.wanted_bps <= level_bps;
    if (affects_level) leave(there, member, level_bps);
    member.wanted_bps = wanted_bps;
    if (!affects_level) continue;
    take(there, member, level_bps);
    if (!there.waiting && is_off(hop.link)) enqueue_link(hop.link);
  }
}

void FairShares::note_membership(int32_t number) {
  Link& link = links_[static_cast<size_t>(number)];
  if (link.stirred) return;
  link.stirred = true;
  stirred_.push_back(number);
}

void FairShares::enqueue_link(int32_t number) {
  Link& link = links_[static_cast<size_t>(number)];
  if (link.waiting) return;
  link.waiting = true;
  waiting_.push_back(number);
}

void FairShares::note_change(uint32_t flow) {
  if (flows_[flow].changed) return;
  flows_[flow].changed = true;
  touched_.push_back(flow);
}

}  // namespace etloop
