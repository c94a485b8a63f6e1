// The Python module workload._et: the decoder, and its columns as read-only numpy arrays without a copy.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // nanobind's own headers
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#pragma GCC diagnostic pop

#include "et_decoder.h"
#include "kineto_scanner.h"

namespace nb = nanobind;
using etloop::EtAttribute;
using etloop::EtColumns;
using etloop::EtDecoder;
using etloop::EtFault;
using etloop::EtFaultKind;
using etloop::KinetoScanner;
using etloop::ScannedEvent;
using namespace nb::literals;

namespace {

template <typename T>
using Column = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

template <typename T>
nb::object column(nb::handle owner, const std::vector<T>& values) {
  return nb::cast(Column<T>(values.data(), {values.size()}, owner));
}

template <auto Member>
void bind_column(nb::class_<EtColumns>& columns, const char* name) {
  columns.def_prop_ro(name, [](nb::handle self) { return column(self, nb::cast<const EtColumns&>(self).*Member); });
}

template <EtAttribute Which>
void bind_numeric(nb::class_<EtColumns>& columns, const char* name) {
  columns.def_prop_ro(name, [](nb::handle self) {
    return column(self, nb::cast<const EtColumns&>(self).numeric[static_cast<int>(Which)]);
  });
}

void bind_columns(nb::module_& module) {
  nb::class_<EtColumns> columns(module, "EtColumns");
  bind_column<&EtColumns::node_id>(columns, "node_id");
  bind_column<&EtColumns::kind>(columns, "kind");
  bind_column<&EtColumns::byte_offset>(columns, "byte_offset");
  bind_column<&EtColumns::name_offsets>(columns, "name_offsets");
  bind_column<&EtColumns::data_dep_offsets>(columns, "data_dep_offsets");
  bind_column<&EtColumns::data_deps>(columns, "data_deps");
  bind_column<&EtColumns::ctrl_dep_offsets>(columns, "ctrl_dep_offsets");
  bind_column<&EtColumns::ctrl_deps>(columns, "ctrl_deps");
  bind_column<&EtColumns::start_us>(columns, "start_us");
  bind_column<&EtColumns::duration_us>(columns, "duration_us");
  bind_numeric<EtAttribute::comm_type>(columns, "comm_type");
  bind_numeric<EtAttribute::comm_size>(columns, "comm_size");
  bind_numeric<EtAttribute::comm_src>(columns, "comm_src");
  bind_numeric<EtAttribute::comm_dst>(columns, "comm_dst");
  bind_numeric<EtAttribute::comm_tag>(columns, "comm_tag");
  bind_numeric<EtAttribute::is_cpu_op>(columns, "is_cpu_op");
  bind_numeric<EtAttribute::num_ops>(columns, "num_ops");
  bind_numeric<EtAttribute::tensor_size>(columns, "tensor_size");
  bind_numeric<EtAttribute::stream>(columns, "stream");
  bind_numeric<EtAttribute::start_nanos>(columns, "start_nanos");
  bind_numeric<EtAttribute::duration_nanos>(columns, "duration_nanos");
  bind_numeric<EtAttribute::involved_dims>(columns, "involved_dims");
  bind_numeric<EtAttribute::moved_bytes>(columns, "moved_bytes");
  bind_column<&EtColumns::pg_name>(columns, "pg_name");
  bind_column<&EtColumns::split_offsets>(columns, "split_offsets");
  bind_column<&EtColumns::send_split_bytes>(columns, "send_split_bytes");
  columns
      .def_prop_ro("name_bytes", [](const EtColumns& self) { return nb::bytes(self.name_bytes.data(), self.name_bytes.size()); })
      .def_ro("pg_names", &EtColumns::pg_names)
      .def_ro("version", &EtColumns::version)
      .def_ro("schema", &EtColumns::schema);
}

void bind_fault(nb::module_& module) {
  nb::enum_<EtFaultKind>(module, "EtFaultKind")
      .value("EMPTY", EtFaultKind::empty)
      .value("TRUNCATED", EtFaultKind::truncated)
      .value("DAMAGED", EtFaultKind::damaged)
      .value("OLD_GENERATION", EtFaultKind::old_generation)
      .value("BAD_VALUE", EtFaultKind::bad_value)
      .value("LIMIT", EtFaultKind::limit);
  nb::class_<EtFault>(module, "EtFault")
      .def_ro("kind", &EtFault::kind)
      .def_ro("what", &EtFault::what)
      .def_ro("byte_offset", &EtFault::byte_offset)
      .def_ro("node_index", &EtFault::node_index)
      .def_ro("node_id", &EtFault::node_id);
}

// For an ASCII string this is its own memory.
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

void bind_kineto(nb::module_& module) {
  module.attr("EVENT_DEVICE") = static_cast<int>(etloop::EventKind::device);
  module.attr("EVENT_CALL") = static_cast<int>(etloop::EventKind::call);
  module.attr("EVENT_RAW") = static_cast<int>(etloop::EventKind::raw);
  nb::class_<KinetoScanner>(module, "KinetoScanner", "Reads profiler events without making values of those that are not needed.")
      .def(
          "__init__",
          [](KinetoScanner* self, nb::callable classify) {
            new (self) KinetoScanner([classify](std::string_view name) {
              return nb::cast<bool>(classify(nb::str(name.data(), name.size())));
            });
          },
          "classify"_a, "`classify` returns for each name, once, whether calls of that name are to be read whole.")
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

}  // namespace

NB_MODULE(_et, module) {
  bind_kineto(module);
  module.doc() = "Streaming decoder of Chakra execution traces.";
  bind_fault(module);
  bind_columns(module);
  nb::class_<EtDecoder>(module, "EtDecoder")
      .def(nb::init<uint64_t>(), nb::arg("max_nodes") = etloop::kMaxNodes)
      .def(
          "feed",
          [](EtDecoder& self, nb::bytes chunk) {
            const std::span bytes(static_cast<const uint8_t*>(chunk.data()), chunk.size());
            const nb::gil_scoped_release released;
            return self.feed(bytes);
          },
          nb::arg("chunk"))
      .def("finish", &EtDecoder::finish)
      .def_prop_ro("fault", [](const EtDecoder& self) { return self.fault(); })
      .def_prop_ro(
          "columns",
          [](const EtDecoder& self) -> const EtColumns& {
            // Arrays reference the columns, which move in memory while they grow.
            if (!self.whole()) throw nb::value_error("columns exist once finish() has returned True");
            return self.columns();
          },
          nb::rv_policy::reference_internal);
}
