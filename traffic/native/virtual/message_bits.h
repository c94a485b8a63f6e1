// What messages and their answers hold the links of a way for, with all headers of their transport. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/flow_controls.h"
#include "core/message_carrier.h"
#include "plan/plan.h"
#include "wire/mrc.h"
#include "wire/uet.h"
#include "wire/wire.h"

namespace etloop {

class MessageBits {
 public:
  // `plan` outlives this.
  explicit MessageBits(const EnginePlan& plan) : plan_(plan) {
    for (const PlannedRank& rank : plan.ranks) {
      const auto port = static_cast<size_t>(rank.port);
      Headers headers = headers_of(plan_of(plan, port).transport.kind);
      headers.every_packet += kLinkBytesIpv4 + plan.ports[port].around_bytes();
      const auto number = static_cast<size_t>(rank.rank);
      if (number >= of_rank_.size()) of_rank_.resize(number + 1, Headers{0, 0});
      of_rank_[number] = headers;
    }
  }

  // Return the bits of all packets of a message; inside a host the bare bytes.
  int64_t of(const CarriedMessage& message) const { return of(message.connection, message.bytes); }

  // Return the bits of the largest packet of a message; inside a host there are no packets.
  int64_t of_packet(const CarriedMessage& message) const {
    if (connection(message.connection).path != Path::wire) return 0;
    return of(message.connection, std::min<int64_t>(message.bytes, plan_.transport.path_mtu_bytes));
  }

  // Return the bits of a clear-to-send, and of an acknowledgement: about, as transports differ by a few bytes.
  int64_t of_grant(int32_t number) const { return of_datagram(number, kGrantBytes); }
  int64_t of_answer(int32_t number) const { return of_datagram(number, kAnswerBytes); }

 private:
  // In UDP: headers of a request with the 64 bytes of a grant, and of an acknowledgement with its state.
  static constexpr int64_t kGrantBytes = 96;
  static constexpr int64_t kAnswerBytes = 32;

  struct Headers {
    int64_t every_packet;
    int64_t first_and_last;  // of a message
  };

  static constexpr Headers headers_of(TransportKind kind) {
    switch (kind) {
      case TransportKind::roce: return {wire::kBthBytes + wire::kIcrcBytes, wire::kRethBytes + wire::kImmBytes};
      case TransportKind::mrc: {
        constexpr size_t kWriteBytes =
            wire::mrc::Bth::kBytes + wire::mrc::Meth::kBytes + wire::mrc::Reth::kBytes + wire::mrc::kIcrcBytes;
        return {kWriteBytes, wire::kImmBytes};
      }
      case TransportKind::uet: return {wire::uet::Request::kBytes + wire::uet::StandardRequest::kBytes, 0};
    }
    return {0, 0};
  }

  const PlannedConnection& connection(int32_t number) const { return plan_.connections[static_cast<size_t>(number)]; }

  int64_t of(int32_t number, int64_t bytes) const {
    const PlannedConnection& c = connection(number);
    if (c.path != Path::wire) return bytes * 8;
    const int64_t mtu = plan_.transport.path_mtu_bytes;
    const int64_t packets = std::max<int64_t>((bytes + mtu - 1) / mtu, 1);
    const Headers& headers = of_rank_[static_cast<size_t>(c.src_rank)];
    const int64_t around = headers.every_packet + (c.dst_ip.is_v4() ? 0 : kLinkBytesIpv6 - kLinkBytesIpv4);
    return (bytes + packets * around + headers.first_and_last) * 8;
  }

  int64_t of_datagram(int32_t number, int64_t datagram_bytes) const {
    const PlannedConnection& c = connection(number);
    if (c.path != Path::wire) return 0;
    return (datagram_bytes + (c.dst_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6)) * 8;
  }

  const EnginePlan& plan_;
  std::vector<Headers> of_rank_;  // of what a rank sends on the wire, in IPv4
};

}  // namespace etloop
