// The seam between the message layer and a network card that has a reliable transport of its own: whole messages go
// down, and what became of them comes up. Beside it stand queue pairs of ours over packets (qp, core/port.h).
//
// An end is one end of one queue pair, by its index in the core. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "qp/work.h"
#include "wire/clear_to_send.h"

namespace etloop {

// Grants that a ring at a card's end holds: more than a connection has under way, by far.
inline constexpr uint32_t kCardRingSlots = 1024;
// Words at a receiving card that closing atomics are added to, of one connection: that of an op is by tag.
inline constexpr uint32_t kCardClosings = 1024;

// What the ends of a connection tell each other before the first message. Ends of ours know most of it from the plan.
struct Endpoint {
  int32_t connection = 0;  // row of the plan
  int32_t ordinal = 0;     // queue pair of the connection
  bool sends_data = false;
  uint32_t qpn = 0;
  uint64_t va = 0;         // sending end: where grants are written to; receiving end: where what needs no grant is
  uint32_t rkey = 0;
  uint64_t closing_va = 0;  // receiving end: its words for closing atomics, under the same key
};

struct EndSettings {
  int32_t connection = 0;
  int32_t ordinal = 0;
  bool sends_data = false;
  uint16_t address = 0;  // index of the port's address
  IpAddress peer_ip = {};
  uint8_t traffic_class = 0;
};

class CarrierSink {
 public:
  virtual ~CarrierSink() = default;
  virtual void on_grant(uint32_t end, const ClearToSend& grant, Nanos now) = 0;
  virtual void on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) = 0;
  // `added` to the word of a tag that was watched: all of its op is here.
  virtual void on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) = 0;
  virtual void on_carried(uint32_t end, const WorkRequest& request, Nanos now) = 0;
  virtual void on_carrier_fault(uint32_t end, const std::string& reason) = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Makes an end; ends are counted from 0 in the order they are made.
  virtual Result<void> add_end(const EndSettings& settings) = 0;
  virtual Endpoint endpoint(uint32_t end) const = 0;
  // Joins an end to its peer.
  virtual Result<void> connect(uint32_t end, const Endpoint& peer) = 0;
  virtual void post(uint32_t end, const WorkRequest& request) = 0;
  // Room for one granted message of at most `bytes` at a receiving end.
  virtual uint64_t room(uint32_t end, uint32_t bytes, uint32_t& rkey) = 0;
  // Tells once when the closing atomic of an op has come to a receiving end, the first of its connection.
  virtual void watch(uint32_t end, uint32_t tag) = 0;
};

}  // namespace etloop
