// Captures of a port that sees datagrams only: the headers that the kernel wrote or took away are put together again.
//
// Link addresses and UDP checksums are zero, as a socket never sees them. The IPv4 identification of a received packet,
// which a socket does not see either, is the one among the first 64 that makes its ICRC right: ETLoop's senders and
// network cards use no others. Where none does it stands as 0, and the frame shows a wrong ICRC.
#pragma once

#include <map>

#include "core/port.h"
#include "port/capture.h"
#include "wire/ethernet.h"

namespace etloop {

class DatagramCapture {
 public:
  static constexpr uint16_t kTriedIds = 64;

  explicit DatagramCapture(std::shared_ptr<Capture> capture) : capture_(std::move(capture)) {}
  bool is_on() const { return capture_ != nullptr; }
  // Datagrams of a send, one behind the other; `counts_ids`: segments that the kernel numbers.
  void sent(const wire::IpFlow& flow, uint8_t traffic_class, std::span<const uint8_t> datagrams, size_t segment_bytes,
            bool counts_ids, Nanos now);
  void received(const Datagram& datagram, const IpAddress& dst_ip, uint16_t udp_port, Nanos at_ns);

 private:
  uint16_t find_id(std::span<const uint8_t> frame, size_t ip_at, size_t datagram_bytes);

  std::shared_ptr<Capture> capture_;
  // By datagram length: what an identification changes in the ICRC.
  std::map<size_t, std::array<uint32_t, kTriedIds>> deltas_;
  std::vector<uint8_t> frame_;
};

}  // namespace etloop
