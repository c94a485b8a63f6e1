#include "loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "open_port.h"
#include "system_clock.h"

namespace etloop {

namespace {

// Bounds of one turn, so that no side starves the other: about one socket buffer in, half a dozen bursts out.
constexpr size_t kReceiveBudget = 256;
constexpr size_t kTransmitBudget = 8;
constexpr Nanos kLongestSleepNs = 100'000'000;

class MonotonicClock final : public Clock {
 public:
  Nanos now() override { return monotonic_ns(); }
};

}  // namespace

std::vector<int32_t> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int32_t> processors;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int32_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(static_cast<size_t>(processor), &set)) processors.push_back(processor);
  }
  return processors;
}

std::unique_ptr<PortLoop> PortLoop::open(std::shared_ptr<const EnginePlan> plan, int32_t port, const LoopConfig& config,
                                         std::string& error) {
  std::unique_ptr<PortLoop> loop(new PortLoop(std::move(plan), config));
  const bool card = config.port.backend == Backend::verbs;
  if (!(card ? loop->open_verbs(port, error) : loop->open_packets(port, error))) return nullptr;
  loop->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (loop->wake_fd_ < 0) {
    error = std::string("cannot make an event descriptor: ") + std::strerror(errno);
    return nullptr;
  }
  loop->thread_ = std::thread([raw = loop.get()] { raw->run(); });
  return loop;
}

bool PortLoop::open_packets(int32_t port, std::string& error) {
  port_ = open_port(config_.port, error);
  if (port_ == nullptr) return false;
  DevicePort& device = *port_;
  const auto open_flow = [&device](uint16_t address, IpAddress dst_ip, uint16_t src_port, FlowId& flow, std::string& why) {
    return device.add_flow(address, dst_ip, src_port, flow, why);
  };
  core_ = Core::make(*plan_, port, device.counters().receive_buffer_bytes, open_flow, error);
  return core_ != nullptr;
}

bool PortLoop::open_verbs(int32_t port, std::string& error) {
  const PlannedPort& planned = plan_->ports[static_cast<size_t>(port)];
  VerbsPortConfig config{planned.device, planned.gid_index, planned.addresses, plan_->transport, 0, 0, 0};
  const auto here = [&planned](const IpAddress& ip) {
    return std::find(planned.addresses.begin(), planned.addresses.end(), ip) != planned.addresses.end();
  };
  for (const PlannedConnection& connection : plan_->connections) {
    if (connection.path != Path::wire) continue;
    if (here(connection.src_ip)) config.sending_ends += static_cast<size_t>(connection.qp_count);
    if (here(connection.dst_ip)) config.receiving_ends += static_cast<size_t>(connection.qp_count);
  }
  for (const Cutting& cutting : plan_->schedules.cutting) {
    const auto slot_bytes = static_cast<size_t>(cutting.chunk_bytes / cutting.slices);
    config.largest_message_bytes = std::max(config.largest_message_bytes, slot_bytes);
  }
  verbs_ = VerbsPort::open(config, error);
  if (verbs_ == nullptr) return false;
  core_ = Core::make(*plan_, port, *verbs_, error);
  return core_ != nullptr;
}

PortLoop::~PortLoop() {
  stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void PortLoop::command(Command what) {
  commands_.fetch_or(what, std::memory_order_release);
  const uint64_t one = 1;
  // The counter of an event descriptor cannot overflow here; a full one would still be readable.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void PortLoop::join(std::vector<Endpoint> peers) {
  peers_ = std::move(peers);
  command(kJoin);
}

void PortLoop::start_probe() {
  if (core_->prober().size() == 0) {
    state_.store(LoopState::ready, std::memory_order_release);
    return;
  }
  command(kProbe);
}

void PortLoop::start(Nanos start_ns) {
  start_ns_.store(start_ns, std::memory_order_relaxed);
  command(kStart);
}

void PortLoop::request_waits() { command(kWaits); }

void PortLoop::stop() {
  if (!thread_.joinable()) return;
  command(kStop);
  thread_.join();
}

LoopStatus PortLoop::status() const {
  return {state_.load(std::memory_order_acquire),
          ops_done_.load(std::memory_order_relaxed),
          core_->total_ops(),
          wire_tx_bytes_.load(std::memory_order_relaxed),
          wire_rx_bytes_.load(std::memory_order_relaxed),
          last_progress_ns_.load(std::memory_order_relaxed)};
}

bool PortLoop::take_waits(std::vector<WaitRecord>& out) {
  if (!waits_ready_.load(std::memory_order_acquire)) return false;
  out = std::move(waits_);
  waits_ready_.store(false, std::memory_order_release);
  return true;
}

std::vector<std::string> PortLoop::degraded() const {
  if (verbs_ == nullptr) return port_->degraded();
  std::vector<std::string> what = verbs_->degraded();
  if (config_.port.capture != nullptr) what.emplace_back("a card's packets cannot be captured here; the capture stays empty");
  if (!plan_->transport.faults.empty() || config_.port.drop_per_million > 0) {
    what.emplace_back("faults of the scenario do not reach a card's packets");
  }
  return what;
}

PortRecord PortLoop::counters() const {
  PortRecord record = verbs_ != nullptr ? verbs_->counters() : port_->counters();
  record.foreign_datagrams += core_->foreign_datagrams();
  if (port_ != nullptr) record.receive_overflows = port_->receive_overflows();
  record.loop_turns = turns_;
  record.idle_turns = idle_turns_;
  record.blocked_ns = blocked_ns_;
  const FaultCounts faults = core_->fault_counts();
  static_assert(offsetof(PortRecord, injected_cnps) - offsetof(PortRecord, injected_losses) ==
                (kFaultActions - 1) * sizeof(int64_t));
  std::copy(faults.begin(), faults.end(), &record.injected_losses);
  return record;
}

bool PortLoop::obey(uint32_t commands) {
  if ((commands & kStop) != 0) return false;
  if ((commands & kJoin) != 0) {
    core_->join(peers_);
    if (!core_->failure().empty()) {
      state_.store(LoopState::failed, std::memory_order_release);
      return true;
    }
  }
  if ((commands & kProbe) != 0) {
    state_.store(LoopState::probing, std::memory_order_release);
    core_->start_probe();
  }
  if ((commands & kStart) != 0) {
    core_->start(start_ns_.load(std::memory_order_relaxed));
    state_.store(LoopState::running, std::memory_order_release);
  }
  if ((commands & kWaits) != 0 && !waits_ready_.load(std::memory_order_acquire)) {
    waits_ = core_->waits();
    waits_ready_.store(true, std::memory_order_release);
  }
  return true;
}

void PortLoop::publish() {
  const CoreStatus& status = core_->status();
  ops_done_.store(status.ops_done, std::memory_order_relaxed);
  wire_tx_bytes_.store(status.wire_tx_bytes, std::memory_order_relaxed);
  wire_rx_bytes_.store(status.wire_rx_bytes, std::memory_order_relaxed);
  last_progress_ns_.store(status.last_progress_ns, std::memory_order_relaxed);
  published_.store(core_->records().size(), std::memory_order_release);
}

void PortLoop::settle_state() {
  switch (state_.load(std::memory_order_relaxed)) {
    case LoopState::probing:
      if (core_->prober().over()) state_.store(LoopState::ready, std::memory_order_release);
      break;
    case LoopState::running:
      if (!core_->failure().empty()) {
        state_.store(LoopState::failed, std::memory_order_release);
      } else if (core_->finished()) {
        state_.store(LoopState::done, std::memory_order_release);
      }
      break;
    case LoopState::open:
    case LoopState::ready:
    case LoopState::done:
    case LoopState::failed:
    case LoopState::stopped: break;
  }
}

void PortLoop::idle(Nanos now, Nanos& idle_since_ns) {
  ++idle_turns_;
  if (idle_since_ns == 0) idle_since_ns = now;
  const bool run_under_way = state_.load(std::memory_order_relaxed) == LoopState::running;
  if (run_under_way && now - idle_since_ns < config_.spin_ns) return;
  const Nanos deadline = core_->next_deadline();
  if (deadline <= now) return;
  const Nanos before = monotonic_ns();
  const Nanos longest = std::min(deadline - now, kLongestSleepNs);
  verbs_ != nullptr ? verbs_->wait(longest, wake_fd_) : port_->wait(longest, wake_fd_);
  blocked_ns_ += monotonic_ns() - before;
}

void PortLoop::run() {
  pthread_setname_np(pthread_self(), "etloop-port");
  // Sleeps end on time: the default slack of 50 us is as long as a round trip.
  prctl(PR_SET_TIMERSLACK, 1);
  if (config_.processor >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(config_.processor), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }
  MonotonicClock clock;
  Nanos idle_since_ns = 0;
  while (true) {
    ++turns_;
    if (commands_.load(std::memory_order_relaxed) != 0 &&
        !obey(commands_.exchange(0, std::memory_order_acq_rel))) {
      break;
    }
    const int64_t done_before = core_->status().ops_done;
    const size_t received =
        verbs_ != nullptr ? verbs_->receive(*core_, kReceiveBudget) : port_->receive(*core_, kReceiveBudget);
    const Nanos now = clock.now();
    core_->on_time(now);
    core_->issue(now);
    if (verbs_ != nullptr) core_->send_probes(now);
    const bool more = port_ != nullptr && core_->transmit(*port_, clock, kTransmitBudget);
    settle_state();
    if (received == 0 && !more && core_->status().ops_done == done_before) {
      publish();
      idle(now, idle_since_ns);
    } else {
      idle_since_ns = 0;
      if (core_->status().ops_done != done_before || (turns_ & 0x3F) == 0) publish();
    }
  }
  publish();
  state_.store(LoopState::stopped, std::memory_order_release);
}

}  // namespace etloop
