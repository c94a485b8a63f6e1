#include "virtual/egress_queue.h"

#include <algorithm>

namespace etloop {

int64_t EgressQueue::queued_bytes(Nanos now) {
  while (!waiting_.empty() && waiting_.front().departs_ns <= now) {
    queued_bytes_ -= waiting_.front().bytes;
    waiting_.pop_front();
  }
  return queued_bytes_;
}

bool EgressQueue::marks(int64_t queue_bytes, uint32_t draw) const {
  if (params_.mark_all_bytes == 0 || queue_bytes <= params_.mark_from_bytes) return false;
  if (queue_bytes >= params_.mark_all_bytes) return true;
  const int64_t above = queue_bytes - params_.mark_from_bytes;
  const int64_t range = params_.mark_all_bytes - params_.mark_from_bytes;
  return static_cast<int64_t>(draw) * range < params_.mark_per_million * above;
}

EgressQueue::Verdict EgressQueue::arrive(int64_t wire_bytes, Nanos now, uint32_t draw) {
  const int64_t queue = queued_bytes(now);
  Verdict verdict;
  if (queue + wire_bytes > params_.capacity_bytes) {
    ++counters_.dropped;
    return verdict;
  }
  verdict.admitted = true;
  verdict.mark = marks(queue, draw);
  verdict.departs_ns = line_.take(wire_bytes, params_.link_bps, now);
  waiting_.push_back({verdict.departs_ns, wire_bytes});
  queued_bytes_ += wire_bytes;
  ++counters_.packets;
  counters_.bytes += wire_bytes;
  counters_.marked += verdict.mark ? 1 : 0;
  counters_.deepest_bytes = std::max(counters_.deepest_bytes, queued_bytes_);
  verdict.hop = {verdict.departs_ns, static_cast<uint64_t>(params_.link_bps), static_cast<uint64_t>(counters_.bytes),
                 static_cast<uint64_t>(queue)};
  return verdict;
}

}  // namespace etloop
