#include "et_attributes.h"

#include <array>
#include <bit>
#include <cmath>

#include "proto_reader.h"

namespace etloop {
namespace {

constexpr uint32_t kFirstValueField = 3;
constexpr uint32_t kLastValueField = 32;
constexpr size_t kMaxGroupNameBytes = 4096;

// oneof value of AttributeProto (mlcommons/chakra:schema/protobuf/et_def.proto), by field number.
constexpr std::array<const char*, kLastValueField + 1> kCaseNames = {
    "no value",    "",              "",             "double_val",   "double_list",  "float_val",    "float_list",
    "int32_val",   "int32_list",    "int64_val",    "int64_list",   "uint32_val",   "uint32_list",  "uint64_val",
    "uint64_list", "sint32_val",    "sint32_list",  "sint64_val",   "sint64_list",  "fixed32_val",  "fixed32_list",
    "fixed64_val", "fixed64_list",  "sfixed32_val", "sfixed32_list", "sfixed64_val", "sfixed64_list", "bool_val",
    "bool_list",   "string_val",    "string_list",  "bytes_val",    "bytes_list"};

constexpr uint32_t kInt64List = 10;
constexpr uint32_t kBoolVal = 27;
constexpr uint32_t kBoolList = 28;
constexpr unsigned kMaxDims = 32;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSectorBytes = 512;
constexpr uint32_t kStringVal = 29;

WireType wire_type_of_case(uint32_t value_field) {
  switch (value_field) {
    case 3: case 21: case 25: return WireType::fixed64;
    case 5: case 19: case 23: return WireType::fixed32;
    case 7: case 9: case 11: case 13: case 15: case 17: case 27: return WireType::varint;
    default: return WireType::bytes;
  }
}

bool is_numeric_case(uint32_t value_field) { return value_field % 2 == 1 && value_field <= 27; }

std::string unsigned_value(uint64_t value, int64_t& out) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return "is " + std::to_string(value) + ", more than a signed 64-bit number holds";
  out = static_cast<int64_t>(value);
  return {};
}

std::string signed_value(int64_t value, int64_t& out) {
  if (value == kAbsent) return "is -2^63, which no producer can mean";
  out = value;
  return {};
}

std::string real_value(double value, int64_t& out) {
  if (!std::isfinite(value) || std::trunc(value) != value || std::fabs(value) >= 0x1p63)
    return "is " + std::to_string(value) + ", not an integer of 64 bits";
  out = static_cast<int64_t>(value);
  return {};
}

int64_t zigzag(uint64_t value) { return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1)); }

}  // namespace

EtAttribute attribute_named(std::string_view name) {
  switch (name.size()) {
    case 6:
      if (name == "stream") return EtAttribute::stream;
      break;
    case 7:
      if (name == "num_ops") return EtAttribute::num_ops;
      if (name == "pg_name") return EtAttribute::group;
      break;
    case 8:
      if (name == "comm_src") return EtAttribute::comm_src;
      if (name == "comm_dst") return EtAttribute::comm_dst;
      if (name == "comm_tag") return EtAttribute::comm_tag;
      break;
    case 9:
      if (name == "comm_type") return EtAttribute::comm_type;
      if (name == "comm_size") return EtAttribute::comm_size;
      if (name == "is_cpu_op") return EtAttribute::is_cpu_op;
      break;
    case 10:
      if (name == "comm_group") return EtAttribute::group;
      break;
    case 11:
      if (name == "tensor_size") return EtAttribute::tensor_size;
      if (name == "start_nanos") return EtAttribute::start_nanos;
      break;
    case 12:
      if (name == "involved_dim") return EtAttribute::involved_dims;
      break;
    case 14:
      if (name == "in_split_bytes") return EtAttribute::splits;
      if (name == "duration_nanos") return EtAttribute::duration_nanos;
      break;
    default: break;
  }
  return EtAttribute::other;
}

const char* scan_attribute(std::span<const uint8_t> message, AttributeBody& out) {
  ProtoReader reader(message);
  ProtoField field;
  while (reader.next(field)) {
    if (field.field == 1) {
      if (field.wire_type != WireType::bytes) return "an attribute whose name is not a string";
      out.name = as_text(field.bytes);
    } else if (field.field >= kFirstValueField && field.field <= kLastValueField) {
      // In protocol buffers the last member of a oneof wins.
      out.value_field = field.field;
      out.wire_type = static_cast<uint8_t>(field.wire_type);
      out.number = field.number;
      out.bytes = field.bytes;
    }
  }
  return reader.fault();
}

std::string numeric_value(const AttributeBody& body, int64_t& out) {
  const uint32_t value_field = body.value_field;
  if (value_field == 0) return "has no value";
  if (!is_numeric_case(value_field)) return std::string("is a ") + kCaseNames[value_field] + ", not a number";
  if (static_cast<WireType>(body.wire_type) != wire_type_of_case(value_field))
    return std::string("is a ") + kCaseNames[value_field] + " of another wire type than the schema gives it";
  const uint64_t raw = body.number;
  switch (value_field) {
    case 3: return real_value(std::bit_cast<double>(raw), out);
    case 5: return real_value(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(raw))), out);
    case 7: case 23: return signed_value(static_cast<int32_t>(static_cast<uint32_t>(raw)), out);
    case 9: case 25: return signed_value(static_cast<int64_t>(raw), out);
    case 11: return unsigned_value(static_cast<uint32_t>(raw), out);
    case 13: case 19: case 21: return unsigned_value(raw, out);
    case 15: return signed_value(zigzag(static_cast<uint32_t>(raw)), out);
    case 17: return signed_value(zigzag(raw), out);
    default: out = raw != 0 ? 1 : 0; return {};  // 27, bool_val
  }
}

std::string group_value(const AttributeBody& body, std::string& out) {
  if (body.value_field != kStringVal) {
    if (body.value_field != 0 && !is_numeric_case(body.value_field))
      return std::string("is a ") + kCaseNames[body.value_field] + ", neither a string nor a number";
    int64_t number = 0;
    std::string wrong = numeric_value(body, number);
    if (wrong.empty()) out = std::to_string(number);
    return wrong;
  }
  if (static_cast<WireType>(body.wire_type) != WireType::bytes)
    return "is a string_val of another wire type than the schema gives it";
  if (body.bytes.size() > kMaxGroupNameBytes)
    return "is a name of " + std::to_string(body.bytes.size()) + " bytes, the limit is " + std::to_string(kMaxGroupNameBytes);
  if (!is_utf8(as_text(body.bytes))) return "is not UTF-8 text";
  out = as_text(body.bytes);
  return {};
}

std::string dims_value(const AttributeBody& body, int64_t& out) {
  uint64_t flags = 0;
  uint64_t count = 0;
  const auto add = [&](uint64_t value) {
    if (count < kMaxDims && value != 0) flags |= uint64_t{1} << count;
    ++count;
  };
  if (body.value_field == kBoolVal && static_cast<WireType>(body.wire_type) == WireType::varint) {
    add(body.number);
  } else if (body.value_field != kBoolList) {
    return body.value_field == 0 ? "has no value"
                                 : std::string("is a ") + kCaseNames[body.value_field] + ", not a bool_list";
  } else if (static_cast<WireType>(body.wire_type) != WireType::bytes) {
    return "is a bool_list of another wire type than the schema gives it";
  } else {
    ProtoReader list(body.bytes);
    ProtoField field;
    while (list.next(field)) {
      if (field.field != 1) continue;
      if (field.wire_type == WireType::varint) {
        add(field.number);
        continue;
      }
      if (field.wire_type != WireType::bytes) return "has entries that are not flags";
      ProtoReader packed(field.bytes);
      uint64_t entry = 0;
      while (!packed.at_end()) {
        if (!packed.varint(entry)) return std::string("has ") + packed.fault();
        add(entry);
      }
    }
    if (list.fault() != nullptr) return std::string("has ") + list.fault();
  }
  if (count > kMaxDims) return "has " + std::to_string(count) + " dimensions, the limit is " + std::to_string(kMaxDims);
  out = count == 0 ? kAbsent : static_cast<int64_t>(count << 32 | flags);
  return {};
}

std::string storage_value(std::span<const uint8_t> info, int64_t& out) {
  // StorageInfo: fs is field 10, page 11, block 12; each has a count and a unit size.
  struct Detail {
    uint32_t field;
    uint32_t count_field;
    uint64_t unit_bytes;
  };
  constexpr std::array<Detail, 3> details = {{{10, 5, 1}, {11, 4, kPageBytes}, {12, 5, kSectorBytes}}};
  ProtoReader reader(info);
  ProtoField field;
  out = kAbsent;
  while (reader.next(field)) {
    for (const Detail& detail : details) {
      if (field.field != detail.field) continue;
      if (field.wire_type != WireType::bytes) return "is of another wire type than the schema gives it";
      ProtoReader operation(field.bytes);
      ProtoField part;
      while (operation.next(part)) {
        if (part.field != detail.count_field) continue;
        if (part.wire_type != WireType::varint) return "has a size that is not an integer";
        if (part.number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / detail.unit_bytes)
          return "moves more bytes than a signed 64-bit number holds";
        out = static_cast<int64_t>(part.number * detail.unit_bytes);
      }
      if (operation.fault() != nullptr) return std::string("has ") + operation.fault();
    }
  }
  return reader.fault() == nullptr ? std::string() : std::string("has ") + reader.fault();
}

std::string split_values(const AttributeBody& body, std::vector<int64_t>& out) {
  if (body.value_field != kInt64List)
    return body.value_field == 0 ? "has no value" : std::string("is a ") + kCaseNames[body.value_field] + ", not an int64_list";
  if (static_cast<WireType>(body.wire_type) != WireType::bytes)
    return "is an int64_list of another wire type than the schema gives it";
  ProtoReader list(body.bytes);
  ProtoField field;
  while (list.next(field)) {
    if (field.field != 1) continue;
    if (field.wire_type == WireType::varint) {
      out.push_back(static_cast<int64_t>(field.number));
      continue;
    }
    if (field.wire_type != WireType::bytes) return "has entries that are not integers";
    ProtoReader packed(field.bytes);
    uint64_t entry = 0;
    while (!packed.at_end()) {
      if (!packed.varint(entry)) return std::string("has ") + packed.fault();
      out.push_back(static_cast<int64_t>(entry));
    }
  }
  return list.fault() == nullptr ? std::string() : std::string("has ") + list.fault();
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto head = static_cast<uint8_t>(text[i]);
    const size_t length = head < 0x80 ? 1 : head >> 5 == 6 ? 2 : head >> 4 == 14 ? 3 : head >> 3 == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t point = length == 1 ? head : head & (0x7FU >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if (byte >> 6 != 2) return false;
      point = point << 6 | (byte & 0x3FU);
    }
    constexpr std::array<uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    i += length;
  }
  return true;
}

}  // namespace etloop
