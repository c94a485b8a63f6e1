#include "bare/soft_socket.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <vector>

#include "port/system_clock.h"
#include "port/udp_socket.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace etloop {

namespace {

constexpr size_t kReceiveBatch = 16;
constexpr size_t kReceiveBytes = sizeof(soft::OffloadHeader) + 65536 + ethernet::kMaxHeaderBytes;
constexpr int kReceiveBufferBytes = 64 << 20;
constexpr int kSendBufferBytes = 8 << 20;
constexpr soft::OffloadHeader kNothingLeft{};  // no offload work left for the receiver

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

void set_buffer(int fd, int forced, int usual, int bytes) {
  if (!set_option(fd, SOL_SOCKET, forced, bytes)) set_option(fd, SOL_SOCKET, usual, bytes);
}

struct alignas(cmsghdr) Control {
  uint8_t bytes[CMSG_SPACE(sizeof(tpacket_auxdata)) + CMSG_SPACE(sizeof(timespec))];
};

}  // namespace

struct SoftSocket::State {
  State() : bytes(kReceiveBatch * kReceiveBytes) {
    for (size_t i = 0; i < kReceiveBatch; ++i) {
      received_parts[i] = {bytes.data() + i * kReceiveBytes, kReceiveBytes};
      received[i].msg_hdr.msg_iov = &received_parts[i];
      received[i].msg_hdr.msg_iovlen = 1;
      received[i].msg_hdr.msg_control = controls[i].bytes;
    }
    for (size_t i = 0; i < kSendBatch; ++i) {
      sent[i].msg_hdr.msg_iov = &sent_parts[2 * i];
      sent[i].msg_hdr.msg_iovlen = 2;
    }
  }

  Result<void> open(const std::string& interface, bool promiscuous);
  bool hand_over(size_t slot, FrameSink& sink, Nanos now, Nanos real_offset_ns);

  Descriptor socket;
  ethernet::Mac mac{};
  int64_t dropped = 0;
  std::vector<uint8_t> bytes;
  std::array<mmsghdr, kReceiveBatch> received{};
  std::array<iovec, kReceiveBatch> received_parts{};
  std::array<Control, kReceiveBatch> controls{};
  std::array<mmsghdr, kSendBatch> sent{};
  std::array<iovec, 2 * kSendBatch> sent_parts{};
};

Result<void> SoftSocket::State::open(const std::string& interface, bool promiscuous) {
  // Protocol 0: no arrivals before all options are set.
  socket = Descriptor(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = socket.get();
  if (fd < 0) {
    return Error{"cannot open a packet socket: " + errno_text(errno) + (errno == EPERM ? "; it needs CAP_NET_RAW" : "")};
  }
  ifreq request{};
  if (interface.size() >= sizeof request.ifr_name) {
    return Error{"\"" + interface + "\" is too long for the name of an interface"};
  }
  std::copy(interface.begin(), interface.end(), request.ifr_name);
  if (ioctl(fd, SIOCGIFHWADDR, &request) != 0) {
    return Error{"no interface " + interface + ": " + errno_text(errno)};
  }
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  if (!set_option(fd, SOL_PACKET, PACKET_AUXDATA, 1) || !set_option(fd, SOL_PACKET, PACKET_VNET_HDR, 1) ||
      !set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) || !set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
    return Error{"the kernel does not report tags, joined frames and stamps to a packet socket: " + errno_text(errno) +
                 "; Linux 4.20 does"};
  }
  set_option(fd, SOL_PACKET, PACKET_QDISC_BYPASS, 1);
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, kReceiveBufferBytes);
  sockaddr_ll link{};
  link.sll_family = AF_PACKET;
  link.sll_protocol = htons(ETH_P_ALL);
  link.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&link), sizeof link) != 0) {
    return Error{"cannot bind a packet socket to " + interface + ": " + errno_text(errno)};
  }
  if (!promiscuous) return {};
  packet_mreq all{};
  all.mr_ifindex = link.sll_ifindex;
  all.mr_type = PACKET_MR_PROMISC;
  if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) == 0) return {};
  return Error{"cannot take all frames of " + interface + ": " + errno_text(errno)};
}

bool SoftSocket::State::hand_over(size_t slot, FrameSink& sink, Nanos now, Nanos real_offset_ns) {
  msghdr& header = received[slot].msg_hdr;
  const size_t length = received[slot].msg_len;
  ReceivedFrame frame;
  frame.stamp_ns = now;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_PACKET && control->cmsg_type == PACKET_AUXDATA) {
      tpacket_auxdata auxdata{};
      std::memcpy(&auxdata, CMSG_DATA(control), sizeof auxdata);
      const uint16_t bits = auxdata.tp_vlan_tci;
      if ((auxdata.tp_status & TP_STATUS_VLAN_VALID) != 0) {
        frame.tag = ethernet::Tag{static_cast<uint16_t>(bits & 0x0FFF), static_cast<uint8_t>(bits >> 13)};
      }
    } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_TIMESTAMPNS) {
      timespec stamp{};
      std::memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
      frame.stamp_ns = static_cast<Nanos>(stamp.tv_sec) * 1'000'000'000 + stamp.tv_nsec - real_offset_ns;
    }
  }
  if (length < sizeof frame.offload) return false;
  const uint8_t* at = bytes.data() + slot * kReceiveBytes;
  std::memcpy(&frame.offload, at, sizeof frame.offload);
  frame.bytes = {at + sizeof frame.offload, length - sizeof frame.offload};
  sink.on_frame(frame);
  return true;
}

Result<std::unique_ptr<SoftSocket>> SoftSocket::open(const std::string& interface, bool promiscuous) {
  auto state = std::make_unique<State>();
  if (const auto opened = state->open(interface, promiscuous); !opened) return opened.error();
  return std::unique_ptr<SoftSocket>(new SoftSocket(std::move(state)));
}

SoftSocket::SoftSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}
SoftSocket::~SoftSocket() = default;

int SoftSocket::fd() const { return state_->socket.get(); }
const ethernet::Mac& SoftSocket::mac() const { return state_->mac; }

bool SoftSocket::drain(FrameSink& sink, size_t budget) {
  State& state = *state_;
  for (size_t frames = 0; frames < budget; frames += kReceiveBatch) {
    for (mmsghdr& message : state.received) message.msg_hdr.msg_controllen = sizeof(Control);
    const int count = recvmmsg(fd(), state.received.data(), kReceiveBatch, MSG_DONTWAIT, nullptr);
    if (count <= 0) return true;
    const Nanos now = monotonic_ns();
    const Nanos real_offset_ns = realtime_ns() - now;
    for (int i = 0; i < count; ++i) state.hand_over(static_cast<size_t>(i), sink, now, real_offset_ns);
    if (count < static_cast<int>(kReceiveBatch)) return true;
  }
  return false;
}

size_t SoftSocket::send(std::span<const std::span<const uint8_t>> frames, int& failed) {
  State& state = *state_;
  assert(frames.size() <= kSendBatch);
  failed = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    // The kernel only reads through these.
    state.sent_parts[2 * i] = {const_cast<soft::OffloadHeader*>(&kNothingLeft), sizeof kNothingLeft};
    state.sent_parts[2 * i + 1] = {const_cast<uint8_t*>(frames[i].data()), frames[i].size()};
  }
  const int count = sendmmsg(fd(), state.sent.data(), static_cast<unsigned>(frames.size()), 0);
  if (count >= 0) return static_cast<size_t>(count);
  if (errno != EAGAIN && errno != EWOULDBLOCK) failed = errno;
  return 0;
}

int64_t SoftSocket::dropped() {
  tpacket_stats stats{};  // since the last query
  socklen_t length = sizeof stats;
  if (getsockopt(fd(), SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0) state_->dropped += stats.tp_drops;
  return state_->dropped;
}

}  // namespace etloop
