// Interface between the message layer and a NIC with its own reliable transport: whole messages go down, completions come up. The
// alternative is the engine's own transport over packets (qp, core/port.h).
//
// An end is one end of a queue pair, by its index in the core. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "qp/work.h"
#include "wire/clear_to_send.h"

namespace etloop {

// Slots of the grant ring at a card's end; a connection never has as many grants in flight.
inline constexpr uint32_t kCardRingSlots = 1024;
// Words per connection at a receiving card that closing atomics are added to; an op's word is selected by its tag.
inline constexpr uint32_t kCardClosings = 1024;

// One end of a connection as it is described to the other end before the first message. With the engine's own transport most
// of it follows from the plan.
struct Endpoint {
  int32_t connection = 0;  // row of the plan
  int32_t ordinal = 0;     // queue pair of the connection
  bool sends_data = false;
  uint32_t qpn = 0;
  uint64_t va = 0;         // sending end: address for grants; receiving end: address for data sent without a grant
  uint32_t rkey = 0;
  uint64_t closing_va = 0;  // receiving end: its words for closing atomics, under the same rkey
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
  // The closing atomic added `added` to the watched word of a tag: all data of its op has arrived.
  virtual void on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) = 0;
  virtual void on_carried(uint32_t end, const WorkRequest& request, Nanos now) = 0;
  virtual void on_carrier_fault(uint32_t end, const std::string& reason) = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Create an end; ends are numbered from 0 in creation order.
  virtual Result<void> add_end(const EndSettings& settings) = 0;
  virtual Endpoint endpoint(uint32_t end) const = 0;
  // Connect an end to its peer.
  virtual Result<void> connect(uint32_t end, const Endpoint& peer) = 0;
  virtual void post(uint32_t end, const WorkRequest& request) = 0;
  // Reserve memory for one granted message of at most `bytes` at a receiving end.
  virtual uint64_t room(uint32_t end, uint32_t bytes, uint32_t& rkey) = 0;
  // Report once when the closing atomic of an op has arrived at a receiving end, the first of its connection.
  virtual void watch(uint32_t end, uint32_t tag) = 0;
};

}  // namespace etloop
