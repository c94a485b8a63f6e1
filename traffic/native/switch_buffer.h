// The shared buffer of a switch: who may keep how much, when senders are paused, when they may resume. Pure counting.
//
// Every packet is counted twice, as in SAI: against the priority group it came in by and the queue it goes out by. A
// priority group fills its reserve, then the shared buffer up to a threshold that shrinks as the shared buffer fills
// (dynamic threshold, Choudhury and Hahne 1998), then, if lossless, its headroom. A queue of lossy traffic is limited
// likewise. Model compared with alibaba-edu/High-Precision-Congestion-Control:simulation/src/point-to-point/model/switch-mmu.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "switch_counters.h"

namespace etloop {

enum class Admission : uint8_t { admitted, group_full, queue_full };

class SwitchBuffer {
 public:
  SwitchBuffer(const SwitchConfig& config, SwitchCounters& counters);

  Admission admit(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes);
  void release(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes);

  // Whether senders to this group should be paused, and whether they may go on. Neither: leave it as it is.
  bool over_threshold(size_t port, size_t group) const;
  bool under_resume(size_t port, size_t group) const;

  int64_t group_threshold_bytes(size_t group) const;
  int64_t queue_threshold_bytes(size_t queue) const;
  int64_t free_shared_bytes() const { return shared_bytes_ - shared_used_bytes_; }
  int64_t used_bytes() const { return counters_.pool_bytes; }

 private:
  static int64_t scaled(int64_t bytes, int8_t alpha_log2);
  int64_t group_shared(size_t port, size_t group) const;
  void count_shared(size_t port, size_t group, int64_t before);

  const SwitchConfig& config_;
  SwitchCounters& counters_;
  int64_t shared_bytes_;  // what is left beside reserves and headroom
  int64_t shared_used_bytes_ = 0;
};

// Asked several times for every packet at every switch: all of it is here, to be inlined.

inline int64_t SwitchBuffer::scaled(int64_t bytes, int8_t alpha_log2) {
  bytes = std::max<int64_t>(bytes, 0);
  return alpha_log2 >= 0 ? bytes << alpha_log2 : bytes >> -alpha_log2;
}

inline int64_t SwitchBuffer::group_shared(size_t port, size_t group) const {
  const GroupCounters& now = counters_.ports[port].groups[group];
  return std::max<int64_t>(0, now.current_bytes - now.headroom_bytes - config_.groups[group].reserved_bytes);
}

inline int64_t SwitchBuffer::group_threshold_bytes(size_t group) const {
  return scaled(free_shared_bytes(), config_.groups[group].alpha_log2);
}

inline int64_t SwitchBuffer::queue_threshold_bytes(size_t queue) const {
  return config_.queues[queue].reserved_bytes + scaled(free_shared_bytes(), config_.queues[queue].alpha_log2);
}

inline void SwitchBuffer::count_shared(size_t port, size_t group, int64_t before) {
  const int64_t after = group_shared(port, group);
  shared_used_bytes_ += after - before;
  GroupCounters& now = counters_.ports[port].groups[group];
  now.shared_watermark_bytes = std::max(now.shared_watermark_bytes, after);
}

inline Admission SwitchBuffer::admit(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
  const PriorityGroupConfig& rule = config_.groups[group];
  GroupCounters& in = counters_.ports[in_port].groups[group];
  QueueCounters& out = counters_.ports[out_port].queues[queue];
  const int64_t before = group_shared(in_port, group);
  const int64_t in_reserve = std::clamp<int64_t>(rule.reserved_bytes - (in.current_bytes - in.headroom_bytes), 0, bytes);
  const int64_t wanted = bytes - in_reserve;
  int64_t into_headroom = 0;
  // The pool is finite whatever alpha says: a threshold above what is free does not make it larger.
  const bool fits = wanted == 0 || (before + wanted <= group_threshold_bytes(group) && wanted <= free_shared_bytes());
  if (!fits) {
    if (!rule.lossless || in.headroom_bytes + bytes > rule.headroom_bytes) return Admission::group_full;
    into_headroom = bytes;
  }
  if (!rule.lossless && out.current_bytes + bytes > queue_threshold_bytes(queue)) return Admission::queue_full;
  in.current_bytes += bytes;
  in.headroom_bytes += into_headroom;
  in.headroom_watermark_bytes = std::max(in.headroom_watermark_bytes, in.headroom_bytes);
  out.current_bytes += bytes;
  out.watermark_bytes = std::max(out.watermark_bytes, out.current_bytes);
  counters_.pool_bytes += bytes;
  counters_.pool_watermark_bytes = std::max(counters_.pool_watermark_bytes, counters_.pool_bytes);
  count_shared(in_port, group, before);
  return Admission::admitted;
}

inline void SwitchBuffer::release(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
  GroupCounters& in = counters_.ports[in_port].groups[group];
  const int64_t before = group_shared(in_port, group);
  // Headroom is given back first, whichever packet leaves: what stays takes the place of what left.
  in.headroom_bytes -= std::min(in.headroom_bytes, bytes);
  in.current_bytes -= bytes;
  counters_.ports[out_port].queues[queue].current_bytes -= bytes;
  counters_.pool_bytes -= bytes;
  count_shared(in_port, group, before);
}

inline bool SwitchBuffer::over_threshold(size_t port, size_t group) const {
  return counters_.ports[port].groups[group].headroom_bytes > 0 || group_shared(port, group) >= group_threshold_bytes(group);
}

inline bool SwitchBuffer::under_resume(size_t port, size_t group) const {
  if (counters_.ports[port].groups[group].headroom_bytes > 0) return false;
  const int64_t shared = group_shared(port, group);
  return shared == 0 || shared + config_.groups[group].resume_offset_bytes <= group_threshold_bytes(group);
}

}  // namespace etloop
