// Conversions between Python's value types and columns, settings, values and records.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <type_traits>
#include <vector>

#include "plan/setting.h"

namespace etloop {

// Return the attribute `name` of `owner`, a contiguous one-dimensional array of T. Throws ValueError with the name otherwise.
template <typename T>
std::vector<T> read_column(nanobind::handle owner, const char* name) {
  using Column = nanobind::ndarray<const T, nanobind::numpy, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
  Column column;
  if (!nanobind::try_cast(nanobind::getattr(owner, name), column)) {
    throw nanobind::value_error((std::string(name) + " is not a contiguous one-dimensional array of its type").c_str());
  }
  return std::vector<T>(column.data(), column.data() + column.shape(0));
}

// Return the attribute `name` of `owner`. Throws ValueError with the name if it has another type or is out of T's range.
template <typename T>
T read_value(nanobind::handle owner, const char* name) {
  const nanobind::object value = nanobind::getattr(owner, name);
  T read{};
  if (nanobind::try_cast<T>(value, read)) return read;
  constexpr size_t kMostShown = 60;
  const std::string shown = std::string(nanobind::repr(value).c_str()).substr(0, kMostShown);
  throw nanobind::value_error((std::string(name) + ": " + shown + " is out of range, or of another type").c_str());
}

// Return rows of a record type as bytes, for numpy.frombuffer.
template <typename Record>
nanobind::bytes as_bytes(const Record* rows, size_t count) {
  return nanobind::bytes(reinterpret_cast<const char*>(rows), count * sizeof(Record));
}

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
