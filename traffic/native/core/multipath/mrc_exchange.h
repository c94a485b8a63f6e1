// How packets of MRC find their queue pair, and what is said to peers that ask whether a path is there.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <vector>

#include "base/ip_address.h"
#include "core/multipath/exchange.h"
#include "mrc/endpoint.h"

namespace etloop {

class MrcExchange final : public MultipathExchange<mrc::Endpoint> {
 public:
  // Once the queue pairs are open. `memory` outlives it.
  MrcExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory);

  void on_datagram(const Datagram& datagram, Nanos now) override;

 private:
  static constexpr size_t kMostReplies = 4096;
  struct Reply {
    uint32_t qp = 0;  // one to the same peer
    uint16_t id = 0;
    uint16_t entropy = 0;
    uint16_t tx_timestamp = 0;
  };

  bool transmit_strays(TxPort& port, Clock& clock) override;
  void on_trimmed(const Datagram& datagram, Nanos now);
  void on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now);
  void on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram);

  std::map<IpAddress, uint32_t> queue_pair_to_;  // one of those to each peer
  std::vector<Reply> replies_;
};

}  // namespace etloop
