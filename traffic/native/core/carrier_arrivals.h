// Dispatches the events of carriers of whole messages (a NIC, or the flow-level network) to the lanes and probes concerned.
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
  // Collaborators; all of them outlive this.
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

  // Events from a card.
  void on_grant(uint32_t end, const ClearToSend& grant, Nanos now) override;
  void on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) override;
  void on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) override;
  void on_carried(uint32_t end, const WorkRequest& request, Nanos now) override;
  void on_carrier_fault(uint32_t end, const std::string& reason) override;

  // The flow-level network delivered a grant, a message or part of one, or its acknowledgement (MessageCarrier).
  void on_granted(int32_t connection, uint32_t tag, uint32_t index, Nanos now);
  void on_arrived(const CarriedMessage& message, Nanos now);
  void on_left(const CarriedMessage& message, Nanos now);
  void on_acknowledged(const CarriedMessage& message, Nanos now);
  // For prefetching their state.
  const Lanes& lanes() const { return lanes_; }

 private:
  const Connections& connections_;
  QueuePairs& queue_pairs_;
  CardEnds& cards_;
  Probing& probing_;
  Lanes& lanes_;
  Failure& failure_;
};

}  // namespace etloop
