// The seam between a core and a transport whose packets choose their paths. Stands where Transmission and PacketArrivals stand
// for RoCEv2.
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
  // Sends at most `budget` packets of data. True: there is more that could be sent now.
  virtual bool transmit(TxPort& port, Clock& clock, size_t budget) = 0;
  virtual void on_datagram(const Datagram& datagram, Nanos now) = 0;
  virtual void on_timer(uint32_t index, Nanos now) = 0;
  // Congestion control lets a queue pair send again.
  virtual void on_flow_timer(uint32_t index) = 0;
  // The port's receivers may grant credit again.
  virtual void on_credit_due(Nanos now) = 0;
  // The run is over here. Peers are still answered, and nothing is begun that they would have to answer. True: something of
  // before is under way to a peer that it answers.
  virtual bool rest() = 0;
  // Datagrams that were not acted on.
  virtual const DiscardCounts& discards() const = 0;
  // The run begins: what probes left is no part of it.
  virtual void forget_late() = 0;
  virtual int64_t trimmed() const = 0;

  // What this port does wrong on purpose, before the run.
  void set_faults(std::unique_ptr<PathFaults> faults) { faults_ = std::move(faults); }
  // What was received and held back, and is due now, is taken in.
  void release_held(Nanos now) {
    Datagram released;
    std::vector<uint8_t> content;
    while (faults_ != nullptr && faults_->take_released(now, released, content)) {
      taken_as_is_ = true;
      on_datagram(released, now);
      taken_as_is_ = false;
    }
  }

 protected:
  // Of a packet that came for an end: what becomes of it.
  PathFaults::Fate fate_of(uint32_t index, const SprayedPacket& packet, Datagram& datagram, Nanos now) {
    if (faults_ == nullptr || taken_as_is_) return {};
    return faults_->on_received(index, packet, datagram, now);
  }

  std::unique_ptr<PathFaults> faults_;  // nullptr: no rule concerns this port

 private:
  bool taken_as_is_ = false;  // faults had their say
};

}  // namespace etloop
