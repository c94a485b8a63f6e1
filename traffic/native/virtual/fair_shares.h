// Max-min fair rates of flows over links, updated as flows begin and end. Pure.
//
// Every link has a level: the rate that it can give each of its flows after flows with lower rates elsewhere are served;
// unlimited while there is room. A flow has the lowest level on its way. Consistent levels are the max-min fair ones (Bertsekas
// and Gallager, Data Networks, 2nd ed., 6.5.2: every flow has a saturated link on which no flow is faster). Recomputing each link
// whose neighbour changed converges to them: the lowest level after one evaluation, then the next (Charny, Clark, Jain:
// Congestion control with explicit rate indication, 1995). A change below the tolerance is not propagated, so that the begin and
// end of one flow among thousands affect only its neighbours. Nor is a link evaluated for it: each link keeps account of the
// capacity left at its level, and is evaluated once that is off by the tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace etloop {

// A link on a flow's way, and the fraction of the flow on it: below 1 if the flow is spread over several links.
struct LinkShare {
  int32_t link;
  float part;
};

class FairShares {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  explicit FairShares(std::span<const int64_t> link_bps);

  // Begin a flow; returns its number, which may be that of an ended flow. A flow over no link is unlimited. A link occurs at most
  // once on its way.
  uint32_t begin(std::span<const LinkShare> way);
  void end(uint32_t flow);
  // Compute the rates after all changes since the last call. Returns the flows with a changed rate, unordered, valid until the
  // next call. `tolerance`: relative error of a level that is not propagated.
  std::span<const uint32_t> settle(double tolerance);

  double rate_bps(uint32_t flow) const { return flows_[flow].rate_bps; }
  size_t links() const { return links_.size(); }
  // Number of link evaluations so far.
  int64_t looks() const { return looks_; }
  // Number of times that a settlement doubled its tolerance because of too many evaluations.
  int64_t loosened() const { return loosened_; }

 private:
  struct Hop {
    int32_t link;
    float part;
    uint32_t place;  // index among the link's members
  };
  struct Flow {
    double rate_bps;
    uint32_t first_hop;
    uint32_t hops;
    bool live;
    bool changed;
  };
  // A flow on a link, with its rate elsewhere: the lowest level on its way except this link's.
  struct Member {
    double wanted_bps;
    uint32_t flow;
    uint32_t hop;
    float part;
  };
  struct Link {
    double capacity_bps = 0;
    // Capacity left if each flow takes the smaller of the level and its rate elsewhere; below 0: overloaded.
    double left_bps = 0;
    // Sum of the parts of flows limited by this link.
    double limited_parts = 0;
    std::vector<Member> members;
    bool waiting = false;
    bool stirred = false;
  };

  void evaluate(int32_t link);
  double level_of(const Link& link);
  std::span<Hop> hops_of(const Flow& flow) { return std::span(hops_).subspan(flow.first_hop, flow.hops); }
  std::span<const Hop> hops_of(const Flow& flow) const { return std::span(hops_).subspan(flow.first_hop, flow.hops); }
  void update_other_links(const Flow& flow, int32_t number);
  double demand(const Flow& flow, int32_t except) const;
  bool is_off(int32_t link) const;
  static void take(Link& link, const Member& member, double level_bps);
  static void leave(Link& link, const Member& member, double level_bps);
  double level_at(int32_t link) const { return levels_bps_[static_cast<size_t>(link)]; }
  void note_membership(int32_t link);
  void enqueue_link(int32_t link);
  void note_change(uint32_t flow);
  bool differs(double a, double b) const;

  std::vector<Link> links_;
  std::vector<double> levels_bps_;  // by link
  std::vector<Flow> flows_;
  std::vector<Hop> hops_;  // of all flows, contiguous per flow
  std::vector<std::vector<uint32_t>> free_;  // free flow numbers, by number of hops
  std::vector<int32_t> waiting_;
  std::vector<int32_t> stirred_;  // links with flows begun or ended since the last settlement
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> changed_;
  // Members of a link that may be limited by its level.
  struct Want {
    double rate_bps;
    double part;
  };
  std::vector<Want> wants_;
  double slack_ = 0;  // tolerance of the current settlement
  int64_t looks_ = 0;
  int64_t loosened_ = 0;
};

}  // namespace etloop
