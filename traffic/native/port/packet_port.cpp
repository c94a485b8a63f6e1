#include "port/packet_port.h"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "port/arrival_stamps.h"
#include "port/frame_flows.h"
#include "port/packet_ring.h"
#include "port/shared_queues.h"
#include "port/system_clock.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace etloop {
namespace {

// Header that the kernel prepends to a frame with PACKET_VNET_HDR (virtio 1.2, 5.1.6; its header is not C++).
struct OffloadHeader {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t header_bytes;
  uint16_t gso_bytes;  // size of a datagram in a joined frame
  uint16_t checksum_start;
  uint16_t checksum_offset;
};
static_assert(sizeof(OffloadHeader) == 10);
constexpr uint8_t kGsoEcn = 0x80;
constexpr uint8_t kGsoUdpL4 = 5;

constexpr uint32_t kSendBatch = 64;
constexpr size_t kReceiveBatch = 16;
constexpr size_t kReceiveBytes = sizeof(OffloadHeader) + 65536 + ethernet::kMaxHeaderBytes;  // a GRO super-frame
constexpr size_t kSingleBytes = 4096 + 64;  // a single datagram: path MTU, headers, ICRC
constexpr int kSendBufferBytes = 8 << 20;
constexpr Nanos kDeviceQueueRetryNs = 50'000;  // after ENOBUFS, whose end causes no event

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Accept UDP to the RoCE port over IPv4 and IPv6, also over IPv6 in IPv6, and MAC control frames; others never wake the loop. The
// kernel has removed tags before. IPv4 fragments are accepted, and counted as such.
bool attach_filter(int fd, uint16_t udp_port) {
  constexpr uint32_t kWhole = 0x40000;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 5),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 15),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),  // the length of the IPv4 header
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port, 11, 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, 9),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_IPV6, 0, 8),  // an outer header, and UDP over IPv6 inside
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 60),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 6),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 96),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port, 3, 4),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 56),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port, 1, 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_PAUSE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kWhole),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter{std::size(code), code};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

struct ReceiveBuffers {
  struct alignas(cmsghdr) Control {
    uint8_t bytes[CMSG_SPACE(sizeof(tpacket_auxdata)) + CMSG_SPACE(kStampBytes)];
  };

  ReceiveBuffers() : bytes(kReceiveBatch * kReceiveBytes) {
    for (size_t i = 0; i < kReceiveBatch; ++i) {
      vectors[i] = {bytes.data() + i * kReceiveBytes, kReceiveBytes};
      messages[i].msg_hdr.msg_iov = &vectors[i];
      messages[i].msg_hdr.msg_iovlen = 1;
      messages[i].msg_hdr.msg_control = controls[i].bytes;
    }
  }
  void reset() {
    for (mmsghdr& message : messages) message.msg_hdr.msg_controllen = sizeof(Control);
  }

  std::vector<uint8_t> bytes;
  std::array<mmsghdr, kReceiveBatch> messages{};
  std::array<iovec, kReceiveBatch> vectors{};
  std::array<Control, kReceiveBatch> controls{};
};

struct Arrival {
  std::optional<ethernet::Tag> tag;
  Stamps stamps;
};

Arrival read_control(msghdr& header) {
  Arrival arrival;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level == SOL_PACKET && control->cmsg_type == PACKET_AUXDATA) {
      tpacket_auxdata auxdata{};
      std::memcpy(&auxdata, CMSG_DATA(control), sizeof auxdata);
      if ((auxdata.tp_status & TP_STATUS_VLAN_VALID) != 0) {
        const uint16_t control_bits = auxdata.tp_vlan_tci;
        arrival.tag = ethernet::Tag{static_cast<uint16_t>(control_bits & 0x0FFF), static_cast<uint8_t>(control_bits >> 13)};
      }
    } else {
      read_stamps(*control, arrival.stamps);
    }
  }
  return arrival;
}

}  // namespace

// A frame is sent in two pieces, headers and datagram, so that a run of middles is never copied.
struct PacketPort::State {
  explicit State(const PortConfig& settings) : config(settings), flows(settings), middles(settings.path_mtu) {
    for (size_t i = 0; i < kSendBatch; ++i) {
      batch[i].msg_hdr.msg_iov = &vectors[2 * i];
      batch[i].msg_hdr.msg_iovlen = 2;
    }
  }

  Result<Descriptor> new_socket(uint16_t protocol);
  Result<void> open_sockets();
  Result<void> share();
  void stage(const uint8_t* header, size_t header_bytes, const uint8_t* datagram, size_t bytes);
  TxResult push_out();
  TxResult refuse(int code);
  size_t take(std::span<const uint8_t> bytes, const Arrival& arrival, PortSink& sink, Nanos now);
  int read_socket(int most, PortSink& sink, size_t& packets);
  size_t read_ring(PortSink& sink, size_t budget);

  PortConfig config;
  FrameFlows flows;
  ArrivalClock clock;
  Descriptor sender;
  Descriptor receiver;
  bool blocked = false;
  bool device_queue_full = false;
  Nanos paused_until_ns = kNever;
  Nanos drained_ns = 0;
  int last_errno = 0;
  std::atomic<int> lost_errno = 0;  // of the last frames that were lost with the link, see is_lost_with_link
  bool bypasses_qdisc = false;
  mutable int64_t dropped = 0;

  MiddleRun middles;
  std::array<uint8_t, ethernet::kMaxHeaderBytes> run_header{};
  std::array<uint8_t, ethernet::kMaxHeaderBytes + kSingleBytes> single{};
  std::array<mmsghdr, kSendBatch> batch{};
  std::array<iovec, 2 * kSendBatch> vectors{};
  std::vector<BuiltFrame> built;  // by index in the batch; empty until first use
  bool builds = false;            // the staged frames are these
  bool is_broken = false;         // the kernel rejected some, too late to report which
  uint32_t staged = 0;  // frames of the batch; those from `gone` on are not yet accepted by the kernel
  uint32_t gone = 0;
  PacketRing ring;
  ReceiveBuffers received;
};

Result<Descriptor> PacketPort::State::new_socket(uint16_t protocol) {
  // Protocol 0: no arrivals before the filter is set, and never at a sender.
  Descriptor made(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.get() < 0) {
    return Error{"cannot open a packet socket: " + errno_text(errno) +
                 (errno == EPERM ? "; give the agent CAP_NET_RAW (setcap cap_net_raw+ep), or write backend: udp" : "")};
  }
  if (protocol != 0 && !attach_filter(made.get(), config.udp_port)) {
    return Error{"cannot filter what a packet socket receives: " + errno_text(errno)};
  }
  sockaddr_ll link{};
  link.sll_family = AF_PACKET;
  link.sll_protocol = htons(protocol);
  link.sll_ifindex = flows.interface().index;
  if (bind(made.get(), reinterpret_cast<const sockaddr*>(&link), sizeof link) == 0) return made;
  return Error{"cannot bind a packet socket to " + flows.interface().name + ": " + errno_text(errno)};
}

Result<void> PacketPort::State::open_sockets() {
  auto made = new_socket(0);
  if (!made) return made.error();
  sender = *std::move(made);
  bypasses_qdisc = set_option(sender.get(), SOL_PACKET, PACKET_QDISC_BYPASS, 1);
  if (!set_option(sender.get(), SOL_SOCKET, SO_SNDBUFFORCE, kSendBufferBytes)) {
    set_option(sender.get(), SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  }
  made = new_socket(ETH_P_ALL);
  if (!made) return made.error();
  receiver = *std::move(made);
  const int fd = receiver.get();
  if (!set_option(fd, SOL_PACKET, PACKET_AUXDATA, 1) || !set_option(fd, SOL_PACKET, PACKET_VNET_HDR, 1) ||
      !set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) || !ask_for_stamps(fd)) {
    return Error{"the kernel does not report tags, joined frames and stamps to a packet socket: " + errno_text(errno) +
                 "; Linux 4.20 does"};
  }
  const auto buffer = static_cast<int>(std::min<int64_t>(config.receive_buffer_bytes, INT32_MAX / 2));
  if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, buffer)) set_option(fd, SOL_SOCKET, SO_RCVBUF, buffer);
  int granted_bytes = 0;
  socklen_t length = sizeof granted_bytes;
  getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted_bytes, &length);
  flows.counters.receive_buffer_bytes = granted_bytes;
  if (config.receive_ring) {
    const StampOffer offer = stamps_offered(flows.interface().name);
    const bool card_stamps = offer.card_stamps_all && offer.clock >= 0;
    if (const auto opened = ring.open(fd, granted_bytes, sizeof(OffloadHeader), card_stamps); !opened) return opened;
    flows.counters.receive_buffer_bytes = ring.bytes();
  }
  return config.shared == nullptr ? Result<void>{} : share();
}

// Join the fanout group of the port's queues, in order; packets are distributed from then on.
Result<void> PacketPort::State::share() {
  SharedQueues& shared = *config.shared;
  const auto failed = [] {
    return Error{"the kernel does not sort frames between packet sockets (PACKET_FANOUT_CBPF): " + errno_text(errno) +
                 "; Linux 4.12 does, write queues: 1"};
  };
  const bool is_first = shared.fanout_group < 0;
  const uint32_t kind = PACKET_FANOUT_CBPF | (is_first ? PACKET_FANOUT_FLAG_UNIQUEID : 0U);
  const uint32_t group = kind << 16 | (is_first ? 0U : static_cast<uint32_t>(shared.fanout_group));
  if (!set_option(receiver.get(), SOL_PACKET, PACKET_FANOUT, static_cast<int>(group))) return failed();
  if (!is_first) return {};
  uint32_t joined = 0;
  socklen_t length = sizeof joined;
  if (getsockopt(receiver.get(), SOL_PACKET, PACKET_FANOUT, &joined, &length) != 0) return failed();
  shared.fanout_group = static_cast<int>(joined & 0xFFFF);
  std::vector<sock_filter> code = steering_of_frames(shared.queues, shared.first_qpn);
  const sock_fprog program{static_cast<uint16_t>(code.size()), code.data()};
  if (setsockopt(receiver.get(), SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program) != 0) return failed();
  return {};
}

void PacketPort::State::stage(const uint8_t* header, size_t header_bytes, const uint8_t* datagram, size_t bytes) {
  assert(staged < kSendBatch);
  // The kernel only reads through these.
  vectors[2 * staged] = {const_cast<uint8_t*>(header), header_bytes};
  vectors[2 * staged + 1] = {const_cast<uint8_t*>(datagram), bytes};
  ++staged;
}

TxResult PacketPort::State::refuse(int code) {
  last_errno = code;
  if (code != EAGAIN && code != EWOULDBLOCK && code != ENOBUFS) return TxResult::failed;
  ++flows.counters.would_block;
  (code == ENOBUFS ? device_queue_full : blocked) = true;
  return TxResult::would_block;
}

TxResult PacketPort::State::push_out() {
  while (gone < staged) {
    const int taken = sendmmsg(sender.get(), &batch[gone], staged - gone, 0);
    ++flows.counters.tx_calls;
    if (taken < 0) {
      const int code = errno;
      if (is_lost_with_link(code)) {
        lost_errno.store(code, std::memory_order_relaxed);
        break;
      }
      const TxResult result = refuse(code);
      if (result == TxResult::failed) {
        is_broken = builds;
        staged = gone = 0;
      }
      return result;
    }
    flows.counters.tx_datagrams += taken;
    for (int i = 0; i < taken; ++i) {
      flows.counters.tx_bytes += static_cast<int64_t>(vectors[2 * (gone + static_cast<uint32_t>(i)) + 1].iov_len);
    }
    gone += static_cast<uint32_t>(taken);
  }
  staged = gone = 0;
  builds = false;
  return TxResult::sent;
}

TxResult PacketPort::send(const PacketRun& run) {
  State& state = *state_;
  if (state.staged > 0) {
    if (const TxResult result = state.push_out(); result != TxResult::sent) return result;
  }
  const Nanos now = monotonic_ns();
  if (const Nanos until = state.flows.paused_until(run, now); until != kNever) {
    state.paused_until_ns = until;
    return TxResult::held;  // other priorities may continue
  }
  const size_t bytes = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
  const std::span<const uint8_t> header = state.flows.headers(run, bytes, now);
  if (header.empty()) return TxResult::sent;  // no neighbour yet: lost, as on a link that is down
  std::copy(header.begin(), header.end(), state.run_header.begin());
  const wire::IpFlow& tuple = state.flows.tuple(run.flow);
  if (run.head.opcode == wire::Opcode::write_middle && run.head.payload == nullptr && !run.corrupt_icrc) {
    const auto datagrams = state.middles.build(tuple, run, IpIds::zero);
    for (uint32_t i = 0; i < run.count; ++i) state.stage(state.run_header.data(), header.size(), &datagrams[i * bytes], bytes);
  } else {
    assert(run.count == 1);
    build_datagram(tuple, 0, run.head, state.single);
    if (run.corrupt_icrc) state.single[bytes - 1] ^= 0x01;
    state.stage(state.run_header.data(), header.size(), state.single.data(), bytes);
  }
  const TxResult result = state.push_out();
  const bool taken = result == TxResult::sent || (result == TxResult::would_block && state.gone > 0);
  if (!taken) {
    state.staged = state.gone = 0;
    return result;
  }
  for (uint32_t i = 0; i < run.count && state.config.capture != nullptr; ++i) {
    const iovec& datagram = state.vectors[2 * i + 1];
    state.flows.note_sent(header, {static_cast<const uint8_t*>(datagram.iov_base), datagram.iov_len}, now);
  }
  return TxResult::sent;  // the rest leaves before anything else
}

// Built packets are sent together, at the latest before the next receive.
TxResult PacketPort::send_built(const BuiltPacket& built) {
  State& state = *state_;
  if (state.is_broken) return TxResult::failed;
  const bool has_room = state.staged < kSendBatch && (state.staged == 0 || state.builds);
  if (!has_room) {
    if (const TxResult result = state.push_out(); result != TxResult::sent) return result;
  }
  const Nanos now = monotonic_ns();
  if (const Nanos until = state.flows.paused_until(built, now); until != kNever) {
    state.paused_until_ns = until;
    return TxResult::held;
  }
  if (state.built.empty()) state.built.resize(kSendBatch);
  BuiltFrame& frame = state.built[state.staged];
  if (!state.flows.put_built(built, now, frame)) return TxResult::sent;  // no neighbour yet: lost, as on a link that is down
  const std::span<const uint8_t> datagram = std::span<const uint8_t>(frame.bytes).subspan(frame.header_bytes);
  state.stage(frame.bytes.data(), frame.header_bytes, datagram.data(), datagram.size());
  state.builds = true;
  state.flows.note_sent(std::span(frame.bytes).first(frame.header_bytes), datagram, now);
  return TxResult::sent;
}

uint32_t PacketPort::max_run(uint32_t payload_bytes) const {
  return std::min(kSendBatch, MiddleRun::max_segments(payload_bytes));
}

size_t PacketPort::State::take(std::span<const uint8_t> bytes, const Arrival& arrival, PortSink& sink, Nanos now) {
  const Nanos arrived_ns = clock.arrived(arrival.stamps, drained_ns, now, flows.counters);
  if (bytes.size() < sizeof(OffloadHeader)) return 0;
  OffloadHeader offload{};
  std::memcpy(&offload, bytes.data(), sizeof offload);
  const std::span<const uint8_t> frame = bytes.subspan(sizeof offload);
  const bool joined = (offload.gso_type & ~kGsoEcn) == kGsoUdpL4;
  return joined ? flows.take_joined(frame, offload.gso_bytes, arrival.tag, sink, arrived_ns)
                : flows.take(frame, arrival.tag, sink, arrived_ns);
}

// Receive with one system call; returns the number of frames, negative on error.
int PacketPort::State::read_socket(int most, PortSink& sink, size_t& packets) {
  received.reset();
  const int count = recvmmsg(receiver.get(), received.messages.data(), static_cast<unsigned>(most), MSG_DONTWAIT, nullptr);
  ++flows.counters.rx_calls;
  const Nanos now = monotonic_ns();
  if (count > 0) clock.begin(now);
  sink.on_read(now);
  for (int i = 0; i < count; ++i) {
    const auto slot = static_cast<size_t>(i);
    const Arrival arrival = read_control(received.messages[slot].msg_hdr);
    packets += take({received.bytes.data() + slot * kReceiveBytes, received.messages[slot].msg_len}, arrival, sink, now);
  }
  return count;
}

size_t PacketPort::State::read_ring(PortSink& sink, size_t budget) {
  size_t packets = 0;
  Nanos now = monotonic_ns();
  bool began = false;
  while (packets < budget) {
    const Nanos before = now;
    const std::optional<PacketRing::Frame> frame = ring.next();
    if (!frame) {
      drained_ns = before;
      break;
    }
    now = monotonic_ns();
    if (!std::exchange(began, true)) clock.begin(now);
    sink.on_read(now);
    if (frame->bytes.empty()) {
      read_socket(1, sink, packets);
    } else {
      packets += take(frame->bytes, {frame->tag, frame->stamps}, sink, now);
    }
    ring.give_back();
  }
  return packets;
}

size_t PacketPort::receive(PortSink& sink, size_t budget) {
  State& state = *state_;
  if (state.staged > 0) state.push_out();
  size_t packets = 0;
  if (state.ring.is_open()) {
    packets = state.read_ring(sink, budget);
  } else {
    int count = kReceiveBatch;
    while (packets < budget && count == static_cast<int>(kReceiveBatch)) {
      const Nanos before = monotonic_ns();
      count = state.read_socket(kReceiveBatch, sink, packets);
      if (count < static_cast<int>(kReceiveBatch)) state.drained_ns = before;
    }
  }
  state.flows.account_pauses(state.drained_ns);
  return packets;
}

void PacketPort::wait(Nanos timeout_ns, int wake_fd) {
  State& state = *state_;
  if (state.staged > 0) state.push_out();
  if (std::exchange(state.device_queue_full, false)) timeout_ns = std::min(timeout_ns, kDeviceQueueRetryNs);
  if (const Nanos until = std::exchange(state.paused_until_ns, kNever); until != kNever) {
    timeout_ns = std::min(timeout_ns, until - monotonic_ns());
  }
  const short writable = std::exchange(state.blocked, false) ? POLLOUT : 0;
  std::array<pollfd, 3> polled{
      {{state.receiver.get(), POLLIN, 0}, {wake_fd, POLLIN, 0}, {writable != 0 ? state.sender.get() : -1, writable, 0}}};
  const Nanos bounded_ns = std::max<Nanos>(timeout_ns, 0);
  const timespec timeout{bounded_ns / 1'000'000'000, bounded_ns % 1'000'000'000};
  if (ppoll(polled.data(), polled.size(), timeout_ns == kNever ? nullptr : &timeout, nullptr) <= 0) return;
  if ((polled[1].revents & POLLIN) == 0) return;
  std::array<uint8_t, 64> drained;
  while (read(wake_fd, drained.data(), drained.size()) == static_cast<ssize_t>(drained.size())) {
  }
}

PacketPort::PacketPort(std::unique_ptr<State> state) : state_(std::move(state)) {}
PacketPort::~PacketPort() = default;

Result<std::unique_ptr<PacketPort>> PacketPort::open(const PortConfig& config) {
  assert(!config.addresses.empty() && config.addresses.size() <= UINT16_MAX);
  auto state = std::make_unique<State>(config);
  if (const auto opened = state->flows.open(); !opened) return opened.error();
  if (const auto opened = state->open_sockets(); !opened) return opened.error();
  state->clock.open(state->flows.interface().name);
  return std::unique_ptr<PacketPort>(new PacketPort(std::move(state)));
}

Result<FlowId> PacketPort::add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
  return state_->flows.add_flow(address, dst_ip, src_port, traffic_class);
}

int PacketPort::arrival_fd() const { return state_->receiver.get(); }

const PortRecord& PacketPort::counters() const { return state_->flows.counters; }

int64_t PacketPort::receive_overflows() const {
  tpacket_stats stats{};  // since the last query
  socklen_t length = sizeof stats;
  if (getsockopt(state_->receiver.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0) state_->dropped += stats.tp_drops;
  return state_->dropped + state_->ring.cut();
}

std::vector<std::string> PacketPort::degraded() const {
  std::vector<std::string> out;
  if (!state_->bypasses_qdisc) out.push_back("packets pass the queueing discipline of " + state_->flows.interface().name);
  return out;
}

std::vector<std::string> PacketPort::capabilities() const {
  return {state_->clock.text(),
          "paced packets leave when the loop comes to it: packet sockets are used past the queueing discipline"};
}

std::string PacketPort::link_loss() const {
  const int code = state_->lost_errno.load(std::memory_order_relaxed);
  return code == 0 ? "" : "the kernel did not send a frame: " + errno_text(code);
}

std::string PacketPort::last_error() const {
  const int code = state_->last_errno;
  return code == 0 ? "" : "the kernel did not send a frame: " + errno_text(code);
}

bool PacketPort::send_pause(const ethernet::Pause& pause) {
  const auto frame = ethernet::pause_frame(state_->flows.interface().mac, pause);
  if (::send(state_->sender.get(), frame.data(), frame.size(), 0) < 0) return false;
  ++state_->flows.counters.tx_pause_frames;
  state_->flows.note_sent(frame, {}, monotonic_ns());
  return true;
}

}  // namespace etloop
