// The seam between a core and a transport whose packets choose their paths. Stands where Transmission and PacketArrivals stand
// for RoCEv2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "core/packets/flows.h"
#include "core/port.h"
#include "core/request_sink.h"

namespace etloop {

class PacketExchange : public EndProgressSource, public RequestSink {
 public:
  virtual ~PacketExchange() = default;
  // Sends at most `budget` packets of data. True: there is more that could be sent now.
  virtual bool transmit(TxPort& port, Clock& clock, size_t budget) = 0;
  virtual void on_datagram(const Datagram& datagram, Nanos now) = 0;
  virtual void on_timer(uint32_t index, Nanos now) = 0;
  // Congestion control lets a queue pair send again.
  virtual void on_flow_timer(uint32_t index) = 0;
  // The port's receivers may grant credit again.
  virtual void on_credit_due(Nanos now) = 0;
  // Datagrams that are not of this run.
  virtual int64_t foreign() const = 0;
  virtual int64_t trimmed() const = 0;
};

}  // namespace etloop
