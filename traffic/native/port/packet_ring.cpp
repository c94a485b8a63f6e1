#include "port/packet_ring.h"

#include <linux/net_tstamp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace etloop {
namespace {

constexpr size_t kSlotBytes = 8192;  // fits any frame of path MTU 4096, with the kernel's prefix
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr int64_t kNanosPerSecond = 1'000'000'000;
static_assert(kBlockBytes % kSlotBytes == 0);

template <typename Value>
bool set_option(int fd, int option, const Value& value) {
  return setsockopt(fd, SOL_PACKET, option, &value, sizeof value) == 0;
}

}  // namespace

PacketRing::~PacketRing() {
  if (memory_ != nullptr) munmap(memory_, mapped_bytes_);
}

Result<void> PacketRing::open(int fd, int64_t bytes, size_t offload_bytes, bool card_stamps) {
  assert(memory_ == nullptr);
  const int64_t granted_bytes = std::clamp(bytes, static_cast<int64_t>(kBlockBytes), kMostBytes);
  const auto blocks = static_cast<uint32_t>(granted_bytes / static_cast<int64_t>(kBlockBytes));
  tpacket_req request{};
  request.tp_block_size = kBlockBytes;
  request.tp_block_nr = blocks;
  request.tp_frame_size = kSlotBytes;
  request.tp_frame_nr = blocks * static_cast<uint32_t>(kBlockBytes / kSlotBytes);
  const int version = TPACKET_V2;
  const int longer_frames_wait_at_the_socket = 1;
  const int stamps = SOF_TIMESTAMPING_RAW_HARDWARE;
  if (!set_option(fd, PACKET_VERSION, version) || !set_option(fd, PACKET_COPY_THRESH, longer_frames_wait_at_the_socket) ||
      (card_stamps && !set_option(fd, PACKET_TIMESTAMP, stamps)) || !set_option(fd, PACKET_RX_RING, request)) {
    return Error{"cannot make a ring of " + std::to_string(blocks) + " MiB for a packet socket: " + errno_text(errno) +
                 "; write receive_ring: false, or give the host more memory"};
  }
  mapped_bytes_ = size_t{blocks} * kBlockBytes;
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) {
    return Error{"cannot map the ring of a packet socket: " + errno_text(errno) + "; write receive_ring: false"};
  }
  memory_ = static_cast<uint8_t*>(memory);
  slots_ = request.tp_frame_nr;
  offload_bytes_ = offload_bytes;
  return {};
}

tpacket2_hdr& PacketRing::slot() const { return *reinterpret_cast<tpacket2_hdr*>(memory_ + at_ * kSlotBytes); }

std::optional<PacketRing::Frame> PacketRing::next() {
  while (true) {
    const tpacket2_hdr& head = slot();
    const uint32_t status = __atomic_load_n(&head.tp_status, __ATOMIC_ACQUIRE);
    if ((status & TP_STATUS_USER) == 0) return std::nullopt;
    Frame frame;
    if ((status & TP_STATUS_COPY) != 0) return frame;
    if (head.tp_snaplen < head.tp_len) {
      ++cut_;
      give_back();
      continue;
    }
    const uint8_t* start = reinterpret_cast<const uint8_t*>(&head) + head.tp_mac - offload_bytes_;
    frame.bytes = {start, head.tp_snaplen + offload_bytes_};
    if ((status & TP_STATUS_VLAN_VALID) != 0) {
      const uint16_t control_bits = head.tp_vlan_tci;
      frame.tag = ethernet::Tag{static_cast<uint16_t>(control_bits & 0x0FFF), static_cast<uint8_t>(control_bits >> 13)};
    }
    const Nanos stamp_ns = Nanos{head.tp_sec} * kNanosPerSecond + head.tp_nsec;
    ((status & TP_STATUS_TS_RAW_HARDWARE) != 0 ? frame.stamps.card_ns : frame.stamps.kernel_ns) = stamp_ns;
    return frame;
  }
}

void PacketRing::give_back() {
  __atomic_store_n(&slot().tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
  if (++at_ == slots_) at_ = 0;
}

}  // namespace etloop
