#include "bare/frame_blast.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "port/frame_flows.h"
#include "port/system_clock.h"
#include "port/xdp/xdp_program.h"
#include "port/xdp/xdp_socket.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace etloop {
namespace {

constexpr uint16_t kSourcePort = 0xFFFE;
constexpr size_t kMostFrames = 64;  // per call
constexpr size_t kReceiveBatch = 16;
constexpr size_t kMaxFrameBytes = 65536;
constexpr int kReceiveBufferBytes = 64 << 20;
constexpr int kSendBufferBytes = 8 << 20;
constexpr Nanos kNeighbourTimeoutNs = 2'000'000'000;

PortConfig port_of(const BlastSettings& settings, const IpAddress& own) {
  PortConfig config;
  config.backend = settings.backend;
  config.addresses = {own};
  config.udp_port = settings.udp_port;
  return config;
}

void wait_for(int fd, short events, int timeout_ms) {
  pollfd polled{fd, events, 0};
  poll(&polled, 1, timeout_ms);
}

Result<Descriptor> open_packet_socket(const Interface& interface, uint16_t protocol) {
  Descriptor made(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_ll link{};
  link.sll_family = AF_PACKET;
  link.sll_protocol = htons(protocol);
  link.sll_ifindex = interface.index;
  const int on = 1;
  const int receive_bytes = kReceiveBufferBytes;
  const int send_bytes = kSendBufferBytes;
  if (made.get() >= 0) {
    setsockopt(made.get(), SOL_PACKET, protocol == 0 ? PACKET_QDISC_BYPASS : PACKET_IGNORE_OUTGOING, &on, sizeof on);
    setsockopt(made.get(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_bytes, sizeof receive_bytes);
    setsockopt(made.get(), SOL_SOCKET, SO_SNDBUFFORCE, &send_bytes, sizeof send_bytes);
    if (bind(made.get(), reinterpret_cast<const sockaddr*>(&link), sizeof link) == 0) return made;
  }
  return Error{"cannot open a packet socket on " + interface.name + ": " + errno_text(errno) + "; give CAP_NET_RAW"};
}

// Build a frame to the peer: headers and a payload.
Result<std::vector<uint8_t>> make_frame(FrameFlows& flows, const BlastSettings& settings) {
  const Result<FlowId> flow = flows.add_flow(0, settings.dst_ip, kSourcePort, 0);
  if (!flow) return flow.error();
  const Nanos deadline = monotonic_ns() + kNeighbourTimeoutNs;
  std::span<const uint8_t> header;
  PacketRun run;
  run.flow = *flow;
  while ((header = flows.headers(run, settings.segment_bytes, monotonic_ns())).empty()) {
    if (monotonic_ns() > deadline) {
      return Error{settings.dst_ip.text() + " does not answer ARP or neighbour discovery; look at ip neighbour"};
    }
    wait_for(-1, 0, 1);
  }
  std::vector<uint8_t> frame(header.begin(), header.end());
  frame.resize(header.size() + settings.segment_bytes, 0xA5);
  return frame;
}

// Sends one batch; returns the number of frames accepted, negative: none for lack of room. -2: another error.
class PacketSender {
 public:
  Result<void> open(const Interface& interface) {
    auto opened = open_packet_socket(interface, 0);
    if (!opened) return opened.error();
    socket_ = *std::move(opened);
    return {};
  }
  int send(std::span<const uint8_t> frame, uint32_t count) {
    iovec vector{const_cast<uint8_t*>(frame.data()), frame.size()};
    for (uint32_t i = 0; i < count; ++i) {
      batch_[i].msg_hdr.msg_iov = &vector;
      batch_[i].msg_hdr.msg_iovlen = 1;
    }
    const int taken = sendmmsg(socket_.get(), batch_.data(), count, 0);
    return taken >= 0 ? taken : (errno == EAGAIN || errno == ENOBUFS ? -1 : -2);
  }
  int fd() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::array<mmsghdr, kMostFrames> batch_{};
};

class XdpSender {
 public:
  Result<void> open(const Interface& interface) {
    XdpSettings settings;
    settings.interface_index = interface.index;
    settings.interface = interface.name;
    return socket_.open(settings);
  }
  int send(std::span<const uint8_t> frame, uint32_t count) {
    const bool room = socket_.has_room(count, frame.size());
    for (uint32_t i = 0; room && i < count; ++i) socket_.put(frame, {});
    if (const int code = socket_.kick(); code != 0) {
      errno = code;
      return -2;
    }
    return room ? static_cast<int>(count) : -1;
  }
  int fd() const { return -1; }  // freed room causes no event

 private:
  XdpSocket socket_;
};

template <typename Sender>
Result<BlastTotals> send_frames(const Interface& interface, std::span<const uint8_t> frame, const BlastSettings& settings) {
  Sender sender;
  if (const auto opened = sender.open(interface); !opened) return opened.error();
  BlastTotals totals;
  const uint32_t count = std::clamp<uint32_t>(settings.segments, 1, kMostFrames);
  const Nanos start_ns = monotonic_ns();
  while ((totals.duration_ns = monotonic_ns() - start_ns) < settings.duration_ns) {
    const int taken = sender.send(frame, count);
    if (taken == -2) {
      return Error{"cannot send frames on " + interface.name + ": " + errno_text(errno)};
    }
    if (taken == -1 && sender.fd() >= 0) wait_for(sender.fd(), POLLOUT, 1);
    totals.datagrams += std::max(taken, 0);
    totals.bytes += int64_t{std::max(taken, 0)} * settings.segment_bytes;
  }
  return totals;
}

// Receives arrived frames and counts datagrams; negative: the socket failed.
class PacketReceiver {
 public:
  Result<void> open(const Interface& interface, const BlastSettings& settings) {
    headers_bytes_ = sizeof(ethhdr) + (settings.dst_ip.is_v4() ? 28 : 48);
    bytes_.resize(kReceiveBatch * kMaxFrameBytes);
    for (size_t i = 0; i < kReceiveBatch; ++i) {
      vectors_[i] = {bytes_.data() + i * kMaxFrameBytes, kMaxFrameBytes};
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
    auto opened = open_packet_socket(interface, settings.dst_ip.is_v4() ? ETH_P_IP : ETH_P_IPV6);
    if (!opened) return opened.error();
    socket_ = *std::move(opened);
    return {};
  }
  bool once(BlastTotals& totals) {
    const int count = recvmmsg(socket_.get(), messages_.data(), kReceiveBatch, MSG_DONTWAIT, nullptr);
    for (int i = 0; i < count; ++i) {
      const uint32_t bytes = messages_[static_cast<size_t>(i)].msg_len;
      totals.bytes += static_cast<int64_t>(bytes - std::min<size_t>(bytes, headers_bytes_));
    }
    totals.datagrams += std::max(count, 0);
    return count > 0;
  }
  int fd() const { return socket_.get(); }

 private:
  Descriptor socket_;
  size_t headers_bytes_ = 0;
  std::vector<uint8_t> bytes_;
  std::array<mmsghdr, kReceiveBatch> messages_{};
  std::array<iovec, kReceiveBatch> vectors_{};
};

class XdpReceiver {
 public:
  Result<void> open(const Interface& interface, const BlastSettings& settings) {
    headers_bytes_ = sizeof(ethhdr) + (settings.dst_ip.is_v4() ? 28 : 48);
    XdpSettings socket;
    socket.interface_index = interface.index;
    socket.interface = interface.name;
    Result<void> done = program_.attach(interface.index, interface.name, settings.udp_port, 1);
    if (done) done = socket_.open(socket);
    if (done) done = program_.give(0, socket_.fd());
    return done;
  }
  bool once(BlastTotals& totals) {
    const size_t frames = socket_.receive(kReceiveBatch, [&](std::span<const uint8_t> frame) {
      totals.bytes += static_cast<int64_t>(frame.size() - std::min(frame.size(), headers_bytes_));
    });
    totals.datagrams += static_cast<int64_t>(frames);
    return frames > 0;
  }
  int fd() const { return socket_.fd(); }

 private:
  XdpSocket socket_;  // destroyed after the program, which is detached first
  XdpProgram program_;
  size_t headers_bytes_ = 0;
};

template <typename Receiver>
Result<BlastTotals> receive_frames(const Interface& interface, const BlastSettings& settings) {
  Receiver receiver;
  if (const auto opened = receiver.open(interface, settings); !opened) return opened.error();
  BlastTotals totals;
  const Nanos opened_ns = monotonic_ns();
  while (!receiver.once(totals)) {
    if (monotonic_ns() - opened_ns > kBlastSilenceNs) {
      return Error{"nothing arrived at " + settings.dst_ip.text() + " for 2 s; start the sender"};
    }
    wait_for(receiver.fd(), POLLIN, 100);
  }
  totals = {};  // the first batch starts the clock
  const Nanos start_ns = monotonic_ns();
  Nanos last_ns = start_ns;
  for (Nanos now = start_ns; now - start_ns < settings.duration_ns && now - last_ns < kBlastSilenceNs; now = monotonic_ns()) {
    if (receiver.once(totals)) {
      last_ns = monotonic_ns();
    } else {
      wait_for(receiver.fd(), POLLIN, 100);
    }
  }
  totals.duration_ns = last_ns - start_ns;
  return totals;
}

}  // namespace

Result<BlastTotals> frame_blast_send(const BlastSettings& settings) {
  FrameFlows flows(port_of(settings, settings.src_ip));
  if (const auto opened = flows.open(); !opened) return opened.error();
  const auto frame = make_frame(flows, settings);
  if (!frame) return frame.error();
  return settings.backend == Backend::xdp ? send_frames<XdpSender>(flows.interface(), *frame, settings)
                                          : send_frames<PacketSender>(flows.interface(), *frame, settings);
}

Result<BlastTotals> frame_blast_receive(const BlastSettings& settings) {
  FrameFlows flows(port_of(settings, settings.dst_ip));
  if (const auto opened = flows.open(); !opened) return opened.error();
  return settings.backend == Backend::xdp ? receive_frames<XdpReceiver>(flows.interface(), settings)
                                          : receive_frames<PacketReceiver>(flows.interface(), settings);
}

}  // namespace etloop
