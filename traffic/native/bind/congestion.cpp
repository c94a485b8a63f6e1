// Python's view of congestion control: the algorithms, and checks of settings against their parameters.
#include "bind/congestion.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/cc_plugin.h"
#include "bind/columns.h"
#include "cc/registry.h"

namespace nb = nanobind;

namespace etloop {

namespace {

// (name, meaning, needs, [(name, unit, initial, least, most, meaning)], [(name, meaning, [(parameter, value)])])
nb::tuple description(const etloop_cc_algorithm& table) {
  nb::list parameters;
  for (uint32_t i = 0; i < table.parameter_count; ++i) {
    const etloop_cc_parameter& p = table.parameters[i];
    parameters.append(nb::make_tuple(p.name, p.unit, p.initial, p.least, p.most, p.meaning));
  }
  nb::list profiles;
  for (uint32_t i = 0; i < table.profile_count; ++i) {
    nb::list settings;
    for (uint32_t s = 0; s < table.profiles[i].setting_count; ++s) {
      settings.append(nb::make_tuple(table.profiles[i].settings[s].parameter, table.profiles[i].settings[s].value));
    }
    profiles.append(nb::make_tuple(table.profiles[i].name, table.profiles[i].meaning, settings));
  }
  return nb::make_tuple(table.name, table.meaning, table.needs, parameters, profiles);
}

cc::Plugin plugin_at(const std::string& library) {
  auto plugin = cc::load_plugin(library);
  if (!plugin) throw nb::value_error(plugin.error().text.c_str());
  return *std::move(plugin);
}

cc::Plugin table_of(const std::string& algorithm, const std::string& library) {
  if (!library.empty()) return plugin_at(library);
  cc::Plugin found{nullptr, cc::find_built_in(algorithm)};
  if (found.table == nullptr) throw nb::value_error(("there is no congestion control " + algorithm).c_str());
  return found;
}

nb::list algorithms() {
  nb::list out;
  for (const etloop_cc_algorithm* table : cc::built_in()) out.append(description(*table));
  return out;
}

// Register a table in Python's memory, which must stay unchanged until the table is forgotten.
std::string registered_name(uintptr_t table_address) {
  auto name = cc::register_table(reinterpret_cast<const etloop_cc_algorithm*>(table_address));
  if (!name) throw nb::value_error(name.error().text.c_str());
  return *std::move(name);
}

std::vector<std::string> mistakes_of(const std::string& algorithm, const std::string& library, const std::string& profile,
                                     const std::vector<cc::GivenParameter>& given) {
  std::vector<std::string> mistakes;
  cc::parameter_values(*table_of(algorithm, library).table, profile, given, mistakes);
  return mistakes;
}

}  // namespace

CongestionParams congestion_from(nb::handle settings, const std::string& library) {
  CongestionParams params;
  const cc::Plugin chosen = table_of(read_value<std::string>(settings, "algorithm"), library);
  std::vector<cc::GivenParameter> given;
  for (nb::handle parameter : nb::getattr(settings, "parameters")) {
    given.emplace_back(read_value<std::string>(parameter, "name"), read_value<double>(parameter, "value"));
  }
  std::vector<std::string> mistakes;
  params.parameters = cc::parameter_values(*chosen.table, read_value<std::string>(settings, "profile"), given, mistakes);
  if (!mistakes.empty()) {
    std::string all;
    for (const std::string& mistake : mistakes) all += (all.empty() ? "" : ", ") + mistake;
    throw nb::value_error(("congestion control: " + all).c_str());
  }
  params.library = chosen.library;
  params.pacing = read_settings<PacingSettings>(nb::getattr(settings, "pacing"));
  // The built-in "none" needs no parameters, and without a limit is not called per packet.
  if (chosen.table != &cc::kNone || params.pacing.limit_bps != 0) params.algorithm = chosen.table;
  return params;
}

void bind_congestion(nb::module_& module) {
  module.attr("CC_ABI_VERSION") = ETLOOP_CC_ABI_VERSION;
  module.def("cc_algorithms", &algorithms);
  module.def("cc_plugin", [](const std::string& library) { return description(*plugin_at(library).table); },
             nb::arg("library"));
  module.def("cc_register", &registered_name, nb::arg("table_address"));
  module.def("cc_forget", &cc::forget_table, nb::arg("library"));
  module.def("cc_mistakes", &mistakes_of, nb::arg("algorithm"), nb::arg("library"), nb::arg("profile"), nb::arg("given"));
}

}  // namespace etloop
