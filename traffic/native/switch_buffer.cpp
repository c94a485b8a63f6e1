#include "switch_buffer.h"

#include <algorithm>

namespace etloop {

namespace {

int64_t scaled(int64_t bytes, int8_t alpha_log2) {
  bytes = std::max<int64_t>(bytes, 0);
  return alpha_log2 >= 0 ? bytes << alpha_log2 : bytes >> -alpha_log2;
}

}  // namespace

SwitchBuffer::SwitchBuffer(const SwitchConfig& config, SwitchCounters& counters)
    : config_(config), counters_(counters), shared_bytes_(config.buffer_bytes) {
  const auto ports = static_cast<int64_t>(config.ports.size());
  for (const PriorityGroupConfig& group : config.groups) {
    shared_bytes_ -= ports * (group.reserved_bytes + (group.lossless ? group.headroom_bytes : 0));
  }
  counters_.ports.resize(config.ports.size());
}

int64_t SwitchBuffer::group_shared(size_t port, size_t group) const {
  const GroupCounters& now = counters_.ports[port].groups[group];
  return std::max<int64_t>(0, now.current_bytes - now.headroom_bytes - config_.groups[group].reserved_bytes);
}

int64_t SwitchBuffer::group_threshold_bytes(size_t group) const {
  return scaled(free_shared_bytes(), config_.groups[group].alpha_log2);
}

int64_t SwitchBuffer::queue_threshold_bytes(size_t queue) const {
  return config_.queues[queue].reserved_bytes + scaled(free_shared_bytes(), config_.queues[queue].alpha_log2);
}

void SwitchBuffer::count_shared(size_t port, size_t group, int64_t before) {
  const int64_t after = group_shared(port, group);
  shared_used_bytes_ += after - before;
  GroupCounters& now = counters_.ports[port].groups[group];
  now.shared_watermark_bytes = std::max(now.shared_watermark_bytes, after);
}

Admission SwitchBuffer::admit(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
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

void SwitchBuffer::release(size_t in_port, size_t group, size_t out_port, size_t queue, int64_t bytes) {
  GroupCounters& in = counters_.ports[in_port].groups[group];
  const int64_t before = group_shared(in_port, group);
  // Headroom is given back first, whichever packet leaves: what stays takes the place of what left.
  in.headroom_bytes -= std::min(in.headroom_bytes, bytes);
  in.current_bytes -= bytes;
  counters_.ports[out_port].queues[queue].current_bytes -= bytes;
  counters_.pool_bytes -= bytes;
  count_shared(in_port, group, before);
}

bool SwitchBuffer::over_threshold(size_t port, size_t group) const {
  return counters_.ports[port].groups[group].headroom_bytes > 0 || group_shared(port, group) >= group_threshold_bytes(group);
}

bool SwitchBuffer::under_resume(size_t port, size_t group) const {
  if (counters_.ports[port].groups[group].headroom_bytes > 0) return false;
  const int64_t shared = group_shared(port, group);
  return shared == 0 || shared + config_.groups[group].resume_offset_bytes <= group_threshold_bytes(group);
}

}  // namespace etloop
