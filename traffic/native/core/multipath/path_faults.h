// Faults on purpose where packets choose their paths: what leaves or comes for an end is lost, repeated, held back, spoilt,
// marked or cut, for the packets that rules select, also those of one entropy value. Pure; the same for the same rules and
// packets.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"
#include "core/packets/fault_choice.h"
#include "core/port.h"
#include "plan/fault_rules.h"

namespace etloop {

// A packet as rules see it, whatever its headers.
struct SprayedPacket {
  FaultPackets kind = FaultPackets::any;  // data, clear_to_send, ack or nak; any: none of these, such as a probe
  int32_t entropy_value = -1;             // by its number between the two addresses; -1: not known
};

class PathFaults {
 public:
  // What becomes of a packet that came.
  struct Fate {
    uint32_t times = 1;  // it is handed on
    bool cut = false;    // as if a switch had trimmed it
  };

  explicit PathFaults(const std::vector<FaultRule>& rules) : rules_(rules) {}
  // Ends are numbered in the order they are added.
  void add_end(const FaultEnd& end);

  // Sends it through the port, or does with it what the first rule that selects it says.
  TxResult send(TxPort& port, uint32_t end, const SprayedPacket& packet, const BuiltPacket& built, Nanos now);
  // Send what is due of what was held back. Return `sent` if all of it left; else why the port did not take the rest, which
  // waits for the port.
  TxResult send_due(TxPort& port, Nanos now);
  // `datagram` as it came: it may be marked. What is held back is copied.
  Fate on_received(uint32_t end, const SprayedPacket& packet, Datagram& datagram, Nanos now);
  // A received packet whose time has come. False: there is none.
  bool take_released(Nanos now, Datagram& datagram, std::vector<uint8_t>& content);

  // When something that is held back is due; kNever: nothing is.
  Nanos next_due() const;
  // Return the number, from 0, of the rule that holds a packet which is due; -1: none does.
  int32_t due_rule(Nanos now) const;
  const FaultCounts& counts() const { return counts_; }
  int64_t count_of(uint32_t end) const { return ends_[end].done; }

 private:
  struct EndState {
    FaultEnd end;
    FaultChoice sent;
    FaultChoice received;
    int64_t done = 0;
  };
  struct Outgoing {
    BuiltPacket built;
    std::vector<uint8_t> headers;
    std::vector<uint8_t> payload;  // empty: the pattern
    Nanos due_ns = 0;
    const FaultRule* rule = nullptr;
    uint32_t end = 0;
    uint32_t behind = 0;  // packets of its end still to pass; 0: only the time counts
  };
  struct Incoming {
    Datagram datagram;
    std::vector<uint8_t> content;
    Nanos due_ns = 0;
    const FaultRule* rule = nullptr;
    uint32_t end = 0;
    uint32_t behind = 0;
  };

  void note(uint32_t end, FaultAction action);
  TxResult apply(const FaultRule& rule, TxPort& port, uint32_t end, const BuiltPacket& built, Nanos now);
  void hold(const FaultRule& rule, uint32_t end, const BuiltPacket& built, Nanos now);
  void release_due(Nanos now);

  const std::vector<FaultRule>& rules_;
  std::vector<EndState> ends_;
  std::vector<Outgoing> held_;
  std::vector<Outgoing> backlog_;  // due, and to be sent before anything else
  std::deque<Incoming> held_received_;
  FaultCounts counts_{};
};

}  // namespace etloop
