#include "port/xdp/xdp_port.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cassert>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "port/frame_flows.h"
#include "port/shared_queues.h"
#include "port/system_clock.h"
#include "port/xdp/xdp_socket.h"

namespace etloop {
namespace {

constexpr uint32_t kMostRun = 32;               // packets per system call in copy mode
constexpr uint32_t kMostBuilt = 32;             // built packets sent together
constexpr size_t kSingleBytes = 4096 + 64;      // a single datagram: path MTU, headers, ICRC
constexpr Nanos kRoomRetryNs = 20'000;          // the return of chunks causes no event

// Receive queues of an interface; 0 if its driver does not report them. (sysfs would show those of another namespace.)
uint32_t receive_queues(const std::string& interface) {
  const Descriptor asked(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  return ioctl(asked.get(), SIOCETHTOOL, &request) == 0 ? channels.rx_count + channels.combined_count : 0;
}

}  // namespace

struct XdpPort::State {
  explicit State(const PortConfig& settings) : config(settings), flows(settings), middles(settings.path_mtu) {}

  Result<void> open();
  // Make the kernel send the queued frames.
  TxResult push_out();

  // Destroyed after the program, which is detached first.
  XdpSocket socket;
  PortConfig config;
  FrameFlows flows;
  bool no_room = false;
  uint32_t built_in_line = 0;  // packets the kernel was not notified of
  Nanos paused_until_ns = kNever;
  int last_errno = 0;
  std::atomic<int> lost_errno = 0;  // of the last frames that were lost with the link, see is_lost_with_link
  bool is_broken = false;  // the kernel rejected built packets, too late to report which
  MiddleRun middles;
  std::array<uint8_t, ethernet::kMaxHeaderBytes + kSingleBytes> single{};
  BuiltFrame built;
};

Result<void> XdpPort::State::open() {
  if (!flows.uses_plain_addresses()) {
    return Error{"packets with SRv6 segments have an outer header, and an xdp port does not parse the inner one; "
                 "write backend: packet in the rig"};
  }
  if (auto opened = flows.open(); !opened) return opened;
  const Interface& interface = flows.interface();
  const uint32_t present = receive_queues(interface.name);
  const uint32_t taken = config.shared == nullptr ? 1 : config.shared->queues;
  if (present != 0 && present != taken) {
    return Error{interface.name + " has " + std::to_string(present) + " receive queues, not " + std::to_string(taken) +
                 ", and packets that come to one that is not taken are lost; write queues: " + std::to_string(present) +
                 ", or ethtool -L " + interface.name + " combined " + std::to_string(taken)};
  }
  if (config.shared == nullptr) config.shared = std::make_shared<SharedQueues>(1, 0);
  if (config.queue == 0) {
    auto attached = config.shared->program.attach(interface.index, interface.name, config.udp_port, taken);
    if (!attached) return attached;
  }
  XdpSettings settings;
  settings.interface_index = interface.index;
  settings.interface = interface.name;
  settings.queue = config.queue;
  settings.busy_poll_us = config.busy_poll_us;
  if (auto opened = socket.open(settings); !opened) return opened;
  if (auto given = config.shared->program.give(config.queue, socket.fd()); !given) return given;
  flows.counters.receive_buffer_bytes = int64_t{settings.rx_chunks} * kChunkBytes;
  return {};
}

TxResult XdpPort::State::push_out() {
  const bool builds = std::exchange(built_in_line, 0) > 0;
  flows.counters.tx_calls += builds ? 1 : 0;
  const int code = socket.kick();
  if (is_lost_with_link(code)) lost_errno.store(code, std::memory_order_relaxed);
  if (code == 0 || is_lost_with_link(code)) return TxResult::sent;
  last_errno = code;
  is_broken |= builds;
  return TxResult::failed;
}

XdpPort::XdpPort(std::unique_ptr<State> state) : state_(std::move(state)) {}
XdpPort::~XdpPort() = default;

Result<std::unique_ptr<XdpPort>> XdpPort::open(const PortConfig& config) {
  assert(!config.addresses.empty() && config.addresses.size() <= UINT16_MAX);
  auto state = std::make_unique<State>(config);
  if (const auto opened = state->open(); !opened) return opened.error();
  return std::unique_ptr<XdpPort>(new XdpPort(std::move(state)));
}

Result<FlowId> XdpPort::add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
  return state_->flows.add_flow(address, dst_ip, src_port, traffic_class);
}

TxResult XdpPort::send(const PacketRun& run) {
  State& state = *state_;
  const Nanos now = monotonic_ns();
  if (const Nanos until = state.flows.paused_until(run, now); until != kNever) {
    state.paused_until_ns = until;
    return TxResult::held;  // other priorities may continue
  }
  const size_t bytes = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
  const std::span<const uint8_t> header = state.flows.headers(run, bytes, now);
  if (header.empty()) return TxResult::sent;  // no neighbour yet: lost, as on a link that is down
  XdpSocket& socket = state.socket;
  if (!socket.has_room(run.count, header.size() + bytes)) {
    ++state.flows.counters.would_block;
    state.no_room = true;
    state.push_out();
    return TxResult::would_block;
  }
  const wire::IpFlow& tuple = state.flows.tuple(run.flow);
  if (run.head.opcode == wire::Opcode::write_middle && run.head.payload == nullptr && !run.corrupt_icrc) {
    const auto datagrams = state.middles.build(tuple, run, IpIds::zero);
    for (uint32_t i = 0; i < run.count; ++i) {
      socket.put(header, datagrams.subspan(i * bytes, bytes));
      state.flows.note_sent(header, datagrams.subspan(i * bytes, bytes), now);
    }
  } else {
    assert(run.count == 1);
    build_datagram(tuple, 0, run.head, state.single);
    if (run.corrupt_icrc) state.single[bytes - 1] ^= 0x01;
    socket.put(header, std::span(state.single).first(bytes));
    state.flows.note_sent(header, std::span(state.single).first(bytes), now);
  }
  ++state.flows.counters.tx_calls;
  state.flows.counters.tx_datagrams += run.count;
  state.flows.counters.tx_bytes += static_cast<int64_t>(run.count * bytes);
  return state.push_out();
}

// Built packets are sent together, at the latest before the next receive.
TxResult XdpPort::send_built(const BuiltPacket& built) {
  State& state = *state_;
  if (state.is_broken) return TxResult::failed;
  const Nanos now = monotonic_ns();
  if (const Nanos until = state.flows.paused_until(built, now); until != kNever) {
    state.paused_until_ns = until;
    return TxResult::held;
  }
  BuiltFrame& frame = state.built;
  if (!state.flows.put_built(built, now, frame)) return TxResult::sent;  // no neighbour yet: lost, as on a link that is down
  XdpSocket& socket = state.socket;
  if (!socket.has_room(1, frame.bytes.size())) {
    ++state.flows.counters.would_block;
    state.no_room = true;
    state.push_out();
    return TxResult::would_block;
  }
  const std::span<const uint8_t> header = std::span<const uint8_t>(frame.bytes).first(frame.header_bytes);
  const std::span<const uint8_t> datagram = std::span<const uint8_t>(frame.bytes).subspan(frame.header_bytes);
  socket.put(header, datagram);
  state.flows.note_sent(header, datagram, now);
  ++state.flows.counters.tx_datagrams;
  state.flows.counters.tx_bytes += static_cast<int64_t>(built.datagram_bytes());
  return ++state.built_in_line < kMostBuilt ? TxResult::sent : state.push_out();
}

uint32_t XdpPort::max_run(uint32_t payload_bytes) const { return std::min(kMostRun, MiddleRun::max_segments(payload_bytes)); }

size_t XdpPort::receive(PortSink& sink, size_t budget) {
  State& state = *state_;
  const Nanos now = monotonic_ns();
  size_t packets = 0;
  sink.on_read(now);
  if (!state.socket.idle()) state.push_out();
  if (state.socket.busy_polls()) state.socket.drive();
  ++state.flows.counters.rx_calls;
  state.socket.receive(budget, [&](std::span<const uint8_t> frame) { packets += state.flows.take(frame, {}, sink, now); });
  state.flows.account_pauses(now);
  return packets;
}

void XdpPort::wait(Nanos timeout_ns, int wake_fd) {
  State& state = *state_;
  if (state.built_in_line > 0) state.push_out();
  if (std::exchange(state.no_room, false)) timeout_ns = std::min(timeout_ns, kRoomRetryNs);
  if (const Nanos until = std::exchange(state.paused_until_ns, kNever); until != kNever) {
    timeout_ns = std::min(timeout_ns, until - monotonic_ns());
  }
  std::array<pollfd, 2> polled{{{wake_fd, POLLIN, 0}, {state.socket.fd(), POLLIN, 0}}};
  const Nanos bounded_ns = std::max<Nanos>(timeout_ns, 0);
  const timespec timeout{bounded_ns / 1'000'000'000, bounded_ns % 1'000'000'000};
  if (ppoll(polled.data(), polled.size(), timeout_ns == kNever ? nullptr : &timeout, nullptr) <= 0) return;
  if ((polled[0].revents & POLLIN) == 0) return;
  std::array<uint8_t, 64> drained;
  while (read(wake_fd, drained.data(), drained.size()) == static_cast<ssize_t>(drained.size())) {
  }
}

int XdpPort::arrival_fd() const { return state_->socket.fd(); }

const PortRecord& XdpPort::counters() const { return state_->flows.counters; }

int64_t XdpPort::receive_overflows() const {
  return state_->socket.dropped();
}

std::vector<std::string> XdpPort::degraded() const {
  std::vector<std::string> out;
  const std::string& name = state_->flows.interface().name;
  if (!state_->config.shared->program.in_driver()) {
    out.push_back("the driver of " + name + " has no XDP: frames take the kernel's generic path");
  }
  if (!state_->socket.zero_copy()) out.push_back("AF_XDP on " + name + " copies frames: its driver has no zero-copy");
  if (state_->config.busy_poll_us > 0 && !state_->socket.busy_polls()) {
    out.push_back("the kernel does not let " + name + " be polled (busy_poll): it needs CAP_NET_ADMIN and Linux 5.11");
  }
  out.emplace_back("arrival times are when the loop took a frame, not when the kernel did");
  return out;
}

std::vector<std::string> XdpPort::capabilities() const {
  return {"paced packets leave when the loop comes to it: AF_XDP sockets are past the queueing discipline"};
}

bool XdpPort::send_pause(const ethernet::Pause& pause) {
  State& state = *state_;
  const auto frame = ethernet::pause_frame(state.flows.interface().mac, pause);
  XdpSocket& socket = state.socket;
  if (!socket.put(frame, {}) || socket.kick() != 0) return false;
  ++state.flows.counters.tx_pause_frames;
  state.flows.note_sent(frame, {}, monotonic_ns());
  return true;
}

std::string XdpPort::link_loss() const {
  const int code = state_->lost_errno.load(std::memory_order_relaxed);
  return code == 0 ? "" : "the kernel did not send a frame: " + errno_text(code);
}

std::string XdpPort::last_error() const {
  const int code = state_->last_errno;
  return code == 0 ? "" : "the kernel did not send a frame: " + errno_text(code);
}

}  // namespace etloop
