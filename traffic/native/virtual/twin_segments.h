// Outer headers of the twin's packets (micro segments): which flows have one, and the remaining destination of each packet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "virtual/twin_frames.h"
#include "wire/usid.h"

namespace etloop {

class TwinSegments {
 public:
  // Add the next flow, from a port to an address. Returns the extra bytes of its packets.
  uint32_t add_flow(const PlannedPort& from, const IpAddress& to) {
    const auto known = std::find_if(from.segments.begin(), from.segments.end(),
                                    [&](const usid::Route& route) { return route.to == to; });
    routes_.push_back(known == from.segments.end() ? nullptr : &*known);
    return static_cast<uint32_t>(routes_.back() == nullptr ? 0 : usid::kOuterHeaderBytes);
  }
  // Give a packet its outer header. False: its flow has none.
  bool put(uint32_t flow, uint32_t handle, uint16_t entropy) {
    if (routes_[flow] == nullptr) return false;
    if (carriers_.size() <= handle) carriers_.resize(2 * (size_t{handle} + 1));
    carriers_[handle] = usid::carrier_of(*routes_[flow], entropy);
    return true;
  }
  usid::Head head(uint32_t handle) const { return usid::head_of(carriers_[handle]); }
  usid::Head next(uint32_t handle) {
    usid::shift(carriers_[handle]);
    return head(handle);
  }
  bool is_for(const usid::End& end, uint32_t handle) const { return end.is_for(carriers_[handle]); }
  // The outer header of a packet, hashed as its flow.
  FiveTuple outer(const TwinFlow& flow, uint32_t handle) const {
    constexpr uint8_t kIpv6Inside = 41;
    return {flow.src_ip, carriers_[handle], kIpv6Inside, 0, 0};
  }
  HashedHeaders hashed(const TwinFlow& flow, uint32_t handle, const HashedHeaders& plain) const {
    HashedHeaders headers = plain;
    headers.inner = plain.outer;
    headers.outer = outer(flow, handle);
    return headers;
  }

 private:
  std::vector<const usid::Route*> routes_;  // by flow; nullptr: not encapsulated
  std::vector<IpAddress> carriers_;         // by packet: current outer destination
};

}  // namespace etloop
