// What a port knows of the paths to each peer: one for every pair of addresses, as these and the entropy value are what switches
// choose paths by. All queue pairs between the two addresses share it, so that a path that died is found out once. Where a queue
// pair keeps to one path, it is its own.
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

  // Those from a local address (by its index) to a peer over as many planes, which the first one who asks begins at `first_port`.
  // Stays where it is.
  multipath::PathStates& to(uint16_t address, const IpAddress& peer_ip, uint16_t first_port, uint32_t planes) {
    const uint16_t own_port = params_.uet.order == DeliveryOrder::sent ? first_port : uint16_t{0};
    return paths_.try_emplace({address, peer_ip, own_port}, params_, first_port, planes).first->second;
  }

  // Of those that were asked for before; where no queue pair keeps to one path.
  multipath::PathStates& known(uint16_t address, const IpAddress& peer_ip) { return paths_.at({address, peer_ip, uint16_t{0}}); }

  // Planes of this end that are up, for transports whose peers say nothing of theirs.
  void set_planes(uint32_t up) {
    for (auto& [ends, paths] : paths_) paths.set_planes(up);
  }

 private:
  const MultipathSettings& params_;
  std::map<std::tuple<uint16_t, IpAddress, uint16_t>, multipath::PathStates> paths_;
};

}  // namespace etloop
