#include "virtual/fair_shares.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace etloop {

namespace {

// Below it a difference is the arithmetic's.
constexpr double kLeastTolerance = 1e-12;
// Looks at each link that waits, on the average, before a settling is made easier. Far more than any network that was
// tried needs; a bound all the same.
constexpr int64_t kPatience = 256;

}  // namespace

FairShares::FairShares(std::span<const int64_t> link_bps) : links_(link_bps.size()) {
  for (size_t l = 0; l < link_bps.size(); ++l) links_[l].capacity_bps = static_cast<double>(link_bps[l]);
}

uint32_t FairShares::begin(std::span<const LinkShare> way) {
  uint32_t flow;
  if (free_.empty()) {
    flow = static_cast<uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    flow = free_.back();
    free_.pop_back();
  }
  Flow& begun = flows_[flow];
  begun.hops.clear();
  begun.rate_bps = way.empty() ? kUnlimited : 0;
  for (const LinkShare& share : way) {
    Link& link = links_[static_cast<size_t>(share.link)];
    const auto hop = static_cast<uint32_t>(begun.hops.size());
    begun.hops.push_back({share.link, share.part, static_cast<uint32_t>(link.members.size())});
    link.members.push_back({flow, hop});
    wait_for_look(share.link);
  }
  note_change(flow);
  return flow;
}

void FairShares::end(uint32_t flow) {
  Flow& ended = flows_[flow];
  for (const Hop& hop : ended.hops) {
    Link& link = links_[static_cast<size_t>(hop.link)];
    const Member last = link.members.back();
    link.members[hop.place] = last;
    flows_[last.flow].hops[last.hop].place = hop.place;
    link.members.pop_back();
    wait_for_look(hop.link);
  }
  ended.hops.clear();
  free_.push_back(flow);
}

std::span<const uint32_t> FairShares::settle(double tolerance) {
  slack_ = std::max(tolerance, kLeastTolerance);
  int64_t patience = kPatience * static_cast<int64_t>(waiting_.size() + 64);
  for (size_t next = 0; next < waiting_.size(); ++next) {
    const int32_t link = waiting_[next];
    links_[static_cast<size_t>(link)].waiting = false;
    look_at(link);
    if (--patience == 0) {
      ++loosened_;
      slack_ *= 2;
      patience = kPatience * static_cast<int64_t>(waiting_.size() - next + 64);
    }
  }
  waiting_.clear();
  changed_.clear();
  for (const uint32_t flow : touched_) {
    Flow& touched = flows_[flow];
    touched.changed = false;
    if (touched.hops.empty()) continue;  // it has ended, or nothing limits it
    const double rate_bps = demand(touched, -1);
    if (rate_bps == touched.rate_bps) continue;
    touched.rate_bps = rate_bps;
    changed_.push_back(flow);
  }
  touched_.clear();
  return changed_;
}

// The least level on a flow's way, that of one link left out.
double FairShares::demand(const Flow& flow, int32_t except) const {
  double least = kUnlimited;
  for (const Hop& hop : flow.hops) {
    if (hop.link != except) least = std::min(least, links_[static_cast<size_t>(hop.link)].level_bps);
  }
  return least;
}

bool FairShares::differs(double a, double b) const {
  if (a == b) return false;
  if (a == kUnlimited || b == kUnlimited) return true;
  return std::abs(a - b) > slack_ * std::min(a, b);
}

// The level x at which the flows, each with the less of x and what it gets elsewhere, fill the link.
double FairShares::level_of(const Link& link) {
  const auto number = static_cast<int32_t>(&link - links_.data());
  wants_.clear();
  double parts = 0;
  for (const Member& member : link.members) {
    const Flow& flow = flows_[member.flow];
    const double part = flow.hops[member.hop].part;
    wants_.push_back({demand(flow, number), part});
    parts += part;
  }
  double left_bps = link.capacity_bps;
  double level_bps = left_bps / parts;
  // Those that want less than the level give the rest to the others; it only rises.
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
    if (still == 0) return kUnlimited;  // all have what they want, and there is room
    if (still == kept) break;
    kept = still;
    level_bps = std::max(left_bps / parts, level_bps);
  }
  return level_bps;
}

void FairShares::look_at(int32_t number) {
  ++looks_;
  Link& link = links_[static_cast<size_t>(number)];
  const double before_bps = link.level_bps;
  const double level_bps = link.members.empty() ? kUnlimited : level_of(link);
  if (!differs(level_bps, before_bps)) return;
  link.level_bps = level_bps;
  for (const Member& member : link.members) {
    const Flow& flow = flows_[member.flow];
    bool is_changed = false;
    for (const Hop& hop : flow.hops) {
      if (hop.link == number) continue;
      // What the flow can get of the other link's neighbours has changed only if this was, or is, the least of them.
      double others_bps = kUnlimited;
      for (const Hop& other : flow.hops) {
        if (other.link == number || other.link == hop.link) continue;
        others_bps = std::min(others_bps, links_[static_cast<size_t>(other.link)].level_bps);
      }
      const double there_bps = links_[static_cast<size_t>(hop.link)].level_bps;
      const double was_bps = std::min(before_bps, others_bps);
      const double is_bps = std::min(level_bps, others_bps);
      if (was_bps == is_bps || (was_bps > there_bps && is_bps > there_bps)) continue;
      wait_for_look(hop.link);
      is_changed = true;
    }
    if (is_changed || differs(demand(flow, -1), flow.rate_bps)) note_change(member.flow);
  }
}

void FairShares::wait_for_look(int32_t number) {
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
