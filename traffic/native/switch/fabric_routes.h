// Which ports of every switch lead to which attachment, while some links are left out: shortest paths by number of links, with
// all that are equally short. traffic/topology/routes.py does the same before a run, for all links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace etloop {

struct FabricConfig;

// The ways of one switch in one piece: those to destination d are ports[first[d]] to ports[first[d + 1]], rising.
struct WayTable {
  std::vector<uint32_t> first;
  std::vector<uint16_t> ports;

  bool operator==(const WayTable&) const = default;
};

class FabricRoutes {
 public:
  // `config` must have passed `validate` and outlive this. All links are used.
  explicit FabricRoutes(const FabricConfig& config);

  // Of `config.links`.
  void use(size_t link, bool used);
  // Looks for the shortest paths anew, over the links that are used.
  void recompute();
  // As of the last time. A destination that cannot be reached has none.
  WayTable of(size_t switch_index) const;

 private:
  struct Neighbour {
    uint32_t link;
    uint32_t there;  // the switch at its other end
    uint16_t port;   // that leads there
  };
  static constexpr uint32_t kApart = UINT32_MAX;

  void measure(size_t row);

  const FabricConfig& config_;
  std::vector<std::vector<Neighbour>> neighbours_;  // by switch, ports rising
  std::vector<bool> used_;
  std::vector<uint32_t> edges_;    // switches that have attachments
  std::vector<uint32_t> edge_of_;  // by switch, its place in `edges_`; kApart: it has no attachment
  std::vector<uint32_t> hops_;     // by edge and switch: links between the two
};

}  // namespace etloop
