// Reads the header fields of pooled frames that switches need in addition to SwitchFrame.
#pragma once

#include <algorithm>

#include "switch/frame_pool.h"
#include "switch/soft_fabric.h"

namespace etloop {

// Whether a switch of the fabric forwards packets to this address by micro segments.
inline bool carries_segments(const FabricConfig& fabric, const IpAddress& destination) {
  const usid::Head head = usid::head_of(destination);
  return std::any_of(fabric.switches.begin(), fabric.switches.end(),
                     [&](const SwitchConfig& one) { return one.usids.is_in_block(head); });
}

class PooledFrames : public FabricSink {
 public:
  PooledFrames(size_t frame_bytes, int64_t limit_bytes) : pool(frame_bytes, limit_bytes) {}

  void release(const SwitchFrame& frame) override { pool.give(frame.handle); }
  uint64_t hash_key(const SwitchFrame& frame, HashFields fields) override {
    const std::span<const uint8_t> bytes = pool.frame(frame.handle);
    return etloop::hash_key(soft::read_hashed(bytes, soft::read_headers(bytes)), fields);
  }
  usid::Head segment_of(const SwitchFrame& frame) override {
    return usid::head_of(soft::ipv6_destination(pool.frame(frame.handle), pool.stored(frame.handle).ip_at));
  }
  usid::Head next_segment(const SwitchFrame& frame) override {
    const std::span<uint8_t> bytes = pool.frame(frame.handle);
    const size_t ip_at = pool.stored(frame.handle).ip_at;
    IpAddress carrier = soft::ipv6_destination(bytes, ip_at);
    usid::shift(carrier);
    soft::set_ipv6_destination(bytes, ip_at, carrier);
    return usid::head_of(carrier);
  }

  FramePool pool;
};

}  // namespace etloop
