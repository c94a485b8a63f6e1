// The one probe of a sender that may be under way: whether one is wanted, of what, and which was sent last. Pure.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop::multipath {

// Why a probe leaves: nothing is heard of the peer, a value is out of use, or the packet window is full and no packet under way
// makes the peer answer.
enum class ProbeReason : uint8_t { none, silence, value, full_window };

struct Probe {
  ProbeReason due = ProbeReason::none;
  uint16_t value_due = 0;  // that is to be probed, if it is for a value
  // Of the last one that was sent.
  ProbeReason reason = ProbeReason::none;
  uint16_t value = 0;
  uint16_t id = 0;
  Nanos sent_ns = -1;  // -1: it is answered

  // One is wanted or under way.
  bool is_open() const { return due != ProbeReason::none || sent_ns >= 0; }
  uint16_t next_id() const { return static_cast<uint16_t>(id + 1); }
  void sent(uint16_t by_value, Nanos now) {
    reason = due;
    value = by_value;
    ++id;
    sent_ns = now;
    due = ProbeReason::none;
  }
  // Whether the answer is that of the last one; once.
  bool answered(uint16_t answered_id) {
    if (sent_ns < 0 || answered_id != id) return false;
    sent_ns = -1;
    return true;
  }
};

}  // namespace etloop::multipath
