#include "cc/rate_series.h"

#include <algorithm>

namespace etloop {

RateSeries::RateSeries(Nanos interval_ns, size_t queue_pairs, size_t most_rows)
    : interval_ns_(std::max<Nanos>(interval_ns, 1)),
      queue_pairs_(queue_pairs),
      most_samples_(std::max<size_t>(2, most_rows / std::max<size_t>(queue_pairs, 1))) {
  rows_.reserve(most_samples_ * queue_pairs_);
}

CcRecord* RateSeries::sample(Nanos now) {
  if (rows_.size() == most_samples_ * queue_pairs_) thin_out();
  // Samples are at regular times; those missed while the host was busy are skipped.
  due_ns_ += interval_ns_ * ((now - due_ns_) / interval_ns_ + 1);
  rows_.resize(rows_.size() + queue_pairs_);
  return rows_.data() + rows_.size() - queue_pairs_;
}

void RateSeries::thin_out() {
  const size_t samples = rows_.size() / queue_pairs_;
  size_t kept = 0;
  for (size_t s = 0; s < samples; s += 2, ++kept) {
    std::copy_n(rows_.begin() + static_cast<ptrdiff_t>(s * queue_pairs_), queue_pairs_,
                rows_.begin() + static_cast<ptrdiff_t>(kept * queue_pairs_));
  }
  rows_.resize(kept * queue_pairs_);
  if (interval_ns_ < kLongestIntervalNs) interval_ns_ *= 2;
}

}  // namespace etloop
