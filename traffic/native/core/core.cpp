#include "core/core.h"

#include <string>

#include "core/multipath/mrc_exchange.h"
#include "core/multipath/uet_exchange.h"
#include "plan/queue_deal.h"

namespace etloop {

namespace {

// Return the random-draw key of an endpoint. Queue pair numbers differ between runs, so the key uses what every agent's plan has:
// ranks, communicator, channel, ordinal and direction.
uint32_t draws_as(const QpPlace& place, const PlannedConnection& c) {
  uint32_t key = place.sends_data ? 1 : 0;
  for (const int32_t part : {c.src_rank, c.dst_rank, c.communicator, c.channel, static_cast<int32_t>(place.ordinal)}) {
    key = (key ^ static_cast<uint32_t>(part)) * 0x01000193U;
    key ^= key >> 15;
  }
  return key;
}

std::string describe(const Event& event, const Connections& connections, const QueuePairs& queue_pairs) {
  const auto connection = [&] { return connections.text(static_cast<int32_t>(event.a)); };
  const auto queue_pair = [&] {
    return "queue pair " + std::to_string(queue_pairs[event.a].local_qpn()) + " of " +
           connections.text(queue_pairs.place(event.a).connection);
  };
  switch (event.kind) {
    case EventKind::delay_over: return "the delay of operation " + std::to_string(event.b);
    case EventKind::local_grant: return "a grant inside the host for " + connection();
    case EventKind::local_arrival: return "a message inside the host for " + connection();
    case EventKind::local_sent: return "a message that was sent inside the host";
    case EventKind::message_left: return "a message that left";
    case EventKind::qp_timer: return "the retransmission timer of " + queue_pair();
    case EventKind::flow_timer: return "the congestion control of " + queue_pair();
    case EventKind::credit_due: return "the credit of the port's receivers";
    case EventKind::planes_due: return "the report of the card's planes";
    case EventKind::series_due: return "the series of rates";
  }
  return "an event";
}

}  // namespace

Core::Core(const EnginePlan& plan, int32_t port, std::pmr::memory_resource& memory)
    : plan_(plan),
      port_(port),
      is_shared_(port != kEveryPort && is_dealt(plan.ports[static_cast<size_t>(port)])),
      packets_({plan, connections_, queue_pairs_, transmission_, flows_, probing_, home_lanes_, failure_}),
      events_(plan.ports.size()),
      transmission_({plan, connections_, queue_pairs_, flows_, probing_, departures_, failure_}),
      queue_pairs_(plan, port, connections_, events_, memory),
      flows_(plan, port, queue_pairs_, events_, memory),
      ops_(plan, ranks_, lanes_, records_, events_, failure_),
      probing_(plan, queue_pairs_, cards_),
      departures_(records_),
      lanes_({plan, connections_, paths_, records_, failure_}),
      home_lanes_(lanes_, records_),
      paths_({plan, port, connections_, transmission_, cards_, events_, records_, failure_}),
      connections_(plan),
      cards_(plan, connections_, queue_pairs_, records_, failure_),
      carried_({connections_, queue_pairs_, cards_, probing_, lanes_, failure_}),
      queues_({plan, port, connections_, queue_pairs_, transmission_, departures_, home_lanes_, paths_, packets_}) {}

Result<std::unique_ptr<Core>> Core::make(const EnginePlan& plan, int32_t port, int64_t receive_buffer_bytes,
                                         const FlowOpener& open_flow, std::pmr::memory_resource& memory) {
  std::unique_ptr<Core> core(new Core(plan, port, memory));
  Result<void> loaded = core->load_ranks();
  if (loaded) loaded = core->connections_.find_other_ports(port);
  if (loaded) loaded = core->queue_pairs_.open(core->ranks_, open_flow);
  if (!loaded) return loaded.error();
  core->queue_pairs_.offer_windows(receive_buffer_bytes);
  core->probing_.load();
  core->transmission_.load();
  core->flows_.load();
  if (auto exchanged = core->load_exchange(memory); !exchanged) return exchanged.error();
  core->load_faults();
  return core;
}

Result<std::unique_ptr<Core>> Core::make(const EnginePlan& plan, int32_t port, Carrier& carrier) {
  std::unique_ptr<Core> core(new Core(plan, port));
  Result<void> loaded = core->load_ranks();
  if (loaded) loaded = core->connections_.find_other_ports(port);
  if (loaded) loaded = core->queue_pairs_.open(core->ranks_, carrier);
  if (!loaded) return loaded.error();
  core->cards_.attach(carrier);
  core->probing_.load();
  core->flows_.load();
  core->load_faults();
  return core;
}

Result<std::unique_ptr<Core>> Core::make_carried(const EnginePlan& plan, MessageCarrier& network,
                                                 std::span<const uint32_t> rank_rows) {
  std::unique_ptr<Core> core(new Core(plan, kEveryPort));
  Result<void> loaded = rank_rows.empty() ? core->ranks_.load(plan, kEveryPort) : core->ranks_.load(plan, rank_rows);
  if (loaded) loaded = core->load_ends();
  if (!loaded) return loaded.error();
  core->paths_.set_network(network);
  return core;
}

Result<void> Core::load_ranks() {
  if (auto loaded = ranks_.load(plan_, port_); !loaded) return loaded;
  return load_ends();
}

Result<void> Core::load_ends() {
  records_.reserve(static_cast<size_t>(ranks_.total_records()));
  connections_.load(ranks_.indices());
  if (port_ != kEveryPort) connections_.load_guests(port_);
  if (auto connected = ranks_.connect(plan_, connections_); !connected) return connected;
  paths_.load(ranks_.size());
  lanes_.load(ops_);
  return {};
}

void Core::load_faults() {
  if (plan_.faults.empty()) return;
  const auto add_ends = [this](auto& faults) {
    for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
      const QpPlace& place = queue_pairs_.place(i);
      const PlannedConnection& c = connections_.planned(place.connection);
      faults.add_end({c.src_rank, c.dst_rank, static_cast<int32_t>(place.ordinal), draws_as(place, c), queue_pairs_[i].flow(),
                      place.traffic_class, c.communicator, c.channel});
    }
  };
  if (exchange_ != nullptr) {
    auto faults = std::make_unique<PathFaults>(plan_.faults);
    add_ends(*faults);
    path_faults_ = faults.get();
    exchange_->set_faults(std::move(faults));
    return;
  }
  faults_ = std::make_unique<FaultInjector>(plan_.faults, marks_of(plan_.transport.ack), marks_of(plan_.transport.cnp));
  add_ends(*faults_);
  transmission_.set_faults(faults_.get());
  packets_.set_faults(faults_.get());
}

Result<void> Core::load_exchange(std::pmr::memory_resource& memory) {
  const ExchangeParts parts{plan_,       connections_, queue_pairs_, flows_,  probing_,
                            packets_,    home_lanes_,  departures_,  events_, failure_};
  switch (plan_.transport.kind) {
    case TransportKind::roce: return {};
    case TransportKind::mrc: exchange_ = std::make_unique<MrcExchange>(parts, memory); break;
    case TransportKind::uet:
      if (queue_pairs_.size() > UetExchange::kMostQueuePairs) {
        return Error{"a port carries at most " + std::to_string(UetExchange::kMostQueuePairs) +
                     " queue pairs over UET, whose contexts have numbers of 16 bits; this one has " +
                     std::to_string(queue_pairs_.size())};
      }
      exchange_ = std::make_unique<UetExchange>(parts, memory);
      break;
  }
  paths_.set_requests(*exchange_);
  flows_.set_progress(*exchange_);
  return {};
}

// At this point every peer has announced its window, and no agent of the run probes any more.
void Core::start(Nanos start_ns) {
  start_ns_ = start_ns;
  queue_pairs_.count_anew();
  if (exchange_ != nullptr) exchange_->forget_late();
  else packets_.forget_late();
  for (size_t target = 0; target < probing_.prober().size(); ++target) {
    const uint32_t index = probing_.prober().qp(target);
    const uint32_t window = std::min(transmission_.limit_packets(index), kMostWindow);
    if (window == 0) continue;
    queue_pairs_[index].set_window(window);
    flows_.probed(index, probing_.prober().result(target).round_trip_ns, window);
  }
}

void Core::expect_posts(int32_t rank) {
  for (uint32_t index = 0; index < ranks_.size(); ++index) {
    if (ranks_[index].rank != rank) continue;
    posted_ranks_[rank] = index;
    ops_.expect_posts(index);
  }
}

void Core::on_due(Nanos now) {
  if (faults_ != nullptr) packets_.release_held(now);
  if (exchange_ != nullptr) exchange_->release_held(now);
  if (now >= start_ns_) {
    const Nanos at_ns = start_ns_;
    start_ns_ = kNever;
    records_.start(now);
    flows_.start(at_ns);
    ops_.start(at_ns);
  }
  Event event{};
  while (failure_.none() && events_.pop_due(now, event)) {
    if (!events_.instant().passes(now, [this] { return status().ops_done; })) {
      failure_.set(-1, events_.instant().failure(describe(event, connections_, queue_pairs_)));
    }
    const auto connection = static_cast<int32_t>(event.a);
    switch (event.kind) {
      case EventKind::delay_over: ops_.on_delay_over(event.a, static_cast<int32_t>(event.b), event.at_ns); break;
      case EventKind::local_grant: lanes_.on_grant(connection, event.b, {buffer_address(event.b, event.c), 0, 0}, now); break;
      case EventKind::local_arrival:
        if ((event.c & MessagePaths::kOneSidedMark) != 0) {
          lanes_.on_one_sided(connection, event.b, event.c & ~MessagePaths::kOneSidedMark, event.bytes, now);
        } else {
          lanes_.on_message({connection, event.b, event.c, event.bytes, event.bytes}, now);
        }
        break;
      case EventKind::local_sent: lanes_.on_acknowledged(event.a, event.b, now); break;
      case EventKind::message_left: lanes_.on_left(event.a, event.b, now); break;
      case EventKind::qp_timer:
        if (exchange_ != nullptr) exchange_->on_timer(event.a, now);
        else if (!transmission_.data_ended()) packets_.on_timer(event.a, now);
        break;
      case EventKind::flow_timer:
        flows_.on_timer(event.a, event.at_ns);
        if (exchange_ != nullptr) exchange_->on_flow_timer(event.a);
        else if (queue_pairs_[event.a].has_run()) transmission_.queue(event.a);
        break;
      case EventKind::credit_due:
        if (exchange_ != nullptr) exchange_->on_credit_due(now);
        break;
      case EventKind::planes_due: break;  // the next turn sends it again
      case EventKind::series_due:
        transmission_.forget_held();  // held bursts would apply rate changes only later
        flows_.write_series(now);
        break;
    }
  }
}

// Notify lanes of the messages that left. One that a paced port sends later leaves then.
void Core::note_left(Nanos now) {
  std::vector<MessageDepartures::Left>& left = departures_.left();
  for (size_t i = 0; i < left.size(); ++i) {
    const MessageDepartures::Left message = left[i];
    if (message.leaves_ns > now) {
      events_.push(message.leaves_ns, EventKind::message_left, message.lane, message.index);
    } else {
      lanes_.on_left(message.lane, message.index, message.leaves_ns);
    }
  }
  left.clear();
}

// Messages that left may have completed ops: begin the next ones in the same turn.
bool Core::transmit_released(TxPort& port, Clock& clock, size_t budget, bool more) {
  constexpr int kMostReleases = 8;
  for (int round = 0; round < kMostReleases && !departures_.left().empty() && failure_.none(); ++round) {
    note_left(clock.now());
    if (!ops_.any_ready() && !more) return false;
    issue(clock.now());
    more = transmit_queued(port, clock, budget);
  }
  return more || !departures_.left().empty() || ops_.any_ready();
}

bool Core::rest(RunOver over) {
  if (exchange_ != nullptr) return exchange_->rest();
  if (over == RunOver::here || ranks_.awaited() == ranks_.size()) return false;
  transmission_.end_data();
  return true;
}

void Core::on_scale_up(const ScaleUpMessage& message) {
  const auto connection = static_cast<uint32_t>(message.connection);
  switch (message.kind) {
    case ScaleUpKind::grant:
      events_.push(message.due_ns, EventKind::local_grant, connection, message.tag, message.index);
      break;
    case ScaleUpKind::arrival:
      events_.push(message.due_ns, EventKind::local_arrival, connection, message.tag, message.index, message.bytes);
      break;
  }
}

void Core::send_probes(Nanos now) {
  if (!probing_.under_way()) return;
  probing_.send_writes(now, [&](uint32_t qp, const WorkRequest& request) { cards_.post(qp, request, now); });
}

void Core::stall(const InstantGuard& guard, const std::string& owner, Nanos now) {
  const Nanos due_ns = next_deadline();
  int32_t rule = -1;
  if (faults_ != nullptr) rule = faults_->due_rule(now);
  if (path_faults_ != nullptr) rule = path_faults_->due_rule(now);
  std::string component = "a transmission";
  if (due_ns > now) component = "a reception or a transmission";
  else if (ops_.any_ready()) component = "an operation that is ready";
  else if (events_.next_due() == due_ns) component = describe(events_.front(), connections_, queue_pairs_);
  else if (start_ns_ == due_ns) component = "the start of the ranks";
  else if (probing_.prober().deadline() == due_ns) component = "the probe of connections";
  else if (rule >= 0) component = "fault rule " + std::to_string(rule) + " of transport.faults";
  failure_.set(-1, guard.failure(owner + ", " + component));
}

Nanos Core::next_deadline(bool with_answers) const {
  if (ops_.any_ready()) return 0;
  Nanos held_ns = kNever;
  if (faults_ != nullptr) held_ns = faults_->next_due();
  if (path_faults_ != nullptr) held_ns = path_faults_->next_due();
  const Nanos answers_ns = with_answers ? transmission_.answers_due_ns() : kNever;
  return std::min({events_.next_due(), start_ns_, probing_.prober().deadline(), held_ns, answers_ns});
}

std::vector<WaitRecord> Core::waits() const {
  std::vector<WaitRecord> out;
  lanes_.add_waits(queue_pairs_, out);
  ops_.add_waits(out);
  queues_.add_waits(out);
  return out;
}

std::vector<FlowRecord> Core::flows() const {
  std::vector<FlowRecord> out = queue_pairs_.records();
  for (uint32_t i = 0; faults_ != nullptr && i < out.size(); ++i) out[i].injected_faults = faults_->count_of(i);
  for (uint32_t i = 0; path_faults_ != nullptr && i < out.size(); ++i) out[i].injected_faults = path_faults_->count_of(i);
  return out;
}

}  // namespace etloop
