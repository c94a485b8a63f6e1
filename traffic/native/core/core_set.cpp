#include "core/core_set.h"

#include <algorithm>
#include <utility>

#include "core/queues/settle_waits.h"
#include "plan/queue_deal.h"

namespace etloop {

bool CoreSet::make(int64_t receive_buffer_bytes) {
  if (std::any_of(plan_.ports.begin(), plan_.ports.end(), is_dealt)) handed_over_.resize(plan_.ports.size());
  for (size_t p = 0; p < plan_.ports.size(); ++p) {
    const auto index = static_cast<int32_t>(p);
    const auto open = [this, index](uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
      return ports_.add_flow(index, address, dst_ip, src_port, traffic_class);
    };
    auto core = Core::make(plan_of(plan_, p), index, receive_buffer_bytes, open, tables_);
    if (!core) {
      run_.failure = core.error().text;
      return false;
    }
    cores_.push_back(*std::move(core));
    cores_.back()->join(*this, *this);
    if (ports_.answer_patience_ns() > 0) cores_.back()->set_answer_patience(ports_.answer_patience_ns());
    copied_records_.push_back(0);
  }
  return true;
}

void CoreSet::start_probe() {
  probe_requested_ = true;
  for (size_t p = 0; p < cores_.size(); ++p) {
    cores_[p]->start_probe();
    ports_.wake(static_cast<int32_t>(p), clock_.now_ns);
  }
}

bool CoreSet::probed() const {
  return std::all_of(cores_.begin(), cores_.end(), [](const auto& core) { return core->probing().prober().over(); });
}

void CoreSet::start() {
  for (size_t p = 0; p < cores_.size(); ++p) {
    cores_[p]->start(clock_.now_ns);
    ports_.wake(static_cast<int32_t>(p), clock_.now_ns);
  }
}

void CoreSet::expect_posts(int32_t rank) {
  for (const PlannedRank& planned : plan_.ranks) {
    if (planned.rank != rank) continue;
    port_of_posted_[rank] = planned.port;
    cores_[static_cast<size_t>(planned.port)]->expect_posts(rank);
  }
}

void CoreSet::post(int32_t rank, int32_t op, int64_t bytes, int32_t id, Nanos now) {
  const int32_t port = port_of_posted_.at(rank);
  cores_[static_cast<size_t>(port)]->post(rank, op, bytes, id, now);
  ports_.wake(port, clock_.now_ns);
}

void CoreSet::end_posts() {
  for (const auto& core : cores_) core->end_posts();
}

// A finished core stays finished: do not ask it again.
bool CoreSet::finished() {
  while (finished_ < cores_.size() && cores_[finished_]->finished()) ++finished_;
  return finished_ == cores_.size();
}

void CoreSet::on_datagram(int32_t port, const Datagram& datagram) {
  current_port_ = port;
  cores_[static_cast<size_t>(port)]->on_datagram(datagram, clock_.now_ns);
}

void CoreSet::turn(int32_t port) {
  if (ports_.dead(port)) return;
  Core& core = *cores_[static_cast<size_t>(port)];
  constexpr size_t kBudget = 64;
  current_port_ = port;
  if (!handed_over_.empty()) deliver_handed_over(port);
  Nanos due_ns = kNever;
  size_t& copied = copied_records_[static_cast<size_t>(port)];
  const auto time_advances = [&] {
    // Ops completed on all cores; this core's turn has not been copied to the run's records yet.
    const auto ended = [&] { return static_cast<int64_t>(run_.records.size() + core.records().size() - copied); };
    if (instant_.passes(clock_.now_ns, ended)) [[likely]] return true;
    core.stall(instant_, "port " + plan_.ports[static_cast<size_t>(port)].name, clock_.now_ns);
    return false;
  };
  while (time_advances()) {
    core.on_time(clock_.now_ns);
    core.issue(clock_.now_ns);
    while (core.transmit(ports_.port(port), clock_, kBudget) && time_advances()) {
    }
    due_ns = core.next_deadline();
    if (!core.failure().empty() || core.probing().under_way() || due_ns > clock_.now_ns) break;
  }
  for (; copied < core.records().size(); ++copied) run_.records.push_back(core.records()[copied]);
  core.records().release(copied);
  if (!core.failure().empty()) {
    run_.failure = core.failure();
    run_.failed_connection = core.failed_connection();
    return;
  }
  ports_.wake(port, std::max(due_ns, clock_.now_ns));
}

void CoreSet::post(int32_t port, const ScaleUpMessage& message) {
  if (ports_.dead(port)) return;
  cores_[static_cast<size_t>(port)]->on_scale_up(message);
  ports_.wake(port, message.due_ns);
}

void CoreSet::post(int32_t port, const QueueMessage& message) { hand_over(port, {0, message, {}, {}}); }

void CoreSet::pass(int32_t port, const Datagram& datagram, Nanos) {
  hand_over(port, {0, HomeOver{}, datagram, {datagram.bytes.begin(), datagram.bytes.end()}});
}

void CoreSet::hand_over(int32_t port, HandedOver&& handed) {
  if (ports_.dead(port)) return;
  std::deque<HandedOver>& ring = handed_over_[static_cast<size_t>(port)][current_port_];
  handed.due_ns = clock_.now_ns + ports_.queue_delay_ns();
  if (!ring.empty()) handed.due_ns = std::max(handed.due_ns, ring.back().due_ns);
  ring.push_back(std::move(handed));
  ports_.wake(port, ring.back().due_ns);
}

// Deliver what has arrived by now, ring by ring.
void CoreSet::deliver_handed_over(int32_t port) {
  Core& core = *cores_[static_cast<size_t>(port)];
  for (auto& [from, ring] : handed_over_[static_cast<size_t>(port)]) {
    for (; !ring.empty() && ring.front().due_ns <= clock_.now_ns; ring.pop_front()) {
      HandedOver& handed = ring.front();
      if (handed.content.empty()) {
        core.on_queue_message(handed.message);
      } else {
        handed.datagram.bytes = handed.content;
        core.on_datagram(handed.datagram, clock_.now_ns);
      }
    }
    if (!ring.empty()) ports_.wake(port, ring.front().due_ns);
  }
}

void CoreSet::collect() {
  for (const auto& core : cores_) {
    const Prober& prober = core->probing().prober();
    for (size_t i = 0; probe_requested_ && i < prober.size(); ++i) run_.probes.push_back(prober.result(i));
    const auto flows = core->flows();
    run_.flows.insert(run_.flows.end(), flows.begin(), flows.end());
    run_.faults.push_back(core->fault_counts());
    run_.discards.push_back(core->arrivals().discards);
    if (const RateSeries* series = core->series(); series != nullptr) {
      run_.rates.insert(run_.rates.end(), series->rows().begin(), series->rows().end());
    }
    if (run_.failure.empty()) continue;
    const auto waits = core->waits();
    run_.waits.insert(run_.waits.end(), waits.begin(), waits.end());
  }
  settle_waits(run_.waits);
  run_.end_ns = clock_.now_ns;
}

}  // namespace etloop
