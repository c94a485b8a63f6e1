// How packets of UET find their queue pair: by the number of a packet delivery context, and before it has one by the memory key;
// and what is said of packets that belong to none.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <utility>
#include <vector>

#include "base/ip_address.h"
#include "cc/credit_pacer.h"
#include "core/multipath/exchange.h"
#include "uet/endpoint.h"
#include "uet/pdc_ids.h"

namespace etloop {

class UetExchange final : public MultipathExchange<uet::Endpoint> {
 public:
  // Two in each role: one that is open, and the one before it, for what comes late.
  static constexpr uint32_t kPdcsOfAnEnd = 4;
  static constexpr uint32_t kMostQueuePairs = uet::PdcIds::kMost / kPdcsOfAnEnd;

  // Once the queue pairs are open, at most kMostQueuePairs. `memory` outlives it.
  UetExchange(const ExchangeParts& parts, std::pmr::memory_resource& memory);

  void on_datagram(const Datagram& datagram, Nanos now) override;
  void on_credit_due(Nanos now) override;

 private:
  static constexpr size_t kMostStrays = 4096;
  static constexpr uint32_t kNone = QueuePairs::kNone;
  struct Stray {
    uint32_t qp = 0;  // one to the same peer
    uint16_t value = 0;
    wire::uet::Nack nack;
  };

  bool transmit_strays(TxPort& port, Clock& clock) override;
  // kNone: of no end here.
  uint32_t owner(uint16_t pdc, uet::PdcRole role, const Datagram& datagram) const;
  // Counts a packet for the context of a number that has none in this role: under `late` if an end of its sender's peer had that
  // number in this run and counts near `psn`, else as foreign.
  void note_unclaimed(Discard late, uet::PdcRole role, uint16_t pdc, uint32_t psn, const Datagram& datagram);
  // Why no end is opened by a message.
  Discard why_not_opened(const wire::uet::StandardRequest& message) const;
  // The end whose requester an answer is for; kNone: it is for none, and counted.
  uint32_t asker(uint16_t pdc, uint32_t psn, Discard late, const Datagram& datagram);
  // Counts a packet that was cut and is not asked for again.
  void note_cut(const Datagram& datagram);
  uint32_t opened_by(const wire::uet::StandardRequest& message, const Datagram& datagram) const;
  uint32_t end_of(const wire::uet::Packet& packet, const Datagram& datagram) const;
  void dispatch(const wire::uet::Packet& packet, const Datagram& datagram, Nanos now);
  void on_trimmed(const Datagram& datagram, Nanos now);
  void on_request(const wire::uet::Request& request, const wire::uet::Packet& packet, const Datagram& datagram, Nanos now);
  void on_control(const wire::uet::Control& control, const Datagram& datagram, Nanos now);
  void on_planes_changed(uint32_t up, Nanos now) override;
  void on_path_measured(uint32_t index, Nanos round_trip_ns) override;
  uint64_t port_bps() const;
  uint64_t granted_bps() const { return port_bps() / 1'000'000 * plan_.transport.multipath.uet.credit.share_per_million; }
  // One of those to the peer that it came from; kNone: nobody's.
  uint32_t queue_pair_to(const Datagram& datagram) const;
  // The end whose context a peer opened by that number; kNone: nobody's.
  uint32_t opened_as(uint16_t pdc, const Datagram& datagram) const;
  // An end needs so much credit in all, or lost a packet that it had credit for.
  void note_need(uint32_t index, const wire::uet::Request& request, bool lost, Nanos now);
  void arm_credit();
  void on_credit(const wire::uet::Control& control, const Datagram& datagram, Nanos now);
  void answer_stray(const wire::uet::Request& request, wire::uet::NackCode code, const Datagram& datagram);

  uet::PdcIds ids_;
  std::map<std::pair<uint16_t, IpAddress>, uint32_t> queue_pair_to_;  // by local address and theirs, on whatever plane
  std::map<std::pair<uint32_t, uint16_t>, uint32_t> opened_;  // by one of those to the peer and its number: targets of SYNs
  std::vector<Stray> strays_;
  CreditPacer credit_;
  Nanos credit_event_ns_ = kNever;
};

}  // namespace etloop
