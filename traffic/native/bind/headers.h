// Visitors of header layouts (wire/bits.h) for Python: fields by name, and the layouts as a table.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace etloop {

namespace detail {

// The text of the enumerator with this value, or a cast expression if there is none.
template <auto value>
constexpr std::string_view spelled() {
  constexpr std::string_view function = __PRETTY_FUNCTION__;
  constexpr size_t start = function.find("value = ") + std::string_view("value = ").size();
  return function.substr(start, function.find_first_of(";]", start) - start);
}

}  // namespace detail

// Return {value: name} of an enumeration of one byte, with blanks for underscores; an empty dict for other types.
template <typename Value>
nanobind::dict enumerator_names() {
  nanobind::dict names;
  if constexpr (std::is_enum_v<Value>) {
    const auto add = [&names](size_t value, std::string_view text) {
      if (text.front() == '(') return;
      std::string name(text.substr(text.rfind(':') + 1));
      for (char& letter : name) letter = letter == '_' ? ' ' : letter;
      names[nanobind::int_(value)] = nanobind::str(name.data(), name.size());
    };
    [&]<size_t... values>(std::index_sequence<values...>) {
      (add(values, detail::spelled<static_cast<Value>(values)>()), ...);
    }(std::make_index_sequence<256>{});
  }
  return names;
}

// Visits a layout, and collects the values of its fields by name.
class FieldValues {
 public:
  template <typename Value>
  void field(unsigned /*width*/, const Value& value, const char* name, const char* /*meaning*/ = nullptr) {
    if constexpr (std::is_enum_v<Value>) values_[name] = static_cast<std::underlying_type_t<Value>>(value);
    else values_[name] = value;
  }
  void reserved(unsigned /*width*/) {}
  nanobind::dict take() { return std::move(values_); }

 private:
  nanobind::dict values_;
};

// Visits a layout, and collects (name, meaning, first bit, bits, kind, names of values) of each field. The kind is "uint", "int"
// or "bool".
class FieldTable {
 public:
  template <typename Value>
  void field(unsigned width, const Value&, const char* name, const char* meaning = nullptr) {
    const char* kind = std::is_same_v<Value, bool> ? "bool" : std::is_signed_v<Value> ? "int" : "uint";
    fields_.append(nanobind::make_tuple(name, meaning == nullptr ? "" : meaning, bit_, width, kind, enumerator_names<Value>()));
    bit_ += width;
  }
  void reserved(unsigned width) { bit_ += width; }
  nanobind::list take() { return std::move(fields_); }

 private:
  nanobind::list fields_;
  unsigned bit_ = 0;
};

// The headers of a packet: {header: {field: value}} in wire order.
class HeaderValues {
 public:
  template <typename Header>
  void add(const Header& header) {
    FieldValues values;
    Header::lay_out(values, header);
    headers_[Header::kName] = values.take();
  }
  nanobind::dict take() { return std::move(headers_); }

 private:
  nanobind::dict headers_;
};

// Layouts of headers: (layer, header, form, bytes, fields). A header whose layout depends on a flag has a form for each value.
// Also the values of fields in a new header.
class HeaderTable {
 public:
  template <typename Header>
  void add(const char* layer, const char* form = "", const Header& header = {}) {
    FieldTable fields;
    Header::lay_out(fields, header);
    headers_.append(nanobind::make_tuple(layer, Header::kName, form, Header::kBytes, fields.take()));
    if (*form == '\0') defaults_.add(header);
  }
  nanobind::list take() { return std::move(headers_); }
  nanobind::dict take_defaults() { return defaults_.take(); }

 private:
  nanobind::list headers_;
  HeaderValues defaults_;
};

}  // namespace etloop
