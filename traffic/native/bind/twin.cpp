// Python's view of the twin: takes an assignment of all ports and a topology, returns the outcome as rows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bare/large_pages.h"
#include "bind/columns.h"
#include "bind/plan.h"
#include "bind/stop.h"
#include "bind/switch.h"
#include "bind/transfer_source.h"
#include "virtual/twin.h"

namespace nb = nanobind;

namespace etloop {

namespace {

TwinParams params_from(nb::handle attachments, nb::handle streams, nb::handle settings) {
  TwinParams params;
  params.attachment_of_port = nb::cast<std::vector<uint32_t>>(attachments);
  params.receive_buffer_bytes = read_value<int64_t>(settings, "receive_buffer_bytes");
  params.probe_first = read_value<bool>(settings, "probe_first");
  params.limit_ns = read_value<int64_t>(settings, "limit_ns");
  params.stop = signal_raised;
  params.memory = &large_pages();
  params.sample_interval_ns = read_value<int64_t>(settings, "sample_interval_ns");
  params.most_samples = read_value<size_t>(settings, "most_samples");
  params.most_packets = read_value<int64_t>(settings, "most_packets");
  for (nb::handle change : nb::getattr(settings, "link_changes")) {
    const nb::object end = nb::getattr(change, "end");
    params.link_changes.push_back({{read_value<uint32_t>(end, "switch"), read_value<uint32_t>(end, "port")},
                                   read_value<bool>(change, "up"), read_value<int64_t>(change, "at_ns")});
  }
  for (nb::handle path : streams) {
    const nb::object stream = nb::getattr(path, "stream");
    TwinStream made;
    made.from = read_value<uint32_t>(path, "src_attachment");
    made.to = read_value<uint32_t>(path, "dst_attachment");
    made.src_ip = parse_address(read_value<std::string>(stream, "src_ip"));
    made.dst_ip = parse_address(read_value<std::string>(stream, "dst_ip"));
    made.udp_port = read_value<uint16_t>(stream, "udp_port");
    made.src_udp_port = read_value<uint16_t>(stream, "src_udp_port");
    made.traffic_class = read_value<uint8_t>(stream, "traffic_class");
    made.rate_bps = read_value<int64_t>(stream, "rate_bps");
    made.datagram_bytes = read_value<int64_t>(stream, "datagram_bytes");
    made.start_ns = read_value<int64_t>(stream, "start_ns");
    made.stop_ns = read_value<int64_t>(stream, "stop_ns");
    params.streams.push_back(made);
  }
  return params;
}

nb::dict twin(nb::handle assignment, nb::handle topology, nb::handle routes, nb::handle attachments, nb::handle streams,
              nb::handle settings, const std::vector<std::string>& cc_libraries, nb::handle transfers) {
  const auto plan = plan_from(assignment, cc_libraries);
  const FabricConfig network = fabric_from(topology, routes);
  TwinParams params = params_from(attachments, streams, settings);
  const auto source = source_from(transfers, *plan);
  params.source = source.get();
  if (const std::string wrong = validate(params, *plan, network); !wrong.empty()) throw nb::value_error(wrong.c_str());
  TwinOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = run_twin(*plan, network, params);
  }
  raise_if_stopped();
  if (source != nullptr) source->rethrow();
  nb::dict out;
  out["records"] = as_bytes(outcome.records.data(), outcome.records.size());
  out["flows"] = as_bytes(outcome.flows.data(), outcome.flows.size());
  out["waits"] = as_bytes(outcome.waits.data(), outcome.waits.size());
  out["rates"] = as_bytes(outcome.rates.data(), outcome.rates.size());
  out["failure"] = outcome.failure;
  out["failed_connection"] = outcome.failed_connection;
  out["too_many_packets"] = outcome.too_many_packets;
  out["start_ns"] = outcome.start_ns;
  out["end_ns"] = outcome.end_ns;
  out["packets"] = outcome.packets;
  out["hops"] = outcome.hops;
  out["trimmed_packets"] = as_bytes(outcome.trimmed_packets.data(), outcome.trimmed_packets.size());
  out["damaged_packets"] = as_bytes(outcome.damaged_packets.data(), outcome.damaged_packets.size());
  nb::list ports;
  nb::list pools;
  for (const SwitchCounters& one : outcome.switches) {
    ports.append(as_bytes(one.ports.data(), one.ports.size()));
    pools.append(one.pool_watermark_bytes);
  }
  out["switch_ports"] = ports;
  out["pool_watermark_bytes"] = pools;
  out["cards"] = as_bytes(outcome.cards.data(), outcome.cards.size());
  out["faults"] = as_bytes(outcome.faults.data(), outcome.faults.size());
  out["discards"] = as_bytes(outcome.discards.data(), outcome.discards.size());
  out["sample_interval_ns"] = outcome.sample_interval_ns;
  nb::list streamed;
  for (const TwinStreamCounters& one : outcome.streams) streamed.append(nb::make_tuple(one.sent, one.left_out, one.lost));
  out["streams"] = streamed;
  nb::list steps;
  for (const LinkStep& one : outcome.link_steps) {
    steps.append(nb::make_tuple(one.end.switch_index, one.end.port, static_cast<int>(one.news), one.at_ns));
  }
  out["link_steps"] = steps;
  out["samples"] = as_bytes(outcome.samples.data(), outcome.samples.size());
  return out;
}

}  // namespace

void bind_twin(nb::module_& module) {
  module.def("twin", &twin, nb::arg("assignment"), nb::arg("topology"), nb::arg("routes"), nb::arg("attachments"),
             nb::arg("streams"), nb::arg("settings"), nb::arg("cc_libraries"), nb::arg("source") = nb::none());
}

}  // namespace etloop
