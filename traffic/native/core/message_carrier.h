// Carrier of whole messages between ranks where no packets are modelled (flow_level). A core hands messages over; deliveries are
// reported to its `carried()`, during the call or later.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop {

// A message, or the part of one that travels on one queue pair.
struct CarriedMessage {
  int64_t bytes;          // of this part
  int64_t message_bytes;  // of the whole
  int32_t connection;
  uint32_t lane;          // of the sending core
  uint32_t tag;
  uint32_t index;
  bool one_sided;
  bool reports_departure = false;  // `CarrierArrivals::on_left` is awaited
};

class MessageCarrier {
 public:
  virtual ~MessageCarrier() = default;
  // `queue_pair`: index in its connection; 0 if the connection has none. Messages of one queue pair stay in order.
  virtual void carry(const CarriedMessage& message, uint32_t queue_pair, Nanos now) = 0;
  // Carry a clear-to-send, against the direction of its connection.
  virtual void carry_grant(int32_t connection, uint32_t tag, uint32_t index, Nanos now) = 0;
};

}  // namespace etloop
