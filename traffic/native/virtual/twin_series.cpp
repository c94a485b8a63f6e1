#include "virtual/twin_series.h"

#include <algorithm>

namespace etloop {

namespace {

constexpr Nanos kLongestIntervalNs = 3'600'000'000'000;

bool used(const SwitchPortCounters& port, size_t lane) {
  const QueueCounters& queue = port.queues[lane];
  const GroupCounters& group = port.groups[lane];
  return queue.watermark_bytes > 0 || queue.dropped_packets > 0 || group.shared_watermark_bytes > 0 ||
         group.dropped_packets > 0 || port.pfc_rx[lane] > 0 || port.pfc_tx[lane] > 0;
}

}  // namespace

TwinSeries::TwinSeries(const SoftFabric& fabric, const FabricConfig& config, Nanos interval_ns, size_t most_rows)
    : fabric_(fabric),
      config_(config),
      interval_ns_(interval_ns),
      most_rows_(most_rows),
      due_ns_(interval_ns > 0 ? interval_ns : kNever) {}

void TwinSeries::sample() {
  for (size_t s = 0; s < config_.switches.size(); ++s) {
    const SwitchModel& model = fabric_.model(s);
    for (size_t p = 0; p < config_.switches[s].ports.size(); ++p) {
      const SwitchPortCounters port = model.counted(p);
      for (size_t lane = 0; lane < kPriorities; ++lane) {
        if (!used(port, lane)) continue;
        const QueueCounters& queue = port.queues[lane];
        const GroupCounters& group = port.groups[lane];
        rows_.push_back({due_ns_, queue.current_bytes, group.current_bytes, group.headroom_bytes, queue.packets, queue.bytes,
                         queue.ecn_marked_packets, queue.dropped_packets + group.dropped_packets, queue.trimmed_packets,
                         port.pfc_rx[lane], port.pfc_tx[lane], model.paused_ns(p, lane, due_ns_),
                         static_cast<int32_t>(s), static_cast<uint16_t>(p), static_cast<uint16_t>(lane)});
      }
    }
  }
  due_ns_ += interval_ns_;
  while (rows_.size() > most_rows_ && interval_ns_ < kLongestIntervalNs) thin_out();
}

// Samples are at multiples of the interval; drop those at odd ones.
void TwinSeries::thin_out() {
  interval_ns_ *= 2;
  std::erase_if(rows_, [&](const LaneSample& row) { return row.time_ns % interval_ns_ != 0; });
  due_ns_ = (due_ns_ + interval_ns_ - 1) / interval_ns_ * interval_ns_;
}

}  // namespace etloop
