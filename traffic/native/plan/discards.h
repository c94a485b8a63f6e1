// Why a port discards a datagram without acting on it, and how often it did. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "plan/records.h"

namespace etloop {

// In the order of their counters in PortRecord. Up to cut_off a datagram does not belong to this run; the later values are for
// datagrams of a peer of the run that came too late or cannot be answered.
enum class Discard : uint8_t {
  bad_frame, wrong_address, too_short, bad_length, bad_version, unknown_opcode, reserved_bits, wrong_p_key, unknown_qp,
  wrong_peer, unasked, cut_off,
  late_request, late_ack, late_nak, late_control, late_trimmed,
};
inline constexpr size_t kForeignReasons = 12;
inline constexpr size_t kDiscardReasons = 17;

// The counters of a record that count reasons, the first of them first.
inline int64_t* discard_fields(PortRecord& record) {
  constexpr size_t kFirst = offsetof(PortRecord, foreign_bad_frame) / sizeof(int64_t);
  static_assert(offsetof(PortRecord, unclaimed_trimmed) / sizeof(int64_t) - kFirst == kDiscardReasons - 1);
  return reinterpret_cast<int64_t*>(&record) + kFirst;
}

class DiscardCounts {
 public:
  void note(Discard reason) { ++counts_[static_cast<size_t>(reason)]; }
  int64_t of(Discard reason) const { return counts_[static_cast<size_t>(reason)]; }
  int64_t total() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }
  int64_t foreign() const { return std::accumulate(counts_.begin(), counts_.begin() + kForeignReasons, int64_t{0}); }
  // Of packets of this run; what came before it began is no longer counted.
  void forget_late() { std::fill(counts_.begin() + kForeignReasons, counts_.end(), 0); }
  void add_to(PortRecord& record) const {
    int64_t* fields = discard_fields(record);
    for (size_t i = 0; i < counts_.size(); ++i) fields[i] += counts_[i];
    record.foreign_datagrams += foreign();
  }

 private:
  std::array<int64_t, kDiscardReasons> counts_{};
};
static_assert(sizeof(DiscardCounts) == kDiscardReasons * sizeof(int64_t));  // rows of it are read as numbers

// The same where a record itself is counted in.
inline void discard(PortRecord& record, Discard reason) {
  ++discard_fields(record)[static_cast<size_t>(reason)];
  if (static_cast<size_t>(reason) < kForeignReasons) ++record.foreign_datagrams;
}

}  // namespace etloop
