// Max-min fair rates of flows over links, kept up to date as flows come and go. Pure.
//
// Every link has a level: the rate that it can give each of its flows, once those that get less elsewhere have got it;
// unlimited while its flows leave room. A flow has the least level on its way. Levels that agree with each other are the
// max-min fair ones (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2: every flow has a saturated link on which no
// flow is faster), and working them out anew link by link, wherever a neighbour has changed, arrives there: the slowest
// level after one look, then the next (Charny, Clark, Jain: Congestion control with explicit rate indication, 1995).
// A change that is smaller than the tolerance is not passed on, so that the coming and going of one flow among thousands
// stays the affair of its neighbours.
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
    std::vector<Hop> hops;
    double rate_bps = 0;
    bool changed = false;
  };
  struct Member {
    uint32_t flow;
    uint32_t hop;
  };
  struct Link {
    double capacity_bps = 0;
    double level_bps = kUnlimited;
    std::vector<Member> members;
    bool waiting = false;
  };

  void look_at(int32_t link);
  double level_of(const Link& link);
  double demand(const Flow& flow, int32_t except) const;
  void wait_for_look(int32_t link);
  void note_change(uint32_t flow);
  bool differs(double a, double b) const;

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> free_;
  std::vector<int32_t> waiting_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> changed_;
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
