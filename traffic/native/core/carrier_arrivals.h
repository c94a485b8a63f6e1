// What carriers of whole messages bring - a network card, or a network that makes no packets - handed to the lanes and probes
// that it is for.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "core/card_ends.h"
#include "core/carrier.h"
#include "core/connections.h"
#include "core/failure.h"
#include "core/lanes.h"
#include "core/message_carrier.h"
#include "core/packets/probing.h"
#include "core/packets/queue_pairs.h"
#include "qp/work.h"
#include "wire/clear_to_send.h"

namespace etloop {

class CarrierArrivals final : public CarrierSink {
 public:
  // What it works with; all of it outlives it.
  struct Parts {
    const Connections& connections;
    QueuePairs& queue_pairs;
    CardEnds& cards;
    Probing& probing;
    Lanes& lanes;
    Failure& failure;
  };
  explicit CarrierArrivals(const Parts& parts)
      : connections_(parts.connections),
        queue_pairs_(parts.queue_pairs),
        cards_(parts.cards),
        probing_(parts.probing),
        lanes_(parts.lanes),
        failure_(parts.failure) {}

  // From a card.
  void on_grant(uint32_t end, const ClearToSend& grant, Nanos now) override;
  void on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) override;
  void on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) override;
  void on_carried(uint32_t end, const WorkRequest& request, Nanos now) override;
  void on_carrier_fault(uint32_t end, const std::string& reason) override;

  // The network has brought a grant, a message or part of one, and the acknowledgement of it, to its end (MessageCarrier).
  void on_granted(int32_t connection, uint32_t tag, uint32_t index, Nanos now);
  void on_arrived(const CarriedMessage& message, Nanos now);
  void on_acknowledged(const CarriedMessage& message, Nanos now);

 private:
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  CardEnds& cards_;
  Probing& probing_;
  Lanes& lanes_;
  Failure& failure_;
};

}  // namespace etloop
