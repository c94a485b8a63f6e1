// Python's view of the soft switch: opened from a topology and interfaces; its counters as rows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bare/soft_switch.h"
#include "bind/columns.h"
#include "bind/plan.h"
#include "bind/switch.h"
#include "bind/value_or_throw.h"
#include "plan/records.h"

namespace nb = nanobind;

namespace etloop {

namespace {

// Adapts SoftSwitch to Python's types. Opens its sockets in the network namespace of the calling thread.
class BoundSoftSwitch {
 public:
  // `ports`: for each attachment an object with `interface`, `mac` (6 bytes) and `addresses`.
  BoundSoftSwitch(nb::handle topology, nb::handle routes, nb::handle ports, nb::handle limits) {
    SoftSwitchConfig config;
    config.fabric = fabric_from(topology, routes);
    for (const nb::handle port : ports) {
      SoftPortConfig one;
      one.interface = read_value<std::string>(port, "interface");
      const auto mac = read_value<nb::bytes>(port, "mac");
      if (mac.size() != one.host_mac.size()) throw nb::value_error("mac is not 6 bytes");
      std::copy_n(static_cast<const uint8_t*>(mac.data()), one.host_mac.size(), one.host_mac.begin());
      for (const auto& address : read_value<std::vector<std::string>>(port, "addresses")) {
        one.addresses.push_back(parse_address(address));
      }
      config.ports.push_back(std::move(one));
    }
    config.mtu_bytes = read_value<uint32_t>(limits, "mtu_bytes");
    config.memory_bytes = read_value<int64_t>(limits, "memory_bytes");
    config.fabric.card_bytes = read_value<int64_t>(limits, "card_bytes");
    config.late_ns = read_value<int64_t>(limits, "late_ns");
    config.spin_ns = read_value<int64_t>(limits, "spin_ns");
    config.learns = read_value<bool>(limits, "learns");
    switch_ = value_or_throw(SoftSwitch::open(config));
  }

  void start() { switch_->start(); }
  void stop() {
    nb::gil_scoped_release release;
    switch_->stop();
  }
  std::string failure() const { return switch_->failure(); }
  void set_link(uint32_t switch_index, uint32_t port, bool up) { switch_->set_link({switch_index, port}, up); }

  nb::dict snapshot() {
    SoftSnapshot taken;
    {
      nb::gil_scoped_release release;
      taken = switch_->snapshot();
    }
    nb::dict out;
    out["at_ns"] = taken.at_ns;
    out["begin_ns"] = taken.begin_ns;
    nb::list ports;
    nb::list pools;
    for (const SwitchCounters& one : taken.switches) {
      ports.append(as_bytes(one.ports.data(), one.ports.size()));
      pools.append(nb::make_tuple(one.pool_bytes, one.pool_watermark_bytes));
    }
    nb::list down;
    for (const FabricEnd& end : taken.down) down.append(nb::make_tuple(end.switch_index, end.port));
    out["down"] = down;
    out["switch_ports"] = ports;
    out["pools"] = pools;
    out["cards"] = as_bytes(taken.cards.data(), taken.cards.size());
    out["ports"] = as_bytes(taken.ports.data(), taken.ports.size());
    nb::list lateness;
    for (size_t bucket = 0; bucket < taken.lateness.size(); ++bucket) {
      if (taken.lateness[bucket] != 0) lateness.append(nb::make_tuple(turnaround_floor_ns(bucket), taken.lateness[bucket]));
    }
    out["lateness"] = lateness;
    out["worst_lateness_ns"] = taken.worst_lateness_ns;
    out["processor_ns"] = taken.processor_ns;
    out["turns"] = taken.turns;
    out["frames_inside"] = taken.frames_inside;
    out["real_time"] = taken.real_time;
    return out;
  }

 private:
  std::unique_ptr<SoftSwitch> switch_;
};

}  // namespace

void bind_soft_switch(nb::module_& module) {
  nb::class_<BoundSoftSwitch>(module, "SoftSwitch")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle>(), nb::arg("topology"), nb::arg("routes"),
           nb::arg("ports"), nb::arg("limits"))
      .def("start", &BoundSoftSwitch::start)
      .def("stop", &BoundSoftSwitch::stop)
      .def("failure", &BoundSoftSwitch::failure)
      .def("set_link", &BoundSoftSwitch::set_link, nb::arg("switch"), nb::arg("port"), nb::arg("up"))
      .def("snapshot", &BoundSoftSwitch::snapshot);
  nb::dict sizes;
  sizes["queue_pair"] = sizeof(FlowRecord);
  sizes["agent_port"] = sizeof(PortRecord);
  sizes["queue"] = sizeof(QueueCounters);
  sizes["group"] = sizeof(GroupCounters);
  sizes["switch_port"] = sizeof(SwitchPortCounters);
  sizes["card"] = sizeof(CardCounters);
  sizes["soft_port"] = sizeof(SoftPortCounters);
  module.attr("counter_sizes") = sizes;
}

}  // namespace etloop
