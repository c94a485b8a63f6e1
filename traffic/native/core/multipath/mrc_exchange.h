// Receives MRC packets: finds their queue pair, answers path probes, and exchanges port status updates about the planes of a
// card.
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
  // Call after the queue pairs are open. `memory` outlives this.
  MrcExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory);

  void on_datagram(const Datagram& datagram, Nanos now) override;

 private:
  static constexpr size_t kMostReplies = 4096;
  struct Reply {
    uint32_t qp = 0;  // a queue pair to the same peer
    wire::mrc::EndpointOp op{};
    uint16_t id = 0;
    uint16_t entropy = 0;
    uint16_t tx_timestamp = 0;
  };

  // An address of a peer, and the peer's index in the plane reports.
  struct Peer {
    uint32_t qp = 0;  // a queue pair to it
    uint32_t number = 0;
  };

  bool transmit_strays(TxPort& port, Clock& clock) override;
  bool transmit_reports(TxPort& port, Clock& clock);
  void on_planes_changed(uint32_t up, Nanos now) override;
  void add_peers();
  void on_trimmed(const Datagram& datagram, Nanos now);
  void on_packet(uint32_t index, const wire::mrc::Packet& packet, const Datagram& datagram, Nanos now);
  void on_endpoint_packet(const wire::mrc::Packet& packet, const Datagram& datagram);

  std::map<std::pair<uint16_t, IpAddress>, Peer> peers_;  // by local and peer address, on any plane
  std::vector<uint32_t> report_qps_;                         // by index of a peer: a queue pair to it
  PlaneReports reports_;
  std::vector<Reply> replies_;
};

}  // namespace etloop
