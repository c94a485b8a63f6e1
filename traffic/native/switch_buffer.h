// The shared buffer of a switch: who may keep how much, when senders are paused, when they may resume. Pure counting.
//
// Every packet is counted twice, as in SAI: against the priority group it came in by and the queue it goes out by. A
// priority group fills its reserve, then the shared buffer up to a threshold that shrinks as the shared buffer fills
// (dynamic threshold, Choudhury and Hahne 1998), then, if lossless, its headroom. A queue of lossy traffic is limited
// likewise. Model compared with alibaba-edu/High-Precision-Congestion-Control:simulation/src/point-to-point/model/switch-mmu.cc.
#pragma once

#include <cstdint>
#include <vector>

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
  int64_t group_shared(size_t port, size_t group) const;
  void count_shared(size_t port, size_t group, int64_t before);

  const SwitchConfig& config_;
  SwitchCounters& counters_;
  int64_t shared_bytes_;  // what is left beside reserves and headroom
  int64_t shared_used_bytes_ = 0;
};

}  // namespace etloop
