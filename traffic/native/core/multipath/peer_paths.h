// Path states of a port, per pair of local and peer address, because switches hash these and the entropy value. All queue pairs
// between two addresses share them, so that a dead path is detected once; a queue pair that uses a single path has its own.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "base/ip_address.h"
#include "multipath/path_states.h"
#include "plan/plan.h"

namespace etloop {

class PeerPaths {
 public:
  explicit PeerPaths(const MultipathSettings& params) : params_(params) {}

  // Paths from a local address (by index) to a peer over `planes` planes, created on first use with entropy values from
  // `first_port`. The reference stays valid.
  multipath::PathStates& to(uint16_t address, const IpAddress& peer_ip, uint16_t first_port, uint32_t planes) {
    const uint16_t own_port = params_.uet.order == DeliveryOrder::sent ? first_port : uint16_t{0};
    return paths_.try_emplace({address, peer_ip, own_port}, params_, first_port, planes).first->second;
  }

  // Paths that exist already; only for transports that spread packets over paths.
  multipath::PathStates& known(uint16_t address, const IpAddress& peer_ip) { return paths_.at({address, peer_ip, uint16_t{0}}); }

  // Set the planes of this end that are up, for transports whose peers do not report theirs.
  void set_planes(uint32_t up) {
    for (auto& [ends, paths] : paths_) paths.set_planes(up);
  }

 private:
  const MultipathSettings& params_;
  std::map<std::tuple<uint16_t, IpAddress, uint16_t>, multipath::PathStates> paths_;
};

}  // namespace etloop
