// Computes the ports of every switch towards every attachment, without the links that are out of use: all shortest paths by
// number of links. traffic/topology/routes.py does the same before a run, for all links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace etloop {

struct FabricConfig;

// The ways of one switch: those to destination d are ports[first[d]] to ports[first[d + 1]], ascending.
struct WayTable {
  std::vector<uint32_t> first;
  std::vector<uint16_t> ports;

  bool operator==(const WayTable&) const = default;
};

class FabricRoutes {
 public:
  // `config` must have passed `validate` and outlive this. Initially all links are in use.
  explicit FabricRoutes(const FabricConfig& config);

  // Set whether a link of `config.links` is in use.
  void use(size_t link, bool used);
  // Recompute the shortest paths over the links in use.
  void recompute();
  // The ways of a switch as of the last `recompute`. An unreachable destination has none.
  WayTable of(size_t switch_index) const;

 private:
  struct Neighbour {
    uint32_t link;
    uint32_t there;  // switch at the other end
    uint16_t port;   // local port towards it
  };
  static constexpr uint32_t kApart = UINT32_MAX;

  void measure(size_t row);

  const FabricConfig& config_;
  std::vector<std::vector<Neighbour>> neighbours_;  // by switch, ascending by port
  std::vector<bool> used_;
  std::vector<uint32_t> edges_;    // switches with attachments
  std::vector<uint32_t> edge_of_;  // by switch: its index in `edges_`; kApart: no attachment
  std::vector<uint32_t> hops_;     // by edge and switch: distance in links
};

}  // namespace etloop
