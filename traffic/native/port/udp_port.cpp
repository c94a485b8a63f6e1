#include "port/udp_port.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "plan/discards.h"
#include "port/datagram_capture.h"
#include "port/departures.h"
#include "port/send_control.h"
#include "port/system_clock.h"
#include "port/udp_arrivals.h"
#include "port/udp_complaints.h"
#include "port/udp_drops.h"
#include "port/udp_receivers.h"
#include "port/udp_socket.h"
#include "port/waiting_datagrams.h"
#include "wire/frame_builder.h"

namespace etloop {
namespace {

constexpr Nanos kDeviceQueueRetryNs = 50'000;     // after ENOBUFS, whose end causes no event
constexpr Nanos kDepartureHorizonNs = 1'000'000'000;  // fq's limit is 10 s
constexpr Nanos kAnswerPatienceNs = 1'000'000;  // an answer costs a system call, as much as half a send of fifteen packets
constexpr int kMaxEvents = 64;
constexpr uint64_t kSenderTag = UINT64_MAX;  // tag of an epoll event; receivers have their index

// Unconnected, although connecting would save the route lookup per send: the kernel would then number its IPv4 packets from a
// random start, and the identification is covered by the ICRC.
struct Sender {
  Descriptor socket;
  size_t segment_bytes = 0;  // default segment size of longer sends; 0: none
};

struct Flow {
  int fd;
  Sender* sender;
  SocketAddress destination;
  wire::IpFlow tuple;
  uint8_t traffic_class;
};

}  // namespace

struct UdpPort::State {
  explicit State(const PortConfig& settings)
      : config(settings), capture(settings.capture), random(settings.drop_seed), middles(settings.path_mtu) {}

  Result<void> open_receivers();
  Result<bool> shares_source_port(uint16_t address, uint16_t src_port);
  TxResult transmitted(ssize_t result, int fd, size_t bytes);
  TxResult send(const PacketRun& run, std::span<const uint8_t>& datagrams);
  TxResult send_together(const Flow& flow, std::span<const uint8_t> datagrams, const PacketRun& run);
  TxResult send_waiting();
  void note_sent(const PacketRun& run, std::span<const uint8_t> datagrams, size_t segment_bytes);
  static void cut_into(Sender& sender, size_t segment_bytes);
  TxResult counted(TxResult result, const PacketRun& run);
  void count_sent(int64_t datagrams, Nanos departs_ns);
  void query_interfaces();
  TxResult send_backlog();
  TxResult refuse(int fd, int code);
  size_t receive_from(UdpReceiver& receiver, PortSink& sink, size_t budget);
  size_t receive_in_turn(PortSink& sink, size_t budget);
  size_t receive_ready(PortSink& sink, size_t budget);
  size_t deliver(const Datagram& whole, size_t segment_bytes, PortSink& sink, Nanos arrived_ns);
  bool drops() { return random() % 1'000'000 < config.drop_per_million; }

  PortConfig config;
  DatagramCapture capture;
  bool own_priorities = false;  // per-packet priorities, if an interface writes them into VLAN tags
  UdpReceivers receivers;
  UdpDropReasons drop_reasons;
  Nanos read_ns = 0;  // when a receiver was last read
  std::map<std::tuple<uint16_t, uint16_t, uint8_t>, Sender> senders;  // by address index, source port and class
  std::vector<Flow> flows;
  size_t next_receiver = 0;  // first of its kind, if polled one by one
  Descriptor poll;  // receivers for reading, if there are many, and blocked senders for one writable event
  bool sender_blocked = false;
  bool device_queue_full = false;
  ArrivalClock clock;
  std::string departures_refused_why;  // "": departure times are honoured
  std::mt19937_64 random;
  PortRecord counters{};
  int last_errno = 0;
  std::atomic<int> lost_errno = 0;  // of the last datagrams that were lost with the link, see is_lost_with_link
  bool is_lost = false;             // whether the last send was

  MiddleRun middles;
  std::array<uint8_t, wire::kMaxHeaderBytes + 65536> single;
  // The rest of a run sent datagram by datagram that the kernel has not accepted yet. It stays in `middles`.
  std::span<const uint8_t> backlog;
  WaitingDatagrams waiting;
  FlowId backlog_flow = 0;
  Nanos backlog_departs_ns = 0;
  std::array<mmsghdr, MiddleRun::kMaxSegments> batch{};
  std::array<iovec, MiddleRun::kMaxSegments> batch_vectors{};
  ReceiveBuffers received;
};

Result<void> UdpPort::State::open_receivers() {
  poll = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (poll.get() < 0) {
    return Error{"cannot create an epoll descriptor: " + errno_text(errno)};
  }
  if (auto opened = receivers.open(config, poll.get()); !opened) return opened;
  counters.receive_buffer_bytes = receivers.least_buffer_bytes();
  return {};
}

// Query the interfaces of the addresses. The first one determines the timestamps of all; all must honour departure times.
void UdpPort::State::query_interfaces() {
  std::string looked_at;
  for (const IpAddress& address : config.addresses) {
    const Result<Interface> interface = find_interface("", address);
    if (!interface) {
      departures_refused_why = interface.error().text;
      return;
    }
    if (interface->name == looked_at) continue;
    if (looked_at.empty()) clock.open(interface->name);
    looked_at = interface->name;
    departures_refused_why = departures_refused(*interface);
    if (!departures_refused_why.empty()) return;
  }
  if (!allow_departures(receivers[0].socket.get())) {
    departures_refused_why = "the kernel takes no departure times (SO_TXTIME): " + errno_text(errno) + "; Linux 4.19 does";
  }
}

TxResult UdpPort::State::refuse(int fd, int code) {
  last_errno = code;
  if (code != EAGAIN && code != EWOULDBLOCK && code != ENOBUFS) return TxResult::failed;
  ++counters.would_block;
  if (code == ENOBUFS) {
    device_queue_full = true;
    return TxResult::would_block;
  }
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLONESHOT;
  event.data.u64 = kSenderTag;
  if (epoll_ctl(poll.get(), EPOLL_CTL_MOD, fd, &event) != 0) epoll_ctl(poll.get(), EPOLL_CTL_ADD, fd, &event);
  sender_blocked = true;
  return TxResult::would_block;
}

TxResult UdpPort::State::transmitted(ssize_t result, int fd, size_t bytes) {
  ++counters.tx_calls;
  is_lost = result < 0 && is_lost_with_link(errno);
  if (is_lost) {
    lost_errno.store(errno, std::memory_order_relaxed);
    return TxResult::sent;
  }
  if (result < 0) return refuse(fd, errno);
  counters.tx_bytes += static_cast<int64_t>(bytes);
  return TxResult::sent;
}

// Send with one system call: a datagram, or several that the kernel segments.
TxResult UdpPort::State::send_together(const Flow& flow, std::span<const uint8_t> datagrams, const PacketRun& run) {
  SendControl control;
  if (run.traffic_class != kFlowClass) control.class_of(flow.tuple.dst_ip.is_v4(), run.traffic_class);
  if (own_priorities && (run.priority != kFlowPriority || run.traffic_class != kFlowClass)) {
    control.priority_of(run.priority == kFlowPriority ? config.vlan_priority : run.priority);
  }
  if (run.count > 1 && run.may_wait) control.segments_of(waiting.segment_bytes());
  if (run.count > 1 && !run.may_wait) cut_into(*flow.sender, datagrams.size() / run.count);
  if (run.count == 1 && flow.sender->segment_bytes != 0 && datagrams.size() > flow.sender->segment_bytes) control.segments_of(0);
  if (run.departs_ns != 0) control.departs(run.departs_ns);
  if (control.empty()) {
    const ssize_t sent = sendto(flow.fd, datagrams.data(), datagrams.size(), 0, &flow.destination.any, flow.destination.length);
    return counted(transmitted(sent, flow.fd, datagrams.size()), run);
  }
  // The kernel only reads through these two.
  iovec vector{const_cast<uint8_t*>(datagrams.data()), datagrams.size()};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(&flow.destination.any);
  message.msg_namelen = flow.destination.length;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  control.attach(message);
  return counted(transmitted(sendmsg(flow.fd, &message, 0), flow.fd, datagrams.size()), run);
}

// A socket option set once saves a control message per send. Not before the first run, for which probes have verified the path
// MTU: with the option older kernels reject even short datagrams on a smaller path.
void UdpPort::State::cut_into(Sender& sender, size_t segment_bytes) {
  if (sender.segment_bytes == segment_bytes) return;
  const int value = static_cast<int>(segment_bytes);
  setsockopt(sender.socket.get(), SOL_UDP, UDP_SEGMENT, &value, sizeof value);  // was taken when the socket was opened
  sender.segment_bytes = segment_bytes;
}

void UdpPort::State::note_sent(const PacketRun& run, std::span<const uint8_t> datagrams, size_t segment_bytes) {
  if (!capture.is_on() || is_lost) return;
  const Flow& flow = flows[run.flow];
  const bool counts_ids = config.segmentation_offload && run.count > 1;
  const auto traffic_class = run.traffic_class == kFlowClass ? flow.traffic_class : static_cast<uint8_t>(run.traffic_class);
  capture.sent(flow.tuple, traffic_class, datagrams, segment_bytes, counts_ids, monotonic_ns());
}

// Send the waiting datagrams first. They stay if the kernel accepts none now, or rejects them: the next send reports it.
TxResult UdpPort::State::send_waiting() {
  if (waiting.empty()) return TxResult::sent;
  const PacketRun run = waiting.run();
  const TxResult result = send_together(flows[run.flow], waiting.bytes(), run);
  if (result != TxResult::sent) return result;
  note_sent(run, waiting.bytes(), waiting.segment_bytes());
  waiting.clear();
  return result;
}

TxResult UdpPort::State::counted(TxResult result, const PacketRun& run) {
  if (result == TxResult::sent && !is_lost) count_sent(run.count, run.departs_ns);
  return result;
}

void UdpPort::State::count_sent(int64_t datagrams, Nanos departs_ns) {
  counters.tx_datagrams += datagrams;
  if (departs_ns != 0) counters.scheduled_datagrams += datagrams;
}

TxResult UdpPort::State::send_backlog() {
  const size_t segment_bytes = middles.segment_bytes();
  const Flow& flow = flows[backlog_flow];
  SendControl control;
  if (backlog_departs_ns != 0) control.departs(backlog_departs_ns);
  while (!backlog.empty()) {
    const size_t count = backlog.size() / segment_bytes;
    for (size_t i = 0; i < count; ++i) {
      batch_vectors[i] = {const_cast<uint8_t*>(backlog.data()) + i * segment_bytes, segment_bytes};
      msghdr& header = batch[i].msg_hdr;
      header.msg_name = const_cast<sockaddr*>(&flow.destination.any);
      header.msg_namelen = flow.destination.length;
      header.msg_iov = &batch_vectors[i];
      header.msg_iovlen = 1;
      control.attach(header);
    }
    const int taken = sendmmsg(flow.fd, batch.data(), static_cast<unsigned>(count), 0);
    const size_t taken_bytes = taken > 0 ? static_cast<size_t>(taken) * segment_bytes : 0;
    const TxResult result = transmitted(taken, flow.fd, taken_bytes);
    if (result == TxResult::failed || is_lost) backlog = {};
    if (result != TxResult::sent || is_lost) return result;
    count_sent(taken, backlog_departs_ns);
    backlog = backlog.subspan(taken_bytes);
  }
  return TxResult::sent;
}

size_t UdpPort::State::deliver(const Datagram& whole, size_t segment_bytes, PortSink& sink, Nanos arrived_ns) {
  size_t packets = 0, at = 0;
  do {
    Datagram packet = whole;
    packet.bytes = whole.bytes.subspan(at, std::min(segment_bytes, whole.bytes.size() - at));
    packet.datagram_bytes = static_cast<uint32_t>(packet.bytes.size());
    if (capture.is_on()) capture.received(packet, config.addresses[packet.address], config.udp_port, arrived_ns);
    ++counters.rx_datagrams;
    counters.rx_bytes += packet.datagram_bytes;
    if (packet.datagram_bytes < wire::kBthBytes + wire::kIcrcBytes) {
      discard(counters, Discard::too_short);
    } else if (config.drop_per_million != 0 && drops()) {
      ++counters.injected_drops;
    } else {
      sink.on_datagram(packet, arrived_ns);
    }
    ++packets;
    at += segment_bytes;
  } while (at < whole.bytes.size());  // includes an empty datagram
  return packets;
}

size_t UdpPort::State::receive_from(UdpReceiver& receiver, PortSink& sink, size_t budget) {
  size_t packets = 0;
  int count = kReceiveBatch;
  while (packets < budget && count == kReceiveBatch) {
    received.reset();
    const Nanos before = monotonic_ns();
    count = recvmmsg(receiver.socket.get(), received.messages.data(), kReceiveBatch, MSG_DONTWAIT, nullptr);
    ++counters.rx_calls;
    const Nanos now = monotonic_ns();
    if (count > 0) clock.begin(now);
    sink.on_read(now);
    read_ns = now;
    for (int i = 0; i < count; ++i) {
      const auto slot = static_cast<size_t>(i);
      const size_t bytes = received.messages[slot].msg_len;
      const Arrival arrival = read_control(received.messages[slot].msg_hdr, bytes);
      const SocketAddress& source = received.sources[slot];
      Datagram datagram;
      datagram.bytes = {received.bytes.data() + slot * kReceiveBytes, bytes};
      datagram.src_ip = source.ip();
      datagram.src_port = source.port();
      datagram.address = receiver.address;
      datagram.traffic_class = arrival.traffic_class;
      const Nanos arrived_ns = clock.arrived(arrival.stamps, receiver.drained_ns, now, counters);
      packets += deliver(datagram, arrival.segment_bytes, sink, arrived_ns);
    }
    if (count < kReceiveBatch) receiver.drained_ns = before;
  }
  return packets;
}

// Start at another receiver every time, for fairness.
size_t UdpPort::State::receive_in_turn(PortSink& sink, size_t budget) {
  const size_t start = next_receiver++;
  const auto receive_all = [&](size_t first, size_t count, size_t most) {
    size_t packets = 0;
    for (size_t i = 0; i < count && packets < most; ++i) {
      packets += receive_from(receivers[first + (start + i) % count], sink, most - packets);
    }
    return packets;
  };
  const size_t short_count = receivers.short_count();
  if (short_count == 0) return receive_all(0, receivers.size(), budget);
  const size_t packets = receive_all(0, short_count, budget);
  return packets + receive_all(short_count, receivers.size() - short_count, receivers.long_budget(packets, budget, read_ns));
}

// As `receive_in_turn`, from the receivers that epoll reports.
size_t UdpPort::State::receive_ready(PortSink& sink, size_t budget) {
  std::array<epoll_event, kMaxEvents> events;
  const int ready = epoll_wait(poll.get(), events.data(), kMaxEvents, 0);
  const auto receive_all = [&](size_t first, size_t end, size_t most) {
    size_t packets = 0;
    for (int i = 0; i < ready; ++i) {
      const uint64_t index = events[static_cast<size_t>(i)].data.u64;
      if (index < first || index >= end || packets >= most) continue;  // the kernel reports unread ones first next time
      packets += receive_from(receivers[index], sink, most - packets);
    }
    return packets;
  };
  const size_t short_count = receivers.short_count();
  if (short_count == 0) return receive_all(0, receivers.size(), budget);
  const size_t packets = receive_all(0, short_count, budget);
  return packets + receive_all(short_count, receivers.size(), receivers.long_budget(packets, budget, read_ns));
}

UdpPort::UdpPort(std::unique_ptr<State> state) : state_(std::move(state)) {}
UdpPort::~UdpPort() = default;

Result<std::unique_ptr<UdpPort>> UdpPort::open(const PortConfig& config) {
  assert(!config.addresses.empty() && config.addresses.size() <= UINT16_MAX);
  auto state = std::make_unique<State>(config);
  if (const auto opened = state->open_receivers(); !opened) return opened.error();
  state->query_interfaces();
  if (!config.departure_times) state->departures_refused_why = "faults of the scenario act on packets as they leave";
  state->own_priorities = config.vlan_id >= 0 && packets_have_priorities(config.addresses[0]);
  return std::unique_ptr<UdpPort>(new UdpPort(std::move(state)));
}

// Whether sockets of other traffic classes send from this port already; they are made to share it.
Result<bool> UdpPort::State::shares_source_port(uint16_t address, uint16_t src_port) {
  bool shares = false;
  for (auto it = senders.lower_bound({address, src_port, 0}); it != senders.end(); ++it) {
    const auto [of_address, of_port, traffic_class] = it->first;
    if (of_address != address || of_port != src_port) break;
    if (it->second.socket.get() < 0) continue;
    if (const auto shared = share_port(it->second.socket.get()); !shared) return shared.error();
    shares = true;
  }
  return shares;
}

Result<FlowId> UdpPort::add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
  assert(address < state_->config.addresses.size());
  const IpAddress& src_ip = state_->config.addresses[address];
  Sender& sender = state_->senders[{address, src_port, traffic_class}];
  if (sender.socket.get() < 0) {
    const int priority = state_->config.vlan_id >= 0 ? state_->config.vlan_priority : -1;
    const bool departures = state_->departures_refused_why.empty();
    auto shares_port = state_->shares_source_port(address, src_port);
    if (!shares_port) return shares_port.error();
    const SenderOptions options{traffic_class, state_->config.segmentation_offload, departures, state_->config.hop_limit,
                                priority, state_->config.shared != nullptr || *shares_port};
    auto opened = open_sender(src_ip, src_port, options);
    if (!opened) return opened.error();
    sender.socket = *std::move(opened);
  }
  const uint16_t dst_port = state_->config.udp_port;
  state_->flows.push_back(
      {sender.socket.get(), &sender, socket_address(dst_ip, dst_port), {src_ip, dst_ip, src_port, dst_port}, traffic_class});
  return static_cast<FlowId>(state_->flows.size() - 1);
}

TxResult UdpPort::send(const PacketRun& run) {
  State& state = *state_;
  const bool waits = state.config.segmentation_offload && state.backlog.empty() && state.waiting.holds(run);
  if (!waits || !state.waiting.takes(run)) {
    if (const TxResult result = state.send_waiting(); result != TxResult::sent) return result;
  }
  if (waits) {
    state.waiting.add(state.flows[run.flow].tuple, run);
    return !run.may_wait && state.send_waiting() == TxResult::failed ? TxResult::failed : TxResult::sent;
  }
  std::span<const uint8_t> datagrams;
  const TxResult result = state.send(run, datagrams);
  if (result == TxResult::sent) state.note_sent(run, datagrams, datagrams.size() / run.count);
  return result;
}

// `datagrams`: the encoded run.
TxResult UdpPort::State::send(const PacketRun& run, std::span<const uint8_t>& datagrams) {
  if (!backlog.empty()) {
    if (const TxResult result = send_backlog(); result != TxResult::sent) return result;
  }
  const Flow& flow = flows[run.flow];
  const bool special = run.corrupt_icrc || run.traffic_class != kFlowClass || run.priority != kFlowPriority;
  const bool constant_middle = run.head.opcode == wire::Opcode::write_middle && run.head.payload == nullptr;
  if (!constant_middle || special) {
    assert(run.count == 1);
    datagrams = {single.data(), build_datagram(flow.tuple, 0, run.head, single)};
    if (run.corrupt_icrc) single[datagrams.size() - 1] ^= 0x01;
    return send_together(flow, datagrams, run);
  }
  const bool segmented = config.segmentation_offload && run.count > 1;
  datagrams = middles.build(flow.tuple, run, segmented ? IpIds::counting : IpIds::zero);
  if (run.count == 1 || segmented) return send_together(flow, datagrams, run);
  backlog = datagrams;
  backlog_flow = run.flow;
  backlog_departs_ns = run.departs_ns;
  const TxResult result = send_backlog();
  const bool taken = backlog.size() < datagrams.size();
  if (result == TxResult::would_block && taken) return TxResult::sent;  // the rest leaves before anything else
  if (result != TxResult::sent) backlog = {};
  return result;
}

bool UdpPort::transmit_from(Core& core, Clock& clock, size_t budget) {
  const bool more = DatagramPort::transmit_from(core, clock, budget);
  state_->send_waiting();
  return more;
}

uint32_t UdpPort::max_run(uint32_t payload_bytes) const { return MiddleRun::max_segments(payload_bytes); }

Nanos UdpPort::departure_horizon_ns() const { return state_->departures_refused_why.empty() ? kDepartureHorizonNs : 0; }

Nanos UdpPort::answer_patience_ns() const { return kAnswerPatienceNs; }

std::vector<std::string> UdpPort::capabilities() const {
  const std::string& why = state_->departures_refused_why;
  std::vector<std::string> what{state_->clock.text(), why.empty()
                                                          ? "paced packets leave at their times by the kernel's fq (SO_TXTIME)"
                                                          : "paced packets leave when the loop comes to it: " + why};
  if (const std::string& unsorted = state_->receivers.unsorted_why(); !unsorted.empty()) what.push_back(unsorted);
  return what;
}

size_t UdpPort::receive(PortSink& sink, size_t budget) {
  State& state = *state_;
  if (!state.backlog.empty()) state.send_backlog();
  state.send_waiting();
  return state.receivers.asked_one_by_one() ? state.receive_in_turn(sink, budget) : state.receive_ready(sink, budget);
}

void UdpPort::wait(Nanos timeout_ns, int wake_fd) {
  State& state = *state_;
  if (!state.backlog.empty()) state.send_backlog();
  state.send_waiting();
  if (std::exchange(state.device_queue_full, false)) timeout_ns = std::min(timeout_ns, kDeviceQueueRetryNs);
  const bool one_by_one = state.receivers.asked_one_by_one();
  const int watched = !one_by_one || state.sender_blocked ? state.poll.get() : -1;  // -1: ignored
  std::array<pollfd, 2 + UdpReceivers::kAskedOneByOne> polled{{{watched, POLLIN, 0}, {wake_fd, POLLIN, 0}}};
  for (size_t i = 0; i < UdpReceivers::kAskedOneByOne; ++i) {
    polled[2 + i] = {one_by_one && i < state.receivers.size() ? state.receivers[i].socket.get() : -1, POLLIN, 0};
  }
  const Nanos bounded_ns = std::max<Nanos>(timeout_ns, 0);
  const timespec timeout{bounded_ns / 1'000'000'000, bounded_ns % 1'000'000'000};
  if (ppoll(polled.data(), polled.size(), timeout_ns == kNever ? nullptr : &timeout, nullptr) <= 0) return;
  if ((polled[1].revents & POLLIN) != 0) {
    std::array<uint8_t, 64> drained;
    while (read(wake_fd, drained.data(), drained.size()) == static_cast<ssize_t>(drained.size())) {
    }
  }
  if (state.sender_blocked && polled[0].revents != 0) {  // writable events are one-shot: consume them
    std::array<epoll_event, kMaxEvents> events;
    epoll_wait(state.poll.get(), events.data(), kMaxEvents, 0);
    state.sender_blocked = false;
  }
}

const PortRecord& UdpPort::counters() const { return state_->counters; }

int64_t UdpPort::receive_overflows() const {
  return state_->drop_reasons.divide(state_->receivers.kernel_drops(), state_->counters.rx_datagrams).no_room;
}

int64_t UdpPort::damaged_datagrams() const {
  return state_->drop_reasons.divide(state_->receivers.kernel_drops(), state_->counters.rx_datagrams).damaged;
}

std::vector<std::string> UdpPort::degraded() const { return udp_degraded(state_->config, state_->own_priorities); }

std::string UdpPort::link_loss() const {
  const int code = state_->lost_errno.load(std::memory_order_relaxed);
  return code == 0 ? "" : udp_send_error(state_->config, code);
}

std::string UdpPort::last_error() const {
  return state_->last_errno == 0 ? "" : udp_send_error(state_->config, state_->last_errno);
}

}  // namespace etloop
