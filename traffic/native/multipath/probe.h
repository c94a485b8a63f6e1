// State of a sender's single probe: whether one is wanted, why, and the last one sent. Pure.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop::multipath {

// Reason of a probe: the peer is silent, a value is withdrawn, or the packet window is full and no packet in flight requests an
// answer.
enum class ProbeReason : uint8_t { none, silence, value, full_window };

struct Probe {
  ProbeReason due = ProbeReason::none;
  uint16_t value_due = 0;  // the value to probe, for a probe of a value
  // The last probe sent.
  ProbeReason reason = ProbeReason::none;
  uint16_t value = 0;
  uint16_t id = 0;
  Nanos sent_ns = -1;  // -1: answered

  // A probe is wanted or in flight.
  bool is_open() const { return due != ProbeReason::none || sent_ns >= 0; }
  uint16_t next_id() const { return static_cast<uint16_t>(id + 1); }
  void sent(uint16_t by_value, Nanos now) {
    reason = due;
    value = by_value;
    ++id;
    sent_ns = now;
    due = ProbeReason::none;
  }
  // Whether an answer is to the last probe; true at most once.
  bool answered(uint16_t answered_id) {
    if (sent_ns < 0 || answered_id != id) return false;
    sent_ns = -1;
    return true;
  }
};

}  // namespace etloop::multipath
