// Python's view of the flow level: a run without packets, and the ECMP choice of a switch for a five-tuple.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bind/columns.h"
#include "bind/plan.h"
#include "bind/stop.h"
#include "bind/transfer_source.h"
#include "switch/switch_model.h"
#include "virtual/flow_level.h"
#include "virtual/twin_frames.h"
#include "wire/wire.h"

namespace nb = nanobind;

namespace etloop {

namespace {

FlowNetwork network_from(nb::handle columns) {
  FlowNetwork network;
  network.link_bps = read_column<int64_t>(columns, "link_bps");
  network.way_offsets = read_column<int64_t>(columns, "way_offsets");
  const auto latency_ns = read_column<int64_t>(columns, "latency_ns");
  const auto store_ns_per_bit = read_column<double>(columns, "store_ns_per_bit");
  // `validate` rejects columns of different lengths, by their routes or by a buffer that is not a number.
  const bool fits = latency_ns.size() == store_ns_per_bit.size();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  network.delays.reserve(latency_ns.size());
  for (size_t w = 0; w < latency_ns.size(); ++w) network.delays.push_back({latency_ns[w], fits ? store_ns_per_bit[w] : kNone});
  const auto link = read_column<int32_t>(columns, "part_link");
  const auto share = read_column<float>(columns, "part_share");
  if (link.size() != share.size()) throw nb::value_error("part_link and part_share differ in length");
  if (network.way_offsets.empty()) throw nb::value_error("way_offsets is empty");
  network.parts.reserve(link.size());
  for (size_t p = 0; p < link.size(); ++p) network.parts.push_back({link[p], share[p]});
  return network;
}

nb::dict run_flow_level(nb::handle assignment, nb::handle columns, nb::handle settings, nb::handle transfers) {
  const auto plan = plan_without_control(assignment);
  const FlowNetwork network = network_from(columns);
  if (const std::string wrong = validate(network, *plan); !wrong.empty()) throw nb::value_error(wrong.c_str());
  FlowLevelParams params;
  params.tolerance = read_value<double>(settings, "tolerance");
  params.most_messages = read_value<int64_t>(settings, "most_messages");
  params.limit_ns = read_value<int64_t>(settings, "limit_ns");
  params.folds = read_value<bool>(settings, "folds");
  params.stop = signal_raised;
  const auto source = source_from(transfers, *plan);
  params.source = source.get();
  FlowLevelOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = flow_level(*plan, network, params);
  }
  raise_if_stopped();
  if (source != nullptr) source->rethrow();
  nb::dict out;
  out["records"] = as_bytes(outcome.records.data(), outcome.records.size());
  out["waits"] = as_bytes(outcome.waits.data(), outcome.waits.size());
  out["link_bytes"] = as_bytes(outcome.link_bytes.data(), outcome.link_bytes.size());
  out["failure"] = outcome.failure;
  out["too_many_messages"] = outcome.too_many_messages;
  out["end_ns"] = outcome.end_ns;
  out["ranks_run"] = outcome.ranks_run;
  out["messages"] = outcome.messages;
  out["most_live_flows"] = outcome.most_live_flows;
  out["settlings"] = outcome.settlings;
  out["looks"] = outcome.looks;
  out["loosened"] = outcome.loosened;
  return out;
}

using Keys = nb::ndarray<const uint64_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Computes ECMP keys of the data packets of a plan's queue pairs, to the UDP port of their receiver.
class DataKeys {
 public:
  explicit DataKeys(const EnginePlan& plan) : plan_(plan), connection_of_(plan.qps.size(), -1) {
    for (const PlannedRank& rank : plan.ranks) {
      const auto number = static_cast<size_t>(rank.rank);
      if (number >= udp_port_of_.size()) udp_port_of_.resize(number + 1, wire::kRoceUdpPort);
      udp_port_of_[number] = plan.ports[static_cast<size_t>(rank.port)].udp_port;
    }
    for (size_t row = 0; row < plan.connections.size(); ++row) {
      const PlannedConnection& c = plan.connections[row];
      const auto first = connection_of_.begin() + c.first_qp;
      std::fill(first, first + c.qp_count, static_cast<int32_t>(row));
    }
  }

  uint64_t of(size_t queue_pair, uint16_t src_port, HashFields fields = kFiveTuple) const {
    if (queue_pair >= connection_of_.size() || connection_of_[queue_pair] < 0) return 0;
    const PlannedConnection& c = plan_.connections[static_cast<size_t>(connection_of_[queue_pair])];
    const auto dst = static_cast<size_t>(c.dst_rank);
    const uint16_t dst_port = dst < udp_port_of_.size() ? udp_port_of_[dst] : wire::kRoceUdpPort;
    HashedHeaders headers = headers_of(c.src_ip, c.dst_ip, src_port, dst_port);
    if (dst_port == wire::kRoceUdpPort) headers.dest_qp = plan_.qps[queue_pair].dst_qpn;
    return hash_key(headers, fields);
  }

 private:
  const EnginePlan& plan_;
  std::vector<uint16_t> udp_port_of_;   // by rank
  std::vector<int32_t> connection_of_;  // by queue pair; -1: no connection
};

// Return the key of the data packets' five-tuple for each queue pair of the connections.
nb::bytes flow_keys(nb::handle assignment) {
  const auto plan = plan_without_control(assignment);
  const DataKeys made(*plan);
  std::vector<uint64_t> keys(plan->qps.size(), 0);
  for (size_t q = 0; q < keys.size(); ++q) keys[q] = made.of(q, plan->qps[q].src_udp_port);
  return as_bytes(keys.data(), keys.size());
}

using QueuePairs = nb::ndarray<const int64_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using SourcePorts = nb::ndarray<const uint16_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Return the keys of queue pairs and UDP source ports over the hash fields `fields` but the ingress port, row by row.
nb::bytes source_port_keys(nb::handle assignment, const QueuePairs& queue_pairs, const SourcePorts& src_ports,
                           HashFields fields) {
  if (queue_pairs.shape(0) != src_ports.shape(0)) throw nb::value_error("queue pairs and source ports differ in length");
  const auto plan = plan_without_control(assignment);
  const DataKeys made(*plan);
  std::vector<uint64_t> keys(queue_pairs.shape(0));
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = made.of(static_cast<size_t>(queue_pairs.data()[i]), src_ports.data()[i], fields);
  }
  return as_bytes(keys.data(), keys.size());
}

// Return the keys of packets that arrive by these ports, of switches that hash the ingress port.
nb::bytes in_port_keys(const Keys& keys, const QueuePairs& in_ports) {
  if (keys.shape(0) != in_ports.shape(0)) throw nb::value_error("keys and ingress ports differ in length");
  std::vector<uint64_t> mixed_keys(keys.shape(0));
  for (size_t i = 0; i < mixed_keys.size(); ++i) {
    mixed_keys[i] = mixed(keys.data()[i] + static_cast<uint64_t>(in_ports.data()[i]) + 1);
  }
  return as_bytes(mixed_keys.data(), mixed_keys.size());
}

// Return for each key the route of `ways` equal ones that a switch with this seed chooses.
nb::bytes ecmp_choices(const Keys& keys, uint64_t seed, size_t ways) {
  if (ways == 0) throw nb::value_error("ways is 0");
  std::vector<int32_t> chosen(keys.shape(0));
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int32_t>(ecmp_choice(keys.data()[i], seed, ways));
  return as_bytes(chosen.data(), chosen.size());
}

}  // namespace

void bind_flow(nb::module_& module) {
  module.def("flow_level", &run_flow_level, nb::arg("assignment"), nb::arg("network"), nb::arg("settings"),
             nb::arg("source") = nb::none());
  module.def("flow_keys", &flow_keys, nb::arg("assignment"));
  module.def("source_port_keys", &source_port_keys, nb::arg("assignment"), nb::arg("queue_pairs"), nb::arg("src_ports"),
             nb::arg("fields") = kFiveTuple);
  module.def("in_port_keys", &in_port_keys, nb::arg("keys"), nb::arg("in_ports"));
  module.def("ecmp_choices", &ecmp_choices, nb::arg("keys"), nb::arg("seed"), nb::arg("ways"));
}

}  // namespace etloop
