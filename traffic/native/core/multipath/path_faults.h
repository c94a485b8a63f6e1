// Fault injection for transports that choose a path per packet: drops, duplicates, delays, corrupts, marks or trims packets
// selected by rules, also by entropy value. Pure and reproducible.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"
#include "core/packets/fault_choice.h"
#include "core/port.h"
#include "plan/fault_rules.h"

namespace etloop {

// The properties of a packet that rules match.
struct SprayedPacket {
  FaultPackets kind = FaultPackets::any;  // data, clear_to_send, ack or nak; any: none of these, such as a probe
  int32_t entropy_value = -1;             // its index between the two addresses; -1: unknown
};

class PathFaults {
 public:
  // Result for a received packet.
  struct Fate {
    uint32_t times = 1;  // how often to process it
    bool cut = false;    // treat it as trimmed by a switch
  };

  explicit PathFaults(const std::vector<FaultRule>& rules) : rules_(rules) {}
  // Add an endpoint; endpoints are numbered in this order.
  void add_end(const FaultEnd& end);

  // Send the packet, or apply the first rule that selects it.
  TxResult send(TxPort& port, uint32_t end, const SprayedPacket& packet, const BuiltPacket& built, Nanos now);
  // Send held packets whose time has come. Returns `sent` if all left, else why the port did not accept the rest, which waits
  // for the port.
  TxResult send_due(TxPort& port, Nanos now);
  // `datagram` may be marked. A held datagram is copied.
  Fate on_received(uint32_t end, const SprayedPacket& packet, Datagram& datagram, Nanos now);
  // Take a held received packet whose time has come. False: there is none.
  bool take_released(Nanos now, Datagram& datagram, std::vector<uint8_t>& content);

  // Earliest release time of the held packets; kNever: none is held.
  Nanos next_due() const;
  // Return the index of the rule that holds a packet whose time has come; -1: none.
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
    uint32_t behind = 0;  // packets of its endpoint that must overtake it; 0: only the time counts
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
  std::vector<Outgoing> backlog_;  // due; sent before anything else
  std::deque<Incoming> held_received_;
  FaultCounts counts_{};
};

}  // namespace etloop
