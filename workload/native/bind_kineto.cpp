#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // nanobind's own headers
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#pragma GCC diagnostic pop

#include "bind_kineto.h"
#include "kineto_scanner.h"

namespace nb = nanobind;
using namespace nb::literals;
using etloop::KinetoScanner;
using etloop::ScannedEvent;

namespace {

// Of an ASCII string this is its own memory.
std::string_view ascii_of(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

nb::tuple tuple_of(const KinetoScanner& scanner, const ScannedEvent& event) {
  return nb::make_tuple(static_cast<int>(event.kind), event.index, event.begin, event.end, scanner.name(event.name),
                        event.start_ns, event.duration_ns, event.stream, event.external, event.correlation, event.record);
}

}  // namespace

void bind_kineto(nb::module_& module) {
  module.attr("EVENT_DEVICE") = static_cast<int>(etloop::EventKind::device);
  module.attr("EVENT_CALL") = static_cast<int>(etloop::EventKind::call);
  module.attr("EVENT_RAW") = static_cast<int>(etloop::EventKind::raw);
  nb::class_<KinetoScanner>(module, "KinetoScanner", "Looks at profiler events without making values of those nobody asks for.")
      .def(
          "__init__",
          [](KinetoScanner* self, nb::callable classify) {
            new (self) KinetoScanner([classify](std::string_view name) {
              return nb::cast<bool>(classify(nb::str(name.data(), name.size())));
            });
          },
          "classify"_a, "`classify` says of each name, once, whether calls of that name are to be read whole.")
      .def(
          "scan",
          [](KinetoScanner& self, const nb::str& text, size_t at, int64_t index) {
            const KinetoScanner::Stop stop = self.scan(ascii_of(text), at, index);
            return nb::make_tuple(at, index, stop == KinetoScanner::Stop::ended);
          },
          "text"_a, "at"_a, "index"_a, "Take whole, plain elements; return where, at which one, and whether the array ended.")
      .def(
          "take",
          [](KinetoScanner& self) {
            nb::list events;
            for (const ScannedEvent& event : self.events()) events.append(tuple_of(self, event));
            const auto* const first = reinterpret_cast<const char*>(self.launches().data());
            const nb::bytes launches(first, self.launches().size() * sizeof(int64_t));
            nb::dict counts;
            for (const auto& [category, count] : self.counts()) counts[nb::str(category.data(), category.size())] = count;
            self.clear();
            return nb::make_tuple(events, launches, counts);
          },
          "Return what was found since the last call: events, correlations of launches, events by category.");
}
