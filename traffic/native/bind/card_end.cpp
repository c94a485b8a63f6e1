// Python's view of a NIC under test (`etloop-agent nic-peer`).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bind/value_or_throw.h"
#include "port/verbs/card_end.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {

void bind_card_end(nb::module_& module) {
  using verbs::CardEnd;
  nb::class_<CardEnd>(module, "CardEnd", "An RDMA device driven queue pair by queue pair.")
      .def_static(
          "open",
          [](const std::string& device, const std::string& address) { return value_or_throw(CardEnd::open(device, address)); },
          "device"_a, "address"_a)
      .def("add_pair", [](CardEnd& end) { return value_or_throw(end.add_pair()); }, "Make a queue pair; return its number.")
      .def(
          "join",
          [](CardEnd& end, uint32_t qpn, const std::string& peer_ip, uint32_t peer_qpn, uint32_t path_mtu, uint32_t send_psn,
             uint32_t receive_psn, uint8_t timeout_code, uint8_t retries, uint8_t rnr_retries, uint8_t min_rnr_timer,
             uint8_t traffic_class, uint8_t hop_limit) {
            value_or_throw(end.join(qpn, {peer_ip, peer_qpn, path_mtu, send_psn, receive_psn, timeout_code, retries, rnr_retries,
                                          min_rnr_timer, traffic_class, hop_limit}));
          },
          "qpn"_a, "peer_ip"_a, "peer_qpn"_a, "path_mtu"_a, "send_psn"_a, "receive_psn"_a, "timeout_code"_a, "retries"_a,
          "rnr_retries"_a, "min_rnr_timer"_a, "traffic_class"_a, "hop_limit"_a)
      .def(
          "write", [](CardEnd& end, uint32_t qpn, uint32_t bytes) { value_or_throw(end.write(qpn, bytes)); }, "qpn"_a,
          "size_bytes"_a)
      .def(
          "write_on_all",
          [](CardEnd& end, uint32_t count, uint32_t bytes) { value_or_throw(end.write_on_all(count, bytes)); }, "count"_a,
          "size_bytes"_a)
      .def(
          "send", [](CardEnd& end, uint32_t qpn, uint32_t bytes) { value_or_throw(end.send(qpn, bytes)); }, "qpn"_a,
          "size_bytes"_a)
      .def(
          "grant", [](CardEnd& end, uint32_t qpn, uint32_t bytes) { value_or_throw(end.grant(qpn, bytes)); }, "qpn"_a,
          "size_bytes"_a)
      .def("state", [](CardEnd& end, uint32_t qpn) { return value_or_throw(end.state(qpn)); }, "qpn"_a)
      .def("drop", &CardEnd::drop, "qpn"_a, "Destroy a queue pair; nothing where there is none.")
      .def_prop_ro("va", &CardEnd::va)
      .def_prop_ro("rkey", &CardEnd::rkey)
      .def_prop_ro("firmware", [](const CardEnd& end) { return end.firmware(); });
}

}  // namespace etloop
