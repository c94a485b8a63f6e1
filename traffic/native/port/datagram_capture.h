// Captures of a port that sees datagrams only: reconstructs the headers that the kernel writes or removes.
//
// Link addresses and UDP checksums are zero, because a socket does not see them. The IPv4 identification of a received packet,
// also invisible, is found by ICRC among the first 64 values: ETLoop's senders and NICs use no others. If none matches it is 0,
// and the frame shows a wrong ICRC.
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
  // Note the contiguous datagrams of a send; `counts_ids`: segments numbered by the kernel.
  void sent(const wire::IpFlow& flow, uint8_t traffic_class, std::span<const uint8_t> datagrams, size_t segment_bytes,
            bool counts_ids, Nanos now);
  void received(const Datagram& datagram, const IpAddress& dst_ip, uint16_t udp_port, Nanos at_ns);

 private:
  uint16_t find_id(std::span<const uint8_t> frame, size_t ip_at, size_t datagram_bytes);

  std::shared_ptr<Capture> capture_;
  // By datagram length: the ICRC change of each identification.
  std::map<size_t, std::array<uint32_t, kTriedIds>> deltas_;
  std::vector<uint8_t> frame_;
};

}  // namespace etloop
