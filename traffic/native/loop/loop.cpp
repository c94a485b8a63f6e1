#include "loop/loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "plan/queue_deal.h"
#include "plan/short_messages.h"
#include "port/open_port.h"
#include "port/planes/planes_port.h"
#include "port/system_clock.h"
#include "wire/ethernet.h"

namespace etloop {

namespace {

// Bounds of one turn, so that neither direction starves: about one socket buffer in, half a dozen bursts out.
constexpr size_t kReceiveBudget = 256;
constexpr size_t kTransmitBudget = 8;
constexpr size_t kLimitedBudget = 1;  // with a rate limit of the agent: short bursts
constexpr Nanos kLongestSleepNs = 100'000'000;
// A loop with its own core wakes this early and polls the clock until then: sleeps end some 5 to 50 us late, because of idle
// states and the scheduler.
constexpr Nanos kWakeEarlyNs = 60'000;
// Linger after the run so that packets which no end waits for, still queued in the device, are counted at both ends. A port that
// may be sent such packets stays until none has come for kQuietNs, kLongestStayNs at most. So does a port whose run broke off; it
// sends no more.
constexpr Nanos kQuietNs = 400'000'000;
constexpr Nanos kLongestStayNs = 2'000'000'000;

class MonotonicClock final : public Clock {
 public:
  Nanos now() override { return monotonic_ns(); }
};

// Whether packets that no end waits for may be in flight to this port: retransmissions, their answers and CNPs; over a multipath
// transport any answer, because one that leaves later by another path may overtake it.
bool may_still_receive(TransportKind kind, const std::vector<FlowRecord>& flows) {
  if (kind != TransportKind::roce) return true;
  return std::ranges::any_of(flows, [](const FlowRecord& flow) {
    return flow.retransmitted_packets != 0 || flow.duplicate_request != 0 || flow.np_ecn_marked_roce_packets != 0 ||
           flow.rp_cnp_handled != 0 || flow.rp_cnp_ignored != 0;
  });
}

// Receive what arrived before the end of a finished run, so that it is counted as the device did.
void receive_pending(DevicePort& port, Core& core, Nanos until_ns) {
  while (monotonic_ns() < until_ns && port.receive_into(core, kReceiveBudget) != 0) {
  }
}

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

Result<std::unique_ptr<PortLoop>> PortLoop::open(std::shared_ptr<const EnginePlan> plan, std::shared_ptr<LoopBoard> board,
                                                 int32_t port, const LoopConfig& config) {
  std::unique_ptr<PortLoop> loop(new PortLoop(std::move(plan), std::move(board), port, config));
  if (const auto opened = loop->open_port(); !opened) return opened.error();
  loop->core_->join(loop->links_, loop->links_);
  loop->thread_ = std::thread([raw = loop.get()] { raw->run(); });
  loop->place_refused_ = place_thread(loop->thread_.native_handle(), config.place);
  if (config.place.realtime_priority == 0 || !loop->place_refused_.empty()) return loop;
  auto keeper = RealtimeKeeper::make(config.place);
  if (!keeper) return keeper.error();
  loop->keeper_ = *std::move(keeper);
  loop->realtime_.store(true, std::memory_order_release);
  return loop;
}

Result<void> PortLoop::open_port() {
  config_.port.departure_times = plan_->faults.empty();
  const auto index = static_cast<int32_t>(index_);
  const bool frames = config_.port.backend == Backend::packet || config_.port.backend == Backend::xdp;
  if (plan_->transport.kind != TransportKind::roce && !frames) {
    return Error{"port " + plan_->ports[index_].name +
                 ": every packet of a multipath transport has a source port of its own, which kernel sockets and network "
                 "cards do not let us choose; write backend: packet or xdp in the rig"};
  }
  if (config_.planes.empty()) {
    if (config_.port.backend == Backend::udp && !is_dealt(plan_->ports[index_])) {
      config_.port.short_bounds = short_bounds(*plan_, index);
    }
    auto port = etloop::open_port(config_.port, *plan_, index);
    if (!port) return port.error();
    port_ = *std::move(port);
  } else {
    for (PortConfig& plane : config_.planes) plane.departure_times = false;
    auto card = PlanesPort::open(config_.planes);
    if (!card) return card.error();
    port_ = *std::move(card);
  }
  auto core = port_->make_core(*plan_, index);
  if (!core) return core.error();
  core_ = *std::move(core);
  core_->measure_turnaround_parts();
  return {};
}

PortLoop::~PortLoop() { stop(); }

void PortLoop::command(Command what) {
  commands_.fetch_or(what, std::memory_order_release);
  board_->wake(index_);
}

void PortLoop::join(std::vector<Endpoint> peers) {
  peers_ = std::move(peers);
  progress_.joined.store(false, std::memory_order_relaxed);
  command(kJoin);
}

void PortLoop::start_probe() {
  if (core_->probing().prober().size() == 0) {
    state_.store(LoopState::ready, std::memory_order_release);
    return;
  }
  command(kProbe);
}

void PortLoop::expect_posts(std::vector<int32_t> ranks, int signal_fd) {
  posts_.ranks = std::move(ranks);
  posts_.requested_fd = signal_fd;
}

void PortLoop::post(std::span<const PostedOp> ops, bool last) {
  {
    const std::lock_guard guard(posts_.lock);
    posts_.waiting.insert(posts_.waiting.end(), ops.begin(), ops.end());
    posts_.last |= last;
  }
  command(kPost);
}

void PortLoop::begin_posted() {
  std::vector<PostedOp> ops;
  bool last = false;
  {
    const std::lock_guard guard(posts_.lock);
    ops.swap(posts_.waiting);
    last = std::exchange(posts_.last, false);
  }
  const Nanos now = monotonic_ns();
  for (const PostedOp& op : ops) core_->post(op.rank, op.op, op.bytes, op.id, now);
  if (last) core_->end_posts();
}

void PortLoop::start(Nanos start_ns) {
  start_ns_.store(start_ns, std::memory_order_relaxed);
  command(kStart);
}

void PortLoop::request_waits() { command(kWaits); }

void PortLoop::begin_stop() {
  if (thread_.joinable()) command(kStop);
}

void PortLoop::stop() {
  if (!thread_.joinable()) return;
  begin_stop();
  thread_.join();
}

LoopStatus PortLoop::status() const {
  return {state_.load(std::memory_order_acquire),
          progress_.ops_done.load(std::memory_order_relaxed),
          core_->total_ops(),
          progress_.wire_tx_bytes.load(std::memory_order_relaxed),
          progress_.wire_rx_bytes.load(std::memory_order_relaxed),
          progress_.last_ns.load(std::memory_order_relaxed)};
}

bool PortLoop::take_waits(std::vector<WaitRecord>& out) {
  if (!waits_ready_.load(std::memory_order_acquire)) return false;
  out = std::move(waits_);
  waits_ready_.store(false, std::memory_order_release);
  return true;
}

std::vector<std::string> PortLoop::degraded() const {
  std::vector<std::string> what = port_->degraded();
  what.insert(what.end(), place_refused_.begin(), place_refused_.end());
  return what;
}

std::vector<std::string> PortLoop::capabilities() const {
  std::vector<std::string> what = port_->capabilities();
  if (realtime()) {
    what.push_back("its thread is real-time (SCHED_FIFO, priority " + std::to_string(config_.place.realtime_priority) + ")" +
                   (config_.place.processor >= 0 ? " on core " + std::to_string(config_.place.processor) : ""));
  }
  return what;
}

std::vector<PortRecord> PortLoop::counters() const {
  std::vector<PortRecord> records = port_->records();
  PortRecord& record = records.front();
  core_->arrivals().discards.add_to(record);
  if (records.size() == 1) record.trimmed_datagrams += core_->arrivals().trimmed;
  record.misdirected_datagrams += core_->queues().misdirected();
  record.receive_overflows += links_.lost_strays();
  record.loop_turns = turns_.all;
  record.idle_turns = turns_.idle;
  record.blocked_ns = turns_.blocked_ns;
  const FaultCounts faults = core_->fault_counts();
  static_assert(offsetof(PortRecord, injected_trims) - offsetof(PortRecord, injected_losses) ==
                (kFaultActions - 1) * sizeof(int64_t));
  std::copy(faults.begin(), faults.end(), &record.injected_losses);
  return records;
}

bool PortLoop::handle_commands(uint32_t commands) {
  if ((commands & kStop) != 0 && leaving_.by_ns == kNever) {
    const LoopState state = state_.load(std::memory_order_relaxed);
    if (state != LoopState::done && state != LoopState::running && state != LoopState::failed) return false;
    leaving_.by_ns = monotonic_ns() + kLongestStayNs;
    if (state != LoopState::done) {
      leaving_.only_receives = true;
      return true;
    }
    const bool awaits = core_->rest(RunOver::everywhere);
    if (!awaits && !may_still_receive(plan_->transport.kind, core_->flows())) {
      receive_pending(*port_, *core_, leaving_.by_ns);
      return false;
    }
  }
  if ((commands & kJoin) != 0) {
    core_->set_peer_endpoints(peers_);
    if (!core_->failure().empty()) {
      state_.store(LoopState::failed, std::memory_order_release);
      return true;
    }
    progress_.joined.store(true, std::memory_order_release);
  }
  if ((commands & kProbe) != 0) {
    state_.store(LoopState::probing, std::memory_order_release);
    core_->start_probe(ProbeRounds::several);
  }
  if ((commands & kStart) != 0) {
    const Nanos start_ns = start_ns_.load(std::memory_order_relaxed);
    for (const int32_t rank : posts_.ranks) core_->expect_posts(rank);
    posts_.signal_fd = posts_.requested_fd;
    core_->start(start_ns);
    departing_.pauses.start(plan_->ports[index_].pauses, start_ns);
    state_.store(LoopState::running, std::memory_order_release);
  }
  if ((commands & kPost) != 0 && state_.load(std::memory_order_relaxed) == LoopState::running) begin_posted();
  if ((commands & kWaits) != 0 && !waits_ready_.load(std::memory_order_acquire)) {
    waits_ = core_->waits();
    waits_ready_.store(true, std::memory_order_release);
  }
  return true;
}

Nanos PortLoop::Leaving::at_ns() const {
  return by_ns == kNever ? kNever : std::min(by_ns, last_received_ns + kQuietNs);
}

// Process messages of other loops. Requests and reports wait for the start of the run: counters are reset then.
bool PortLoop::process_handed_over() {
  bool any = board_->scale_up().take(index_, kReceiveBudget, [this](const ScaleUpMessage& message) {
    core_->on_scale_up(message);
  });
  if (!is_dealt(plan_->ports[index_])) return any;
  any |= board_->take_strays(index_, kReceiveBudget, [this](const Datagram& datagram, Nanos arrived_ns) {
    core_->on_datagram(datagram, arrived_ns);
  });
  const LoopState state = state_.load(std::memory_order_relaxed);
  if (state != LoopState::running && state != LoopState::done) return any;
  any |= board_->queues().take(index_, kReceiveBudget, [this](const QueueMessage& message) { core_->on_queue_message(message); });
  return any;
}

void PortLoop::publish() {
  const CoreStatus& status = core_->status();
  progress_.ops_done.store(status.ops_done, std::memory_order_relaxed);
  progress_.wire_tx_bytes.store(status.wire_tx_bytes + core_->queues().carried_tx_bytes(), std::memory_order_relaxed);
  progress_.wire_rx_bytes.store(status.wire_rx_bytes + core_->queues().carried_rx_bytes(), std::memory_order_relaxed);
  progress_.last_ns.store(status.last_progress_ns, std::memory_order_relaxed);
  core_->records().release(progress_.read_records.load(std::memory_order_acquire));
  const size_t before = progress_.records.load(std::memory_order_relaxed);
  const size_t records = core_->records().size();
  progress_.records.store(records, std::memory_order_release);
  if (posts_.signal_fd >= 0 && records != before) signal_arrivals(before, records);
}

// New ops of a posted run depend on arrivals alone: sends are reported in their turn, and once all ops are over.
void PortLoop::signal_arrivals(size_t before, size_t records) {
  bool signals = state_.load(std::memory_order_relaxed) != LoopState::running;
  for (size_t i = before; i < records && !signals; ++i) signals = core_->records()[i].tx_messages == 0;
  if (!signals) return;
  const uint64_t count = 1;
  [[maybe_unused]] const ssize_t written = write(posts_.signal_fd, &count, sizeof count);
}

void PortLoop::settle_state() {
  switch (state_.load(std::memory_order_relaxed)) {
    case LoopState::probing:
      if (!core_->failure().empty()) state_.store(LoopState::failed, std::memory_order_release);
      else if (core_->probing().prober().over()) state_.store(LoopState::ready, std::memory_order_release);
      break;
    case LoopState::running:
      if (!core_->failure().empty()) {
        state_.store(LoopState::failed, std::memory_order_release);
      } else if (core_->finished()) {
        core_->rest(RunOver::here);
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

void PortLoop::send_pauses(Nanos now) {
  if (state_.load(std::memory_order_relaxed) != LoopState::running) return departing_.pauses.stop();
  departing_.pauses.send_due(now, [this](const PauseRule& rule) {
    ethernet::Pause pause;
    pause.enabled = static_cast<uint8_t>(1U << rule.priority);
    pause.quanta[rule.priority] = rule.quanta;
    return port_->send_pause(pause);
  });
}

void PortLoop::idle(Nanos now, Nanos& idle_since_ns) {
  ++turns_.idle;
  if (idle_since_ns == 0) idle_since_ns = now;
  const bool run_under_way = state_.load(std::memory_order_relaxed) == LoopState::running;
  if (run_under_way && now - idle_since_ns < config_.spin_ns) return;
  const Nanos allowed_ns = departing_.allowance.holds_back(now) ? departing_.allowance.free_ns() : kNever;
  Nanos deadline = leaving_.at_ns();
  if (!leaving_.only_receives) deadline = std::min({core_->next_deadline(), departing_.pauses.next_ns(), deadline, allowed_ns});
  const Nanos early_ns = run_under_way && config_.spin_ns > 0 ? kWakeEarlyNs : 0;
  // A core that did nothing in this turn although its deadline has passed must not spin forever.
  const Nanos due_ns = core_->next_deadline(false);
  if (due_ns <= now && !overdue_.passes(due_ns, [this] { return turns_.all - turns_.idle; })) {
    core_->stall(overdue_, "port " + plan_->ports[index_].name, now);
  }
  if (deadline - early_ns <= now) return;
  if (share_.ordinary()) {
    share_.become_realtime();
    keeper_->become_realtime();
  }
  const Nanos before = monotonic_ns();
  const Nanos longest = std::min(deadline - early_ns - now, kLongestSleepNs);
  watch_.sleeps_until(longest == kLongestSleepNs ? kNever : now + longest);
  board_->sleep(index_, [&] { port_->wait(longest, board_->wake_fd(index_)); });
  turns_.blocked_ns += monotonic_ns() - before;
}

// Returns whether more can be sent now.
bool PortLoop::transmit(Clock& clock, Nanos now) {
  if (leaving_.only_receives) return false;
  if (!departing_.allowance.is_limited()) return port_->transmit_from(*core_, clock, kTransmitBudget);
  if (departing_.allowance.holds_back(now)) return false;
  const int64_t bytes_before = port_->counters().tx_bytes;
  const int64_t packets_before = port_->counters().tx_datagrams;
  const bool more = port_->transmit_from(*core_, clock, kLimitedBudget);
  departing_.allowance.spend(now, port_->counters().tx_bytes - bytes_before, port_->counters().tx_datagrams - packets_before);
  return more && !departing_.allowance.holds_back(now);
}

void PortLoop::share_core(Nanos now) {
  if (share_.changes(now)) share_.ordinary() ? keeper_->become_ordinary() : keeper_->become_realtime();
}

void PortLoop::run() {
  pthread_setname_np(pthread_self(), "etloop-port");
  // Let sleeps end on time: the default timer slack of 50 us is as long as a round trip.
  prctl(PR_SET_TIMERSLACK, 1);
  if (config_.place.realtime_priority > 0) be_first_of_ordinary();
  watch_.begin();
  int64_t sent_before = 0;
  MonotonicClock clock;
  Nanos idle_since_ns = 0;
  while (true) {
    ++turns_.all;
    if (commands_.load(std::memory_order_relaxed) != 0 &&
        !handle_commands(commands_.exchange(0, std::memory_order_acq_rel))) {
      break;
    }
    const int64_t done_before = core_->status().ops_done;
    const size_t received = port_->receive_into(*core_, kReceiveBudget);
    const bool handed_over = process_handed_over();
    const Nanos now = clock.now();
    const int64_t sent_until_now = port_->counters().tx_datagrams;
    watch_.look(now, static_cast<int64_t>(received) + sent_until_now - sent_before);
    sent_before = sent_until_now;
    if (received != 0) leaving_.last_received_ns = now;
    if (now >= leaving_.at_ns()) break;
    if (!leaving_.only_receives) {
      core_->on_time(now);
      if (now >= departing_.pauses.next_ns()) send_pauses(now);
      core_->issue(now);
    }
    const bool sending = transmit(clock, now);
    const bool more = !board_->flush(index_) || sending || handed_over;
    settle_state();
    // Poll between bursts, as for an answer: a sleep would end late.
    const bool sent = port_->counters().tx_datagrams != sent_until_now;
    const bool worked = received != 0 || sent || more || core_->status().ops_done != done_before;
    if (realtime()) share_core(now);
    if (!worked) {
      publish();
      idle(now, idle_since_ns);
    } else {
      idle_since_ns = 0;
      if (core_->status().ops_done != done_before || (turns_.all & 0x3F) == 0) publish();
    }
  }
  publish();
  state_.store(LoopState::stopped, std::memory_order_release);
}

}  // namespace etloop
