// The shared buffer of a switch: admission, and thresholds for pausing and resuming senders. Pure counting.
//
// Every packet is counted twice, as in SAI: in its ingress priority group and in its egress queue. A priority group fills its
// reserve, then the shared buffer up to a threshold that shrinks as the shared buffer fills (dynamic threshold, Choudhury and
// Hahne 1998), then, if lossless, its headroom, which may come from a common pool. A queue of lossy traffic is limited in the
// same way. Compared with alibaba-edu/High-Precision-Congestion-Control:simulation/src/point-to-point/model/switch-mmu.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "switch/switch_counters.h"

namespace etloop {

enum class Admission : uint8_t { admitted, group_full, queue_full };

// The counters that every packet changes: of the ingress priority group, and of the egress queue of the same number. The exported
// counters spread over eight cache lines.
struct alignas(kLineBytes) LaneUse {
  int64_t queue_bytes = 0;
  int64_t queue_watermark_bytes = 0;
  int64_t sent_packets = 0;
  int64_t sent_bytes = 0;
  int64_t group_bytes = 0;
  int64_t headroom_bytes = 0;
  int64_t shared_watermark_bytes = 0;
  int64_t headroom_watermark_bytes = 0;
};
static_assert(sizeof(LaneUse) == kLineBytes);

class SwitchBuffer {
 public:
  explicit SwitchBuffer(const SwitchConfig& config);

  Admission admit(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes);
  void release(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes);

  // Whether senders to this group should be paused, and whether they may resume. Neither: keep the current state.
  bool over_threshold(size_t port, size_t group) const;
  bool under_resume(size_t port, size_t group) const;

  // The rules of a port. Most switches have one set for all ports, which is found without a look at the port.
  const PortRules& rules(size_t port) const { return rules_.empty() ? usual_ : *rules_[port]; }
  int64_t free_shared_bytes() const { return shared_bytes_ - shared_used_bytes_; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t watermark_bytes() const { return watermark_bytes_; }
  // Reset the counters; watermarks restart at the current use.
  void begin_counting();
  LaneUse& lane(size_t port, size_t number) { return lanes_[port * kPriorities + number]; }
  const LaneUse& lane(size_t port, size_t number) const { return lanes_[port * kPriorities + number]; }

 private:
  int64_t threshold_bytes(const PriorityGroupConfig& rule) const { return scaled(free_shared_bytes(), rule.alpha_log2); }
  int64_t threshold_bytes(const QueueConfig& rule) const {
    return rule.reserved_bytes + scaled(free_shared_bytes(), rule.alpha_log2);
  }
  static int64_t scaled(int64_t bytes, int8_t alpha_log2);
  int64_t group_shared(size_t port, size_t group) const;
  void count_shared(size_t port, size_t group, int64_t before);

  const PortRules& usual_;
  std::vector<const PortRules*> rules_;  // by port; empty: those of the switch at all ports
  std::vector<LaneUse> lanes_;  // by port, by number
  int64_t shared_bytes_;  // buffer without reserves and headroom
  int64_t shared_used_bytes_ = 0;
  int64_t headroom_left_bytes_;  // free part of the common headroom pool
  int64_t used_bytes_ = 0;
  int64_t watermark_bytes_ = 0;
};

// Called several times per packet at every switch: inline.

inline int64_t SwitchBuffer::scaled(int64_t bytes, int8_t alpha_log2) {
  bytes = std::max<int64_t>(bytes, 0);
  return alpha_log2 >= 0 ? bytes << alpha_log2 : bytes >> -alpha_log2;
}

inline int64_t SwitchBuffer::group_shared(size_t port, size_t group) const {
  const LaneUse& now = lane(port, group);
  return std::max<int64_t>(0, now.group_bytes - now.headroom_bytes - rules(port).groups[group].reserved_bytes);
}

inline void SwitchBuffer::count_shared(size_t port, size_t group, int64_t before) {
  const int64_t after = group_shared(port, group);
  shared_used_bytes_ += after - before;
  LaneUse& now = lane(port, group);
  now.shared_watermark_bytes = std::max(now.shared_watermark_bytes, after);
}

inline Admission SwitchBuffer::admit(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
  const PriorityGroupConfig& rule = rules(in_port).groups[group];
  LaneUse& in = lane(in_port, group);
  LaneUse& out = lane(out_port, queue);
  const int64_t before = group_shared(in_port, group);
  const int64_t in_reserve = std::clamp<int64_t>(rule.reserved_bytes - (in.group_bytes - in.headroom_bytes), 0, bytes);
  const int64_t wanted = bytes - in_reserve;
  int64_t into_headroom = 0;
  // The shared buffer is finite whatever alpha is: a threshold above the free bytes does not enlarge it.
  const bool fits = wanted == 0 || (before + wanted <= threshold_bytes(rule) && wanted <= free_shared_bytes());
  if (!fits) {
    if (!rule.lossless || in.headroom_bytes + bytes > rule.headroom_bytes) return Admission::group_full;
    if (bytes > headroom_left_bytes_) return Admission::group_full;
    into_headroom = bytes;
  }
  if (!rule.lossless && out.queue_bytes + bytes > threshold_bytes(rules(out_port).queues[queue])) return Admission::queue_full;
  in.group_bytes += bytes;
  in.headroom_bytes += into_headroom;
  headroom_left_bytes_ -= into_headroom;
  in.headroom_watermark_bytes = std::max(in.headroom_watermark_bytes, in.headroom_bytes);
  out.queue_bytes += bytes;
  out.queue_watermark_bytes = std::max(out.queue_watermark_bytes, out.queue_bytes);
  used_bytes_ += bytes;
  watermark_bytes_ = std::max(watermark_bytes_, used_bytes_);
  count_shared(in_port, group, before);
  return Admission::admitted;
}

inline void SwitchBuffer::release(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
  LaneUse& in = lane(in_port, group);
  const int64_t before = group_shared(in_port, group);
  // Headroom is released first, whichever packet leaves: remaining packets move to the shared buffer.
  const int64_t headroom_freed = std::min(in.headroom_bytes, bytes);
  in.headroom_bytes -= headroom_freed;
  headroom_left_bytes_ += headroom_freed;
  in.group_bytes -= bytes;
  lane(out_port, queue).queue_bytes -= bytes;
  used_bytes_ -= bytes;
  count_shared(in_port, group, before);
}

inline bool SwitchBuffer::over_threshold(size_t port, size_t group) const {
  return lane(port, group).headroom_bytes > 0 || group_shared(port, group) >= threshold_bytes(rules(port).groups[group]);
}

inline bool SwitchBuffer::under_resume(size_t port, size_t group) const {
  if (lane(port, group).headroom_bytes > 0) return false;
  const int64_t shared = group_shared(port, group);
  const PriorityGroupConfig& rule = rules(port).groups[group];
  return shared == 0 || shared + rule.resume_offset_bytes <= threshold_bytes(rule);
}

}  // namespace etloop
