#include "bare/soft_switch.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "bare/pooled_frames.h"
#include "bare/soft_socket.h"
#include "base/ip_address.h"
#include "base/ring.h"
#include "port/system_clock.h"
#include "port/udp_socket.h"
#include "switch/station_table.h"

namespace etloop {
namespace {
constexpr size_t kSocketBudget = 512;  // joined frames per socket and turn
constexpr Nanos kLongestSleepNs = 100'000'000;
constexpr Nanos kRetryNs = 50'000;  // after a full kernel queue, whose drain causes no event
constexpr uint32_t kPauseHandle = FramePool::kNone;
constexpr uint32_t kNowhere = StationTable::kNowhere;
}  // namespace

struct SoftSwitch::State final : PooledFrames, FrameSink {
  State(const SoftSwitchConfig& settings)
      : PooledFrames(settings.mtu_bytes + ethernet::kMaxHeaderBytes, settings.memory_bytes), config(settings) {}

  Result<void> open();
  void run();
  void turn();
  bool fail(const std::string& reason);  // always false
  bool receive(Nanos& horizon_ns);
  bool feed(Nanos horizon_ns);
  void hand_out(size_t port);
  void wait();
  void answer();
  SoftSnapshot take_snapshot();

  void on_frame(const ReceivedFrame& received) override;
  void store(std::span<const uint8_t> bytes, const soft::OffloadHeader& offload, const soft::Headers& headers,
             const ReceivedFrame& received);
  void arrive(const soft::Headers& headers, uint32_t handle, Nanos stamp_ns);
  uint32_t copy_of(uint32_t handle);

  void deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) override;
  void pause(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) override;

  struct Arrival {
    Nanos stamp_ns;
    uint32_t order;
    uint32_t attachment;
    SwitchFrame frame;  // for a pause: `handle` is kPauseHandle, `destination` its priority, `frame_bytes` its quanta
  };
  // Requests of other threads to the switch's thread, and its answers.
  struct Exchange {
    std::mutex mutex;  // protects everything below
    std::condition_variable answered;
    bool wanted = false;
    bool ended = false;
    std::string failure;
    SoftSnapshot last;
    std::vector<std::pair<FabricEnd, bool>> link_orders;
  };
  struct Due {
    Nanos at_ns = 0;
    uint32_t handle = 0;  // kPauseHandle: a pause
    uint16_t quanta = 0;
    uint8_t priority = 0;
  };

  const SoftSwitchConfig config;
  std::unique_ptr<SoftFabric> fabric;
  std::vector<std::unique_ptr<SoftSocket>> sockets;
  std::vector<SoftPortCounters> counters;
  std::vector<Ring<Due>> due;
  std::vector<bool> blocked;
  std::unordered_map<IpAddress, uint32_t, IpAddressHash> by_address;
  StationTable stations;
  std::vector<Arrival> arrivals;
  std::vector<pollfd> polled;
  std::vector<uint8_t> tagged;  // a frame with its tag reinserted
  std::array<int64_t, kTurnaroundBuckets> lateness{};
  Nanos worst_lateness_ns = 0;
  Nanos begin_ns = 0;
  int64_t turns = 0;
  bool real_time = false;
  size_t receiving = 0;  // port whose socket is being drained

  Descriptor wake;
  std::thread thread;
  std::atomic<bool> stopping{false};
  std::atomic<bool> asked{false};
  Exchange exchange;
};

// ---- opening

Result<void> SoftSwitch::State::open() {
  if (std::string wrong = validate(config.fabric); !wrong.empty()) return Error{std::move(wrong)};
  if (config.ports.size() != config.fabric.attachments.size()) {
    return Error{"ports and attachments differ in number"};
  }
  wake = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  for (size_t i = 0; i < config.ports.size(); ++i) {
    const SoftPortConfig& port = config.ports[i];
    auto socket = SoftSocket::open(port.interface, config.learns);
    if (!socket) return socket.error();
    sockets.push_back(*std::move(socket));
    polled.push_back({sockets.back()->fd(), POLLIN, 0});
    if (port.host_mac != ethernet::Mac{}) stations.fix(port.host_mac, static_cast<uint32_t>(i));
    for (const IpAddress& address : port.addresses) by_address[address] = static_cast<uint32_t>(i);
  }
  polled.push_back({wake.get(), POLLIN, 0});
  counters.resize(config.ports.size());
  due.resize(config.ports.size());
  blocked.resize(config.ports.size());
  begin_ns = monotonic_ns();
  fabric = std::make_unique<SoftFabric>(config.fabric, *this, begin_ns);
  return {};
}

// ---- in

void SoftSwitch::State::on_frame(const ReceivedFrame& received) {
  SoftPortCounters& count = counters[receiving];
  std::span<const uint8_t> bytes = received.bytes;
  soft::OffloadHeader offload = received.offload;
  if (received.tag && bytes.size() >= ethernet::kMacsBytes) {
    tagged.assign(bytes.begin(), bytes.begin() + ethernet::kMacsBytes);
    const auto control = static_cast<uint16_t>(received.tag->priority << 13 | received.tag->id);
    tagged.insert(tagged.end(), {0x81, 0x00, static_cast<uint8_t>(control >> 8), static_cast<uint8_t>(control)});
    tagged.insert(tagged.end(), bytes.begin() + ethernet::kMacsBytes, bytes.end());
    bytes = tagged;
    if ((offload.flags & soft::kNeedsChecksum) != 0) {
      offload.checksum_start = static_cast<uint16_t>(offload.checksum_start + ethernet::kTagBytes);
    }
  }
  const soft::Headers headers = soft::read_headers(bytes);
  if (config.learns && bytes.size() >= ethernet::kMacsBytes) {
    ethernet::Mac source{};
    std::copy_n(bytes.begin() + source.size(), source.size(), source.begin());
    stations.learn(source, static_cast<uint32_t>(receiving));
  }
  if (headers.use == soft::FrameUse::pause) {
    ++count.rx_pause_frames;
    const ethernet::Pause pause = *ethernet::parse_pause(bytes);
    for (uint32_t priority = 0; priority < kPriorities; ++priority) {
      if ((pause.enabled >> priority & 1) == 0) continue;
      SwitchFrame pause_frame;
      pause_frame.handle = kPauseHandle;
      pause_frame.destination = priority;
      pause_frame.frame_bytes = pause.quanta[priority];
      arrivals.push_back(
          {received.stamp_ns, static_cast<uint32_t>(arrivals.size()), static_cast<uint32_t>(receiving), pause_frame});
    }
    return;
  }
  const size_t datagrams = soft::datagrams_in(bytes, headers, offload);
  if (datagrams == 0) {
    offload.gso_type = soft::kGsoNone;
    store(bytes, offload, headers, received);
    return;
  }
  ++count.rx_joined_frames;
  const size_t most_bytes = headers.transport_at + 8 + offload.gso_bytes;
  for (size_t i = 0; i < datagrams; ++i) {
    ++count.rx_frames;
    if (most_bytes > config.mtu_bytes + ethernet::kMaxHeaderBytes) {
      ++count.uncut_frames;
      continue;
    }
    const uint32_t handle = pool.take(most_bytes);
    if (handle == FramePool::kNone) {
      ++count.memory_dropped_frames;
      continue;
    }
    StoredFrame& stored = pool.stored(handle);
    stored.bytes = static_cast<uint16_t>(soft::cut_datagram(bytes, headers, offload, i, pool.room(handle), stored.offload));
    stored.ip_at = static_cast<uint16_t>(headers.ip_at);
    arrive(headers, handle, received.stamp_ns);
  }
}

void SoftSwitch::State::store(std::span<const uint8_t> bytes, const soft::OffloadHeader& offload,
                              const soft::Headers& headers, const ReceivedFrame& received) {
  SoftPortCounters& count = counters[receiving];
  ++count.rx_frames;
  if (bytes.size() > config.mtu_bytes + ethernet::kMaxHeaderBytes) {
    ++count.uncut_frames;
    return;
  }
  const uint32_t handle = pool.take(bytes.size());
  if (handle == FramePool::kNone) {
    ++count.memory_dropped_frames;
    return;
  }
  std::memcpy(pool.room(handle).data(), bytes.data(), bytes.size());
  pool.stored(handle) = {offload, static_cast<uint16_t>(headers.use == soft::FrameUse::ip ? headers.ip_at : 0),
                         static_cast<uint16_t>(bytes.size())};
  arrive(headers, handle, received.stamp_ns);
}

uint32_t SoftSwitch::State::copy_of(uint32_t handle) {
  const uint32_t copy = pool.take(pool.stored(handle).bytes);
  if (copy == FramePool::kNone) {
    ++counters[receiving].memory_dropped_frames;
    return copy;
  }
  pool.stored(copy) = pool.stored(handle);
  std::memcpy(pool.room(copy).data(), pool.room(handle).data(), pool.stored(handle).bytes);
  return copy;
}

void SoftSwitch::State::arrive(const soft::Headers& headers, uint32_t handle, Nanos stamp_ns) {
  SwitchFrame frame{.handle = handle, .flow_key = headers.flow_key};
  frame.entropy = headers.src_port;
  frame.frame_bytes = soft::frame_bytes(pool.stored(handle).bytes);
  frame.dscp = headers.dscp;
  frame.ecn = headers.ecn & 3;
  const auto add = [&](uint32_t destination, uint32_t one) {
    frame.destination = destination;
    frame.handle = one;
    arrivals.push_back({stamp_ns, static_cast<uint32_t>(arrivals.size()), static_cast<uint32_t>(receiving), frame});
  };
  frame.segmented = headers.use == soft::FrameUse::ip && carries_segments(config.fabric, headers.dst_ip);
  if (frame.segmented) return add(0, handle);
  uint32_t destination = kNowhere;
  if (const auto found = by_address.find(headers.dst_ip); headers.use == soft::FrameUse::ip && found != by_address.end()) {
    destination = found->second;
  } else {
    destination = stations.find(headers.destination);
  }
  if (destination != kNowhere && destination != receiving) {
    add(destination, handle);
    return;
  }
  const ethernet::Mac& mac = headers.destination;
  const bool for_all = StationTable::is_group(mac) ? !StationTable::ends_here(mac) : config.learns;
  if (destination == kNowhere && for_all) {
    for (uint32_t port = 0; port < sockets.size(); ++port) {
      if (port == receiving) continue;
      if (const uint32_t copy = copy_of(handle); copy != FramePool::kNone) add(port, copy);
    }
  } else {
    ++counters[receiving].unknown_destination_frames;
  }
  pool.give(handle);
}

// Drain the sockets. `horizon_ns`: all arrivals until then are known.
bool SoftSwitch::State::receive(Nanos& horizon_ns) {
  horizon_ns = monotonic_ns();
  const bool looked = poll(polled.data(), polled.size(), 0) >= 0 || errno == EINTR;
  if (!looked) return fail("cannot look at the sockets: " + errno_text(errno));
  for (receiving = 0; receiving < sockets.size(); ++receiving) {
    if ((polled[receiving].revents & (POLLERR | POLLNVAL)) != 0) {
      // An interface that went down reports an error once; reading clears it.
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(sockets[receiving]->fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if ((polled[receiving].revents & POLLIN) == 0) continue;
    if (sockets[receiving]->drain(*this, kSocketBudget) || arrivals.empty()) continue;
    horizon_ns = std::min(horizon_ns, arrivals.back().stamp_ns);
  }
  return true;
}

bool SoftSwitch::State::feed(Nanos horizon_ns) {
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
    return a.stamp_ns != b.stamp_ns ? a.stamp_ns < b.stamp_ns : a.order < b.order;
  });
  for (const Arrival& arrival : arrivals) {
    if (arrival.frame.handle == kPauseHandle) {
      fabric->pause_from_host(arrival.attachment, static_cast<uint8_t>(arrival.frame.destination),
                              static_cast<uint16_t>(arrival.frame.frame_bytes), arrival.stamp_ns);
      continue;
    }
    if (fabric->from_host(arrival.attachment, arrival.frame, arrival.stamp_ns)) continue;
    ++counters[arrival.attachment].card_refused_frames;
    pool.give(arrival.frame.handle);
  }
  arrivals.clear();
  fabric->advance(horizon_ns);
  return fabric->stalled().empty() || fail(fabric->stalled());
}

// ---- out

void SoftSwitch::State::deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) {
  StoredFrame& stored = pool.stored(frame.handle);
  std::span<uint8_t> bytes = pool.frame(frame.handle);
  // Leave the checksum of a trimmed or corrupted frame unfinished: sockets cannot check the ICRC, and must not receive it.
  if (!frame.trimmed && !frame.corrupted) soft::finish_checksum(bytes, stored.offload);
  const auto modelled_bytes = static_cast<size_t>(std::max(frame.frame_bytes - soft::kCheckSequenceBytes, 0));
  if (frame.trimmed && modelled_bytes < bytes.size()) {
    const soft::Headers headers = soft::read_headers(bytes);
    stored.bytes = static_cast<uint16_t>(modelled_bytes);
    bytes = pool.frame(frame.handle);
    if (headers.use == soft::FrameUse::ip) soft::set_lengths(bytes, headers);
  }
  if (stored.ip_at != 0) {
    soft::set_traffic_class(bytes, stored.ip_at, static_cast<uint8_t>(frame.dscp << 2 | frame.ecn));
  }
  if (frame.corrupted) bytes.back() ^= 1;
  due[attachment].push_back({at_ns, frame.handle, 0, 0});
}

void SoftSwitch::State::pause(size_t attachment, uint8_t priority, uint16_t quanta, Nanos at_ns) {
  due[attachment].push_back({at_ns, kPauseHandle, quanta, priority});
}

void SoftSwitch::State::hand_out(size_t port) {
  Ring<Due>& queue = due[port];
  SoftPortCounters& count = counters[port];
  blocked[port] = false;
  while (!queue.empty()) {
    const Nanos now = monotonic_ns();
    std::array<std::span<const uint8_t>, SoftSocket::kSendBatch> batch;
    std::array<std::array<uint8_t, ethernet::kPauseFrameBytes>, SoftSocket::kSendBatch> pauses;
    size_t ready = 0;
    for (; ready < batch.size() && ready < queue.size() && queue[ready].at_ns <= now; ++ready) {
      const Due& next = queue[ready];
      if (next.handle == kPauseHandle) {
        ethernet::Pause pause;
        pause.enabled = static_cast<uint8_t>(1U << next.priority);
        pause.quanta[next.priority] = next.quanta;
        pauses[ready] = ethernet::pause_frame(sockets[port]->mac(), pause);
        batch[ready] = pauses[ready];
      } else {
        batch[ready] = pool.frame(next.handle);
      }
    }
    if (ready == 0) return;
    int failed = 0;
    const size_t taken = sockets[port]->send({batch.data(), ready}, failed);
    if (taken == 0 && failed == 0) {
      blocked[port] = true;
      return;
    }
    const size_t gone = taken == 0 ? 1 : taken;
    for (size_t i = 0; i < gone; ++i) {
      const Due& sent = queue.front();
      const Nanos late_ns = std::max<Nanos>(0, now - sent.at_ns);
      ++lateness[turnaround_bucket(late_ns)];
      worst_lateness_ns = std::max(worst_lateness_ns, late_ns);
      if (late_ns > config.late_ns) ++count.late_frames;
      if (taken == 0) {
        ++count.send_failed_frames;
      } else {
        ++(sent.handle == kPauseHandle ? count.tx_pause_frames : count.tx_frames);
      }
      if (sent.handle != kPauseHandle) pool.give(sent.handle);
      queue.pop_front();
    }
  }
}

// ---- the loop

bool SoftSwitch::State::fail(const std::string& reason) {
  const std::lock_guard lock(exchange.mutex);
  exchange.failure = reason;
  stopping = true;
  return false;
}

void SoftSwitch::State::turn() {
  ++turns;
  Nanos horizon_ns = 0;
  if (!receive(horizon_ns) || !feed(horizon_ns)) return;
  for (size_t port = 0; port < due.size(); ++port) hand_out(port);
  if (asked.exchange(false)) answer();
}

void SoftSwitch::State::wait() {
  Nanos next_ns = fabric->next_event();
  for (size_t port = 0; port < due.size(); ++port) {
    if (!due[port].empty()) next_ns = std::min(next_ns, due[port].front().at_ns + (blocked[port] ? kRetryNs : 0));
  }
  const Nanos now = monotonic_ns();
  const Nanos sleep_ns = std::min(next_ns - config.spin_ns, now + kLongestSleepNs) - now;
  if (sleep_ns <= 0) return;
  const timespec timeout{sleep_ns / 1'000'000'000, sleep_ns % 1'000'000'000};
  if (ppoll(polled.data(), polled.size(), &timeout, nullptr) <= 0) return;
  if ((polled.back().revents & POLLIN) == 0) return;
  uint64_t count = 0;
  while (read(wake.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count)) {
  }
}

void SoftSwitch::State::answer() {
  const std::lock_guard lock(exchange.mutex);
  for (const auto& [end, up] : exchange.link_orders) fabric->set_link(end, up, monotonic_ns());
  exchange.link_orders.clear();
  if (!exchange.wanted) return;
  exchange.wanted = false;
  exchange.last = take_snapshot();
  exchange.answered.notify_all();
}

SoftSnapshot SoftSwitch::State::take_snapshot() {
  SoftSnapshot out;
  out.at_ns = monotonic_ns();
  out.begin_ns = begin_ns;
  for (uint32_t i = 0; i < config.fabric.switches.size(); ++i) {
    out.switches.push_back(fabric->counters(i, out.at_ns));
    for (uint32_t port = 0; port < config.fabric.switches[i].ports.size(); ++port) {
      if (!fabric->model(i).is_up(port)) out.down.push_back({i, port});
    }
  }
  for (size_t i = 0; i < sockets.size(); ++i) {
    counters[i].socket_dropped_frames = sockets[i]->dropped();
    out.cards.push_back(fabric->card(i, out.at_ns));
  }
  out.ports = counters;
  out.lateness = lateness;
  out.worst_lateness_ns = worst_lateness_ns;
  out.processor_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
  out.turns = turns;
  out.real_time = real_time;
  out.frames_inside = fabric->frames_inside();
  return out;
}

void SoftSwitch::State::run() {
  pthread_setname_np(pthread_self(), "soft-switch");
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  // Run before other threads, so that devices do not wait. Only root may; the kernel reserves 5 % of the time for others.
  const sched_param urgent{1};
  real_time = pthread_setschedparam(pthread_self(), SCHED_RR, &urgent) == 0;
  while (!stopping) {
    turn();
    if (!stopping) wait();
  }
  const std::lock_guard lock(exchange.mutex);
  exchange.last = take_snapshot();
  exchange.ended = true;
  exchange.answered.notify_all();
}

// ---- public interface

SoftSwitch::SoftSwitch(std::unique_ptr<State> state) : state_(std::move(state)) {}

SoftSwitch::~SoftSwitch() { stop(); }

Result<std::unique_ptr<SoftSwitch>> SoftSwitch::open(const SoftSwitchConfig& config) {
  auto state = std::make_unique<State>(config);
  if (const auto opened = state->open(); !opened) return opened.error();
  return std::unique_ptr<SoftSwitch>(new SoftSwitch(std::move(state)));
}

void SoftSwitch::start() {
  assert(!state_->thread.joinable());
  state_->thread = std::thread([this] { state_->run(); });
}

void SoftSwitch::stop() {
  if (!state_->thread.joinable()) return;
  state_->stopping = true;
  eventfd_write(state_->wake.get(), 1);
  state_->thread.join();
}

std::string SoftSwitch::failure() const {
  const std::lock_guard lock(state_->exchange.mutex);
  return state_->exchange.failure;
}

SoftSnapshot SoftSwitch::snapshot() {
  std::unique_lock lock(state_->exchange.mutex);
  if (!state_->thread.joinable() || state_->exchange.ended) return state_->exchange.last;
  state_->exchange.wanted = true;
  state_->asked = true;
  eventfd_write(state_->wake.get(), 1);
  state_->exchange.answered.wait(lock, [this] { return !state_->exchange.wanted || state_->exchange.ended; });
  return state_->exchange.last;
}

void SoftSwitch::set_link(const FabricEnd& end, bool up) {
  const std::lock_guard lock(state_->exchange.mutex);
  state_->exchange.link_orders.emplace_back(end, up);
  state_->asked = true;
  eventfd_write(state_->wake.get(), 1);
}

}  // namespace etloop
