// How packets of MRC find their queue pair, what is said to peers that ask whether a path is there, and what they are told of the
// planes of a card.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <utility>
#include <vector>

#include "base/ip_address.h"
#include "core/multipath/exchange.h"
#include "core/multipath/plane_reports.h"
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
    wire::mrc::EndpointOp op{};
    uint16_t id = 0;
    uint16_t entropy = 0;
    uint16_t tx_timestamp = 0;
  };

  // An address of a peer, and its number among those that are told of planes.
  struct Peer {
    uint32_t qp = 0;  // one to it
    uint32_t number = 0;
  };

  bool transmit_strays(TxPort& port, Clock& clock) override;
  bool transmit_reports(TxPort& port, Clock& clock);
  void on_planes_changed(uint32_t up, Nanos now) override;
  void add_peers();
  void on_trimmed(const Datagram& datagram, Nanos now);
  void on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now);
  void on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram);

  std::map<std::pair<uint16_t, IpAddress>, Peer> peers_;  // by local address and theirs, on whatever plane
  std::vector<uint32_t> told_by_;                         // by number of a peer, a queue pair that leads to it
  PlaneReports reports_;
  std::vector<Reply> replies_;
};

}  // namespace etloop
