// Python's view of a responder to an endless stream of requests of a NIC (`etloop nic profile`).
#include "bare/endless_answer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <system_error>

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

// (times, frame lengths, first bytes of the frames back to back, acknowledgements sent)
nb::tuple answered(int fd, const nb::bytes& acknowledgement, uint32_t our_qpn, size_t most, Nanos until_ns, Nanos patience_ns) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(acknowledgement.data());
  const EndlessAnswer order{fd, {bytes, bytes + acknowledgement.size()}, our_qpn, most, until_ns, patience_ns};
  AnsweredRequests found;
  {
    const nb::gil_scoped_release released;
    found = answer_requests(order);
  }
  if (found.error != 0) {
    nb::object error = nb::module_::import_("builtins").attr("OSError")(found.error, nb::str(std::strerror(found.error)));
    PyErr_SetObject(PyExc_OSError, error.ptr());
    throw nb::python_error();
  }
  const nb::bytes heads(reinterpret_cast<const char*>(found.heads.data()), found.heads.size());
  return nb::make_tuple(found.at_ns, found.frame_bytes, heads, found.acknowledgements);
}

}  // namespace

void bind_endless_answer(nb::module_& module) {
  module.def("answer_requests", &answered, "fd"_a, "acknowledgement"_a, "our_qpn"_a, "most"_a, "until_ns"_a, "patience_ns"_a);
  module.attr("NOTED_BYTES") = kNotedBytes;
}

}  // namespace etloop
