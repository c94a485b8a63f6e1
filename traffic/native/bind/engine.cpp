// Python's view of the engine: port loops over sockets, and their cores in virtual time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bind/columns.h"
#include "bind/plan.h"
#include "bind/value_or_throw.h"
#include "core/queues/settle_waits.h"
#include "loop/loop.h"
#include "port/capture.h"
#include "port/shared_queues.h"
#include "virtual/sim.h"

namespace nb = nanobind;

namespace etloop {

namespace {

nb::tuple probe_tuple(const ProbeResult& probe) {
  return nb::make_tuple(probe.connection, probe.ordinal, static_cast<int>(probe.verdict), probe.seen_traffic_class,
                        probe.round_trip_ns);
}

// `index`: position of the port in the assignment.
PortConfig port_config(const EnginePlan& plan, nb::handle assignment, size_t index) {
  const nb::object settings = nb::getattr(assignment, "ports")[index];
  const nb::object transport = nb::getattr(assignment, "transport");
  PortConfig config;
  config.backend = static_cast<Backend>(read_value<uint8_t>(settings, "backend"));
  config.interface = read_value<std::string>(settings, "interface");
  config.queue = static_cast<uint32_t>(std::max(plan.ports[index].queue, 0));
  config.busy_poll_us = read_value<uint32_t>(settings, "busy_poll_us");
  config.receive_ring = read_value<bool>(settings, "receive_ring");
  config.link_bps = plan.ports[index].link_bps;
  config.vlan_id = read_value<int32_t>(transport, "vlan_id");
  config.vlan_priority = read_value<uint8_t>(transport, "vlan_priority");
  config.addresses = plan.ports[index].addresses;
  config.udp_port = plan.ports[index].udp_port;
  const TransportSettings& spoken = plan_of(plan, index).transport;
  config.trailer = trailer_of(spoken.kind);
  config.path_mtu = spoken.path_mtu_bytes;
  config.segments = plan.ports[index].segments;
  config.segment_end = plan.ports[index].segment_end;
  config.trimmed_dscps = spoken.recovery.trimming.dscps.bits;
  config.segmentation_offload = plan.transport.segmentation_offload;
  config.drop_per_million = read_value<uint32_t>(transport, "drop_per_million");
  config.drop_seed = read_value<uint64_t>(transport, "drop_seed") + index;
  return config;
}

// traffic.capture.PlannedCapture -> the capture file of a port, or nullptr if its packets are not captured.
std::shared_ptr<Capture> open_capture(const PlannedPort& port, nb::handle planned, size_t index) {
  const auto paths = read_value<std::vector<std::string>>(planned, "paths");
  if (index >= paths.size() || paths[index].empty()) return nullptr;
  CaptureConfig config;
  config.path = paths[index];
  config.interface = port.name;
  config.snap_bytes = read_value<uint32_t>(planned, "snap_bytes");
  config.file_bytes = read_value<int64_t>(planned, "file_bytes");
  return value_or_throw(Capture::open(config));
}

// The port loops of one agent.
class PortLoops {
 public:
  // `threads`: a traffic.threads.loop_threads.ThreadPlan; `capture`: a traffic.capture.PlannedCapture; `limits`: a
  // traffic.send_limits.SendLimits for each of these ports.
  PortLoops(nb::handle assignment, nb::handle threads, nb::handle capture, const std::vector<std::string>& cc_libraries,
            nb::handle limits)
      : plan_(plan_from(assignment, cc_libraries)) {
    const std::shared_ptr<LoopBoard> board = value_or_throw(LoopBoard::make(*plan_));
    std::shared_ptr<SharedQueues> shared;  // queues of the current port
    const auto processors = read_value<std::vector<int32_t>>(threads, "processors");
    for (size_t p = 0; p < plan_->ports.size(); ++p) {
      loop_of_port_.push_back(plan_->ports[p].plane == 0 ? loops_.size() : loops_.size() - 1);
      if (plan_->ports[p].plane != 0) continue;  // polled by the loop of its card's first port
      const size_t loop = loops_.size();
      LoopConfig config;
      config.spin_ns = read_value<int64_t>(threads, "spin_ns");
      config.place = {loop < processors.size() ? processors[loop] : -1, read_value<int32_t>(threads, "realtime_priority")};
      const PlannedPort& planned = plan_->ports[p];
      for (size_t k = p; k < p + planned.planes; ++k) {
        config.port = port_config(*plan_, assignment, k);
        config.port.capture = open_capture(plan_->ports[k], capture, k);
        config.port.hop_limit = read_value<uint8_t>(limits, "hop_limit");
        config.port.is_plane = planned.planes > 1;
        if (config.port.is_plane) config.planes.push_back(config.port);
      }
      if (planned.queue == 0) shared = std::make_shared<SharedQueues>(planned.queues, planned.qpn_base);
      if (planned.queue >= 0) config.port.shared = shared;
      config.limits = {read_value<std::vector<int64_t>>(limits, "bps").at(p),
                       read_value<std::vector<int64_t>>(limits, "packets_per_s").at(p)};
      const nb::gil_scoped_release released;  // registering a NIC's memory may take seconds; heartbeats must go on
      loops_.push_back(value_or_throw(PortLoop::open(spoken_by(p), board, static_cast<int32_t>(p), config)));
    }
  }

  PortLoops(const PortLoops&) = delete;
  PortLoops& operator=(const PortLoops&) = delete;

  // (connection, its queue pair, whether the end sends data, QPN, address, rkey, address of closing atomics) of ends on NICs
  nb::list endpoints() const {
    nb::list out;
    for (const auto& loop : loops_) {
      for (const Endpoint& end : loop->endpoints()) {
        out.append(nb::make_tuple(end.connection, end.ordinal, end.sends_data, end.qpn, end.va, end.rkey, end.closing_va));
      }
    }
    return out;
  }
  using PeerTuple = std::tuple<int32_t, int32_t, bool, uint32_t, uint64_t, uint32_t, uint64_t>;
  void join(const std::vector<PeerTuple>& peers) {
    std::vector<Endpoint> endpoints;
    for (const auto& [connection, ordinal, sends_data, qpn, va, rkey, closing_va] : peers) {
      if (connection < 0 || static_cast<size_t>(connection) >= plan_->connections.size() || qpn > 0xFFFFFF) {
        throw nb::value_error("an endpoint of a peer is of no connection here, or its number has more than 24 bits");
      }
      endpoints.push_back({connection, ordinal, sends_data, qpn, va, rkey, closing_va});
    }
    for (auto& loop : loops_) loop->join(endpoints);
  }
  bool joined(size_t port) const { return loops_.at(port)->joined(); }
  void start_probe() {
    for (auto& loop : loops_) loop->start_probe();
  }
  // Let the ops of all awaited ranks be posted, and signal completed ones to an event descriptor; call before `start`.
  void expect_posts(int signal_fd) {
    std::vector<std::vector<int32_t>> ranks(loops_.size());
    for (const PlannedRank& rank : plan_->ranks) {
      if (rank.background) continue;
      const size_t loop = loop_of_port_.at(static_cast<size_t>(rank.port));
      ranks[loop].push_back(rank.rank);
      posted_[rank.rank] = {loop, rank.program};
    }
    for (size_t loop = 0; loop < loops_.size(); ++loop) loops_[loop]->expect_posts(std::move(ranks[loop]), signal_fd);
  }
  // Begin ops of ranks that expect posts: (rank, op, bytes, id) each; `last`: no more will follow.
  void post(const std::vector<std::tuple<int32_t, int32_t, int64_t, int32_t>>& ops, bool last) {
    std::vector<std::vector<PostedOp>> of_loop(loops_.size());
    for (const auto& [rank, op, bytes, id] : ops) {
      const auto found = posted_.find(rank);
      if (found == posted_.end()) throw nb::value_error("an op of a rank that is not here, or expects no posts");
      const Program& program = plan_->programs[static_cast<size_t>(found->second.program)];
      const bool is_message = op >= 0 && static_cast<size_t>(op) < program.size() &&
                              (program.kind[static_cast<size_t>(op)] == OpKind::send ||
                               program.kind[static_cast<size_t>(op)] == OpKind::recv);
      if (!is_message || bytes < 1 || id < 0) throw nb::value_error("a posted op that is not a message of its rank's program");
      of_loop[found->second.loop].push_back({rank, op, bytes, id});
    }
    for (size_t loop = 0; loop < loops_.size(); ++loop) {
      if (last || !of_loop[loop].empty()) loops_[loop]->post(of_loop[loop], last);
    }
  }
  void start(Nanos start_ns) {
    for (auto& loop : loops_) loop->start(start_ns);
  }
  void request_waits() {
    for (auto& loop : loops_) loop->request_waits();
  }
  void stop() {
    nb::gil_scoped_release release;
    for (auto& loop : loops_) loop->begin_stop();
    for (auto& loop : loops_) loop->stop();
  }

  // Stop and close the sockets; no other method may be called afterwards.
  void close() {
    stop();
    loops_.clear();
  }

  // (state, ops_done, ops_total, wire_tx_bytes, wire_rx_bytes, last_progress_ns, failure, failed_connection) per port
  nb::list status() const {
    nb::list out;
    for (const auto& loop : loops_) {
      const LoopStatus s = loop->status();
      const bool failed = s.state == LoopState::failed;
      out.append(nb::make_tuple(static_cast<int>(s.state), s.ops_done, s.ops_total, s.wire_tx_bytes, s.wire_rx_bytes,
                                s.last_progress_ns, failed ? loop->failure() : std::string(),
                                failed ? loop->failed_connection() : kNoConnection));
    }
    return out;
  }

  nb::list probes() const {
    nb::list out;
    for (const auto& loop : loops_) {
      for (size_t i = 0; i < loop->prober().size(); ++i) out.append(probe_tuple(loop->prober().result(i)));
    }
    return out;
  }

  // Return at most `most` records of a port from `first` on; discard those before `first`.
  nb::bytes records(size_t port, size_t first, size_t most) {
    PortLoop& loop = *loops_.at(port);
    const size_t published = loop.published_records();
    if (first > published || first < loop.released_records()) throw nb::index_error("no such record");
    loop.release_records(first);
    std::vector<OpRecord> found;
    found.reserve(std::min(most, published - first));
    while (found.size() < most) {
      const auto piece = loop.records(first + found.size());
      if (piece.empty()) break;
      const auto taken = piece.first(std::min(piece.size(), most - found.size()));
      found.insert(found.end(), taken.begin(), taken.end());
    }
    return as_bytes(found.data(), found.size());
  }

  nb::object take_waits(size_t port) {
    std::vector<WaitRecord> waits;
    if (!loops_.at(port)->take_waits(waits)) return nb::none();
    return as_bytes(waits.data(), waits.size());
  }

  // Call after stop().
  nb::bytes flows(size_t port) const {
    const auto rows = loops_.at(port)->core().flows();
    return as_bytes(rows.data(), rows.size());
  }
  nb::bytes counters(size_t port) const {
    const std::vector<PortRecord> rows = loops_.at(port)->counters();
    return as_bytes(rows.data(), rows.size());
  }
  nb::list turnarounds() const {
    return histogram([](const Core& core) -> const std::vector<uint64_t>& { return core.turnarounds(); });
  }
  nb::list turnaround_parts() const {
    nb::list parts;
    for (size_t part = 0; part < kTurnaroundParts; ++part) {
      parts.append(histogram([part](const Core& core) -> const std::vector<uint64_t>& {
        return core.turnaround_part(static_cast<TurnaroundPart>(part));
      }));
    }
    return parts;
  }
  nb::bytes rates(size_t port) const {
    const RateSeries* series = loops_.at(port)->core().series();
    return series == nullptr ? as_bytes<CcRecord>(nullptr, 0) : as_bytes(series->rows().data(), series->rows().size());
  }
  // Return (from, until) of the times when a port's thread was late. Call after stop().
  nb::list late_turns(size_t port) const {
    nb::list out;
    for (const LateTurn& each : loops_.at(port)->late_turns()) out.append(nb::make_tuple(each.from_ns, each.until_ns));
    return out;
  }
  std::vector<std::string> degraded(size_t port) const { return loops_.at(port)->degraded(); }
  bool realtime(size_t port) const { return loops_.at(port)->realtime(); }
  std::vector<std::string> capabilities(size_t port) const { return loops_.at(port)->capabilities(); }
  size_t ports() const { return loops_.size(); }
  int64_t receive_buffer_bytes(size_t port) const { return loops_.at(port)->receive_buffer_bytes(); }

 private:
  // Sum a histogram of all cores: the least nanoseconds of a bucket, and its count.
  template <typename Counts>
  nb::list histogram(Counts counts) const {
    nb::list out;
    for (size_t b = 0; b < kTurnaroundBuckets; ++b) {
      uint64_t sum = 0;
      for (const auto& loop : loops_) sum += counts(loop->core())[b];
      if (sum != 0) out.append(nb::make_tuple(turnaround_floor_ns(b), sum));
    }
    return out;
  }
  // The plan of a port's core, kept while its loop uses it.
  std::shared_ptr<const EnginePlan> spoken_by(size_t port) const {
    return {plan_, &plan_of(*plan_, port)};
  }

  // A rank whose ops are posted.
  struct PostedRank {
    size_t loop;
    int32_t program;
  };

  std::shared_ptr<const EnginePlan> plan_;
  std::vector<std::unique_ptr<PortLoop>> loops_;
  std::vector<size_t> loop_of_port_;
  std::map<int32_t, PostedRank> posted_;  // by rank
};

SimParams sim_params(nb::handle settings) {
  SimParams params;
  params.seed = read_value<uint64_t>(settings, "seed");
  params.loss_per_million = read_value<uint32_t>(settings, "loss_per_million");
  params.duplicate_per_million = read_value<uint32_t>(settings, "duplicate_per_million");
  params.reorder_per_million = read_value<uint32_t>(settings, "reorder_per_million");
  params.corrupt_per_million = read_value<uint32_t>(settings, "corrupt_per_million");
  params.latency_ns = read_value<int64_t>(settings, "latency_ns");
  params.reorder_delay_ns = read_value<int64_t>(settings, "reorder_delay_ns");
  params.receive_buffer_bytes = read_value<int64_t>(settings, "receive_buffer_bytes");
  params.receiver_links = read_value<bool>(settings, "receiver_links");
  params.fair_links = read_value<bool>(settings, "fair_links");
  params.transmit_queue_ns = read_value<int64_t>(settings, "transmit_queue_ns");
  params.probe_first = read_value<bool>(settings, "probe_first");
  params.answer_patience_ns = read_value<int64_t>(settings, "answer_patience_ns");
  const nb::object queues = nb::getattr(settings, "queues");
  params.misdirect_per_million = read_value<uint32_t>(queues, "misdirect_per_million");
  params.queue_delay_ns = read_value<int64_t>(queues, "delay_ns");
  params.dying_port = read_value<int32_t>(settings, "dying_port");
  params.dies_at_ns = read_value<int64_t>(settings, "dies_at_ns");
  params.limit_ns = read_value<int64_t>(settings, "limit_ns");
  params.queue_capacity_bytes = read_value<int64_t>(settings, "queue_capacity_bytes");
  params.mark_from_bytes = read_value<int64_t>(settings, "mark_from_bytes");
  params.mark_all_bytes = read_value<int64_t>(settings, "mark_all_bytes");
  params.mark_per_million = read_value<uint32_t>(settings, "mark_per_million");
  params.telemetry = read_value<bool>(settings, "telemetry");
  params.sampled_port = read_value<int32_t>(settings, "sampled_port");
  params.sample_interval_ns = read_value<int64_t>(settings, "sample_interval_ns");
  return params;
}

nb::dict simulate_assignment(nb::handle assignment, nb::handle settings) {
  auto plan = std::make_shared<EnginePlan>(*plan_from(assignment, {read_value<std::string>(settings, "cc_library")}));
  if (const auto psn = read_value<uint32_t>(settings, "initial_psn"); psn != 0) plan->transport.recovery.initial_psn = psn;
  const SimParams params = sim_params(settings);
  SimOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = simulate(*plan, params);
  }
  nb::dict out;
  out["records"] = as_bytes(outcome.records.data(), outcome.records.size());
  out["flows"] = as_bytes(outcome.flows.data(), outcome.flows.size());
  out["waits"] = as_bytes(outcome.waits.data(), outcome.waits.size());
  nb::list probes;
  for (const ProbeResult& probe : outcome.probes) probes.append(probe_tuple(probe));
  out["probes"] = probes;
  out["failure"] = outcome.failure;
  out["failed_connection"] = outcome.failed_connection;
  out["end_ns"] = outcome.end_ns;
  out["packets"] = outcome.packets;
  out["lost"] = outcome.lost;
  out["duplicated"] = outcome.duplicated;
  out["reordered"] = outcome.reordered;
  out["corrupted"] = outcome.corrupted;
  out["bad_icrc"] = outcome.bad_icrc;
  out["marked"] = outcome.marked;
  out["queue_dropped"] = outcome.queue_dropped;
  out["rates"] = as_bytes(outcome.rates.data(), outcome.rates.size());
  out["queue"] = as_bytes(outcome.queue.data(), outcome.queue.size());
  return out;
}

nb::bytes settled_waits(const nb::bytes& rows) {
  std::vector<WaitRecord> waits(rows.size() / sizeof(WaitRecord));
  if (!waits.empty()) std::memcpy(waits.data(), rows.data(), waits.size() * sizeof(WaitRecord));
  settle_waits(waits);
  return as_bytes(waits.data(), waits.size());
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<PortLoops>(module, "PortLoops")
      .def(nb::init<nb::handle, nb::handle, nb::handle, const std::vector<std::string>&, nb::handle>(), nb::arg("assignment"),
           nb::arg("threads"), nb::arg("capture"), nb::arg("cc_libraries"), nb::arg("limits"))
      .def("endpoints", &PortLoops::endpoints)
      .def("join", &PortLoops::join, nb::arg("peers"))
      .def("joined", &PortLoops::joined, nb::arg("peers"))
      .def("start_probe", &PortLoops::start_probe)
      .def("expect_posts", &PortLoops::expect_posts, nb::arg("signal_fd"))
      .def("post", &PortLoops::post, nb::arg("ops"), nb::arg("last"))
      .def("start", &PortLoops::start, nb::arg("start_ns"))
      .def("request_waits", &PortLoops::request_waits)
      .def("stop", &PortLoops::stop)
      .def("close", &PortLoops::close)
      .def("status", &PortLoops::status)
      .def("probes", &PortLoops::probes)
      .def("records", &PortLoops::records, nb::arg("port"), nb::arg("first"), nb::arg("most"))
      .def("take_waits", &PortLoops::take_waits, nb::arg("port"))
      .def("flows", &PortLoops::flows, nb::arg("port"))
      .def("counters", &PortLoops::counters, nb::arg("port"))
      .def("rates", &PortLoops::rates, nb::arg("port"))
      .def("turnarounds", &PortLoops::turnarounds)
      .def("turnaround_parts", &PortLoops::turnaround_parts)
      .def("late_turns", &PortLoops::late_turns, nb::arg("port"))
      .def("degraded", &PortLoops::degraded, nb::arg("port"))
      .def("realtime", &PortLoops::realtime, nb::arg("port"))
      .def("capabilities", &PortLoops::capabilities, nb::arg("port"))
      .def("ports", &PortLoops::ports)
      .def("receive_buffer_bytes", &PortLoops::receive_buffer_bytes, nb::arg("port"));
  module.def("usable_processors", &usable_processors);
  module.def("settle_waits", &settled_waits, nb::arg("waits"));
  module.def("simulate", &simulate_assignment, nb::arg("assignment"), nb::arg("settings"));
}

}  // namespace etloop
