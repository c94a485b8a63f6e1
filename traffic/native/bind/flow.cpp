// Python's view of the flow level: a run without packets, and which way a switch sends a five-tuple.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bind/columns.h"
#include "bind/plan.h"
#include "bind/stop.h"
#include "switch/switch_model.h"
#include "virtual/flow_level.h"
#include "wire/wire.h"

namespace nb = nanobind;

namespace etloop {

namespace {

FlowNetwork network_from(nb::handle columns) {
  FlowNetwork network;
  network.link_bps = read_column<int64_t>(columns, "link_bps");
  network.way_offsets = read_column<int64_t>(columns, "way_offsets");
  network.latency_ns = read_column<int64_t>(columns, "latency_ns");
  const auto link = read_column<int32_t>(columns, "part_link");
  const auto share = read_column<float>(columns, "part_share");
  if (link.size() != share.size()) throw nb::value_error("part_link and part_share differ in length");
  if (network.way_offsets.empty()) throw nb::value_error("way_offsets is empty");
  network.parts.reserve(link.size());
  for (size_t p = 0; p < link.size(); ++p) network.parts.push_back({link[p], share[p]});
  return network;
}

nb::dict run_flow_level(nb::handle assignment, nb::handle columns, nb::handle settings) {
  const auto plan = plan_without_control(assignment);
  const FlowNetwork network = network_from(columns);
  if (const std::string wrong = validate(network, *plan); !wrong.empty()) throw nb::value_error(wrong.c_str());
  FlowLevelParams params;
  params.tolerance = read_value<double>(settings, "tolerance");
  params.most_messages = read_value<int64_t>(settings, "most_messages");
  params.limit_ns = read_value<int64_t>(settings, "limit_ns");
  params.stop = signal_raised;
  FlowLevelOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = flow_level(*plan, network, params);
  }
  raise_if_stopped();
  nb::dict out;
  out["records"] = as_bytes(outcome.records.data(), outcome.records.size());
  out["waits"] = as_bytes(outcome.waits.data(), outcome.waits.size());
  out["link_bytes"] = as_bytes(outcome.link_bytes.data(), outcome.link_bytes.size());
  out["failure"] = outcome.failure;
  out["too_many_messages"] = outcome.too_many_messages;
  out["end_ns"] = outcome.end_ns;
  out["messages"] = outcome.messages;
  out["most_live_flows"] = outcome.most_live_flows;
  out["settlings"] = outcome.settlings;
  out["looks"] = outcome.looks;
  out["loosened"] = outcome.loosened;
  return out;
}

using Keys = nb::ndarray<const uint64_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The keys of the five-tuples that data leaves by, one for each queue pair of the connections.
nb::bytes flow_keys(nb::handle assignment) {
  const auto plan = plan_without_control(assignment);
  std::vector<uint64_t> keys(plan->qps.size(), 0);
  constexpr uint8_t kUdp = 17;
  for (const PlannedConnection& c : plan->connections) {
    for (int32_t q = c.first_qp; q < c.first_qp + c.qp_count; ++q) {
      const PlannedQp& qp = plan->qps[static_cast<size_t>(q)];
      uint8_t src[16];
      uint8_t dst[16];
      std::copy_n(c.src_ip.bytes.begin(), 16, src);
      std::copy_n(c.dst_ip.bytes.begin(), 16, dst);
      keys[static_cast<size_t>(q)] = flow_key(src, dst, qp.src_udp_port, wire::kRoceUdpPort, kUdp);
    }
  }
  return as_bytes(keys.data(), keys.size());
}

// Which of `ways` equal routes a switch with that seed takes, for each key.
nb::bytes ecmp_choices(const Keys& keys, uint64_t seed, size_t ways) {
  if (ways == 0) throw nb::value_error("ways is 0");
  std::vector<int32_t> chosen(keys.shape(0));
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int32_t>(ecmp_choice(keys.data()[i], seed, ways));
  return as_bytes(chosen.data(), chosen.size());
}

}  // namespace

void bind_flow(nb::module_& module) {
  module.def("flow_level", &run_flow_level, nb::arg("assignment"), nb::arg("network"), nb::arg("settings"));
  module.def("flow_keys", &flow_keys, nb::arg("assignment"));
  module.def("ecmp_choices", &ecmp_choices, nb::arg("keys"), nb::arg("seed"), nb::arg("ways"));
}

}  // namespace etloop
