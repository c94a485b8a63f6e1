// Reading settings from the values of contract/model that declare them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <type_traits>
#include <vector>

#include "bind/columns.h"
#include "plan/setting.h"

namespace etloop {

// Read a generated type of plan/transport_settings.h field by field. Throws ValueError naming a field that does not fit its type;
// bounds are left to `out_of_bounds`.
template <typename Settings>
Settings read_settings(nanobind::handle from) {
  Settings settings;
  Settings::visit(settings, [&](const char* name, auto& value, SettingBounds = {}) {
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, NumberSet>) {
      for (const uint8_t number : read_value<std::vector<uint8_t>>(from, name)) {
        if (number > 63) throw nanobind::value_error((std::string(name) + " has a number above 63").c_str());
        value.bits |= uint64_t{1} << number;
      }
    } else if constexpr (std::is_enum_v<Value>) {
      value = static_cast<Value>(read_value<std::underlying_type_t<Value>>(from, name));
    } else if constexpr (std::is_class_v<Value>) {
      value = read_settings<Value>(nanobind::getattr(from, name));
    } else {
      value = read_value<Value>(from, name);
    }
  });
  return settings;
}

}  // namespace etloop
