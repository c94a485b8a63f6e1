// Why a port discards a datagram without acting on it, and how often it did. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "plan/records.h"

namespace etloop {

// In the order of their counters in PortRecord.
enum class Discard : uint8_t {
  bad_frame, wrong_address, too_short, bad_length, bad_version, unknown_opcode, reserved_bits, wrong_p_key, unknown_qp,
  wrong_peer, unasked, cut_off,
};
inline constexpr size_t kDiscardReasons = 12;

// The counters of a record that count reasons, the first of them first.
inline int64_t* discard_fields(PortRecord& record) {
  constexpr size_t kFirst = offsetof(PortRecord, foreign_bad_frame) / sizeof(int64_t);
  static_assert(offsetof(PortRecord, foreign_cut_off) / sizeof(int64_t) - kFirst == kDiscardReasons - 1);
  return reinterpret_cast<int64_t*>(&record) + kFirst;
}

class DiscardCounts {
 public:
  void note(Discard reason) { ++counts_[static_cast<size_t>(reason)]; }
  int64_t of(Discard reason) const { return counts_[static_cast<size_t>(reason)]; }
  int64_t total() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }
  void add_to(PortRecord& record) const {
    int64_t* fields = discard_fields(record);
    for (size_t i = 0; i < counts_.size(); ++i) fields[i] += counts_[i];
    record.foreign_datagrams += total();
  }

 private:
  std::array<int64_t, kDiscardReasons> counts_{};
};
static_assert(sizeof(DiscardCounts) == kDiscardReasons * sizeof(int64_t));  // rows of it are read as numbers

// The same where a record itself is counted in.
inline void discard(PortRecord& record, Discard reason) {
  ++discard_fields(record)[static_cast<size_t>(reason)];
  ++record.foreign_datagrams;
}

}  // namespace etloop
