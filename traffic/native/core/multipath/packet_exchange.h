// Interface between a core and a transport that chooses a path per packet. It takes the place of Transmission and PacketArrivals,
// which serve RoCEv2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/time.h"
#include "core/multipath/path_faults.h"
#include "core/packets/flows.h"
#include "core/port.h"
#include "core/request_sink.h"
#include "plan/discards.h"

namespace etloop {

class PacketExchange : public EndProgressSource, public RequestSink {
 public:
  virtual ~PacketExchange() = default;
  // Send at most `budget` packets of data. True: more can be sent now.
  virtual bool transmit(TxPort& port, Clock& clock, size_t budget) = 0;
  virtual void on_datagram(const Datagram& datagram, Nanos now) = 0;
  virtual void on_timer(uint32_t index, Nanos now) = 0;
  // Congestion control allows a queue pair to send again.
  virtual void on_flow_timer(uint32_t index) = 0;
  // The port's receivers may grant more credit.
  virtual void on_credit_due(Nanos now) = 0;
  // The run is over here: start no more requests, keep answering peers. True: earlier requests are still in flight.
  virtual bool rest() = 0;
  // Datagrams that were ignored, by reason.
  virtual const DiscardCounts& discards() const = 0;
  // The run begins: forget late packets of probes.
  virtual void forget_late() = 0;
  virtual int64_t trimmed() const = 0;

  // Set the fault injection of this port, before the run.
  void set_faults(std::unique_ptr<PathFaults> faults) { faults_ = std::move(faults); }
  // Process arrivals that fault rules held back until now.
  void release_held(Nanos now) {
    Datagram released;
    std::vector<uint8_t> content;
    while (faults_ != nullptr && faults_->take_released(now, released, content)) {
      bypasses_faults_ = true;
      on_datagram(released, now);
      bypasses_faults_ = false;
    }
  }

 protected:
  // Apply the fault rules to a packet received for an endpoint.
  PathFaults::Fate fate_of(uint32_t index, const SprayedPacket& packet, Datagram& datagram, Nanos now) {
    if (faults_ == nullptr || bypasses_faults_) return {};
    return faults_->on_received(index, packet, datagram, now);
  }

  std::unique_ptr<PathFaults> faults_;  // nullptr: no rule concerns this port

 private:
  bool bypasses_faults_ = false;  // bypass the fault rules: they were applied already
};

}  // namespace etloop
