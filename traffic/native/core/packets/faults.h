// Fault injection at an endpoint: a port between the core and the real one that drops, duplicates, delays, corrupts or marks the
// packets selected by rules, and sends unsolicited answers. Pure and reproducible, independent of timing: chance is a function of
// seed, rule, queue pair and packet number.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"
#include "core/packets/fault_choice.h"
#include "core/port.h"
#include "plan/fault_rules.h"
#include "wire/packet_run.h"

namespace etloop {

class FaultInjector final : public TxPort {
 public:
  // Fields of an answer of this endpoint at the moment. A card reports its number only after the rules were loaded.
  struct Answering {
    uint32_t remote_qpn = 0;
    uint32_t expected_psn = 0;  // all packets before it have arrived
    uint32_t msn = 0;           // requests completed
  };

  FaultInjector(const std::vector<FaultRule>& rules, const ClassMarks& acknowledgements, const ClassMarks& notifications)
      : rules_(rules), acknowledgements_(acknowledgements), notifications_(notifications) {}

  // Add an endpoint; endpoints are numbered in this order, and every flow belongs to one.
  void add_end(const FaultEnd& end);

  // Send through this port at this time from now on, and send the held packets whose time has come. Return why the port did not
  // accept all of them.
  TxResult attach(TxPort& port, Nanos now);
  // Earliest release time of the held packets; kNever: none is held.
  Nanos next_due() const;

  TxResult send(const PacketRun& run) override;
  std::string last_error() const override { return port_->last_error(); }
  uint32_t max_run(uint32_t payload_bytes) const override { return port_->max_run(payload_bytes); }

  // Apply the rules to a received packet: return how many times to process it now, with `datagram` as changed.
  uint32_t on_received(uint32_t end, const wire::Packet& packet, const Answering& answering, Datagram& datagram, Nanos now);
  // Take a held received packet whose time has come. False: there is none.
  bool take_released(Nanos now, Datagram& datagram, std::vector<uint8_t>& content);

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
    PacketRun run;
    std::vector<uint8_t> payload;
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

  const FaultRule* select(uint32_t end, FaultChoice& choice, const wire::Packet& packet);
  void note(uint32_t end, FaultAction action);
  void apply(const FaultRule& rule, uint32_t end, PacketRun&& single);
  void enqueue(const PacketRun& run);
  void hold(const FaultRule& rule, uint32_t end, const PacketRun& run);
  void let_past(uint32_t end, uint32_t packets);
  bool waits_behind(uint32_t end) const;
  void pass_on(const PacketRun& run, uint32_t end, uint32_t from, uint32_t to);
  void release_due();
  TxResult flush();
  void answer_unasked(const FaultRule& rule, uint32_t end, const wire::Packet& packet, const Answering& answering);

  const std::vector<FaultRule>& rules_;
  ClassMarks acknowledgements_;
  ClassMarks notifications_;
  std::vector<EndState> ends_;
  std::vector<uint32_t> end_of_flow_;
  TxPort* port_ = nullptr;
  Nanos now_ = 0;
  std::deque<Outgoing> backlog_;  // sent before anything else
  std::vector<Outgoing> held_;
  std::deque<Incoming> held_received_;
  FaultCounts counts_{};
};

}  // namespace etloop
