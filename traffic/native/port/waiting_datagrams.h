// Datagrams of one flow sent together by one system call, which the kernel segments (UDP_SEGMENT). They have equal lengths except
// the last one, which may be shorter, as LAST is than FIRST; the kernel numbers them from 0 (IPv4).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "wire/frame_builder.h"
#include "wire/packet_run.h"

namespace etloop {

class WaitingDatagrams {
 public:
  // Whether a run is to wait here, for later runs or with waiting ones.
  bool holds(const PacketRun& run) const {
    return run.count == 1 && !run.corrupt_icrc && run.departs_ns == 0 && (run.may_wait || (count_ > 0 && takes(run))) &&
           wire::datagram_bytes(run.head.opcode, run.head.payload_bytes) <= room_.size();
  }

  bool empty() const { return count_ == 0; }
  // Whether a run may be sent with the waiting ones.
  bool takes(const PacketRun& run) const {
    const size_t bytes = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
    return count_ == 0 || (count_ < MiddleRun::kMaxSegments && !closed_ && bytes <= segment_bytes_ &&
                           bytes_ + bytes <= room_.size() && run.flow == run_.flow &&
                           run.traffic_class == run_.traffic_class && run.priority == run_.priority);
  }
  // Requires `holds` and `takes`.
  void add(const wire::IpFlow& flow, const PacketRun& run) {
    const size_t bytes =
        build_datagram(flow, static_cast<uint16_t>(count_), run.head, std::span(room_).subspan(bytes_));
    if (count_ == 0) {
      run_ = run;
      segment_bytes_ = bytes;
    }
    closed_ = bytes < segment_bytes_;
    bytes_ += bytes;
    ++count_;
  }
  void clear() {
    count_ = 0;
    bytes_ = 0;
    closed_ = false;
  }

  // Return the first run with the total count.
  PacketRun run() const {
    PacketRun all = run_;
    all.count = count_;
    return all;
  }
  std::span<const uint8_t> bytes() const { return std::span(room_).first(bytes_); }
  size_t segment_bytes() const { return segment_bytes_; }

 private:
  PacketRun run_;
  uint32_t count_ = 0;
  size_t bytes_ = 0;
  size_t segment_bytes_ = 0;
  bool closed_ = false;  // by a shorter one
  std::array<uint8_t, MiddleRun::kMaxUdpPayloadBytes> room_{};
};

}  // namespace etloop
