// Max-min fair rates of flows over links, kept up to date as flows come and go. Pure.
//
// Every link has a level: the rate that it can give each of its flows, once those that get less elsewhere have got it;
// unlimited while its flows leave room. A flow has the least level on its way. Levels that agree with each other are the
// max-min fair ones (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2: every flow has a saturated link on which no
// flow is faster), and working them out anew link by link, wherever a neighbour has changed, arrives there: the slowest
// level after one look, then the next (Charny, Clark, Jain: Congestion control with explicit rate indication, 1995).
// A change that is smaller than the tolerance is not passed on, so that the coming and going of one flow among thousands
// stays the affair of its neighbours. Nor is a link looked at for it: each keeps account of what its level leaves of it, by
// whom that changes, and is looked at once the level is off by the tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace etloop {

// A link on a flow's way, and the part of the flow that takes it: 1, or less where it is spread over several links.
struct LinkShare {
  int32_t link;
  float part;
};

class FairShares {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  explicit FairShares(std::span<const int64_t> link_bps);

  // A flow begins; its number is that of one that has ended, or the next. A flow over no link is unlimited.
  // No link may be on its way twice.
  uint32_t begin(std::span<const LinkShare> way);
  void end(uint32_t flow);
  // Works out what has changed since the last time; `changed` are the flows, in no particular order, whose rates have,
  // until the next call. `tolerance`: by what part of itself a level may be off before others hear of it.
  std::span<const uint32_t> settle(double tolerance);

  double rate_bps(uint32_t flow) const { return flows_[flow].rate_bps; }
  size_t links() const { return links_.size(); }
  // Looks at a link, of all settling so far.
  int64_t looks() const { return looks_; }
  // How often settling took so many looks that the tolerance was doubled for the rest of it.
  int64_t loosened() const { return loosened_; }

 private:
  struct Hop {
    int32_t link;
    float part;
    uint32_t place;  // among the link's members
  };
  struct Flow {
    double rate_bps;
    uint32_t first_hop;
    uint32_t hops;
    bool live;
    bool changed;
  };
  // A flow of a link, by what it gets elsewhere: the least level on its way but for this link's.
  struct Member {
    double wanted_bps;
    uint32_t flow;
    uint32_t hop;
    float part;
  };
  struct Link {
    double capacity_bps = 0;
    // What is left of it where each flow takes the less of the level and of what it gets elsewhere; below 0: too much is taken.
    double left_bps = 0;
    // Of the flows that get more elsewhere than the level.
    double limited_parts = 0;
    std::vector<Member> members;
    bool waiting = false;
    bool stirred = false;
  };

  void look_at(int32_t link);
  double level_of(const Link& link);
  std::span<Hop> hops_of(const Flow& flow) { return std::span(hops_).subspan(flow.first_hop, flow.hops); }
  std::span<const Hop> hops_of(const Flow& flow) const { return std::span(hops_).subspan(flow.first_hop, flow.hops); }
  void tell(const Flow& flow, int32_t number);
  double demand(const Flow& flow, int32_t except) const;
  bool is_off(int32_t link) const;
  static void take(Link& link, const Member& member, double level_bps);
  static void leave(Link& link, const Member& member, double level_bps);
  double level_at(int32_t link) const { return levels_bps_[static_cast<size_t>(link)]; }
  void stir(int32_t link);
  void wait_for_look(int32_t link);
  void note_change(uint32_t flow);
  bool differs(double a, double b) const;

  std::vector<Link> links_;
  std::vector<double> levels_bps_;  // by link
  std::vector<Flow> flows_;
  std::vector<Hop> hops_;  // of all flows, those of a flow side by side
  std::vector<std::vector<uint32_t>> free_;  // numbers of flows that have ended, by how many hops they have room for
  std::vector<int32_t> waiting_;
  std::vector<int32_t> stirred_;  // whose flows have begun or ended since the last settling
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> changed_;
  // Of a link's members, those that may want more than its level.
  struct Want {
    double rate_bps;
    double part;
  };
  std::vector<Want> wants_;
  double slack_ = 0;  // the tolerance of the settling under way
  int64_t looks_ = 0;
  int64_t loosened_ = 0;
};

}  // namespace etloop
