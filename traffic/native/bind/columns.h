// Conversions between Python's value types and columns, values and records.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

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

}  // namespace etloop
