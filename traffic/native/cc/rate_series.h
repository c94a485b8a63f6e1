// Time series of the rates and windows of queue pairs in bounded memory: regular samples; when the memory is full, every other
// sample is dropped and the interval doubles. So the whole run is covered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "plan/records.h"

namespace etloop {

class RateSeries {
 public:
  static constexpr size_t kMostRows = size_t{1} << 18;
  static constexpr Nanos kLongestIntervalNs = 3'600'000'000'000;

  // `queue_pairs` rows per sample.
  RateSeries(Nanos interval_ns, size_t queue_pairs, size_t most_rows = kMostRows);

  Nanos due_ns() const { return due_ns_; }
  void start(Nanos now) { due_ns_ = now; }
  // Return the rows of a new sample; the next sample is taken an interval later.
  CcRecord* sample(Nanos now);
  const std::vector<CcRecord>& rows() const { return rows_; }
  Nanos interval_ns() const { return interval_ns_; }

 private:
  void thin_out();

  Nanos interval_ns_;
  size_t queue_pairs_;
  size_t most_samples_;
  Nanos due_ns_ = kNever;
  std::vector<CcRecord> rows_;
};

}  // namespace etloop
