#include "et_generation.h"

#include "proto_reader.h"

namespace etloop {

const char* old_attribute_generation(std::span<const uint8_t> attribute) {
  ProtoReader reader(attribute);
  ProtoField name;
  ProtoField type;
  ProtoField value;
  if (!reader.next(name) || name.field != 1 || name.wire_type != WireType::bytes) return nullptr;
  if (!reader.next(type) || type.field != 2 || type.wire_type != WireType::varint) return nullptr;
  constexpr uint32_t kDocString = 3;
  do {
    if (!reader.next(value)) return "v0.0.2 or v0.0.3";
  } while (value.field == kDocString);
  // (type, wire type of its value): INT is 1 in v0.0.2, 2 in v0.0.3, and 3 after uint64 was added.
  const auto is = [&](uint64_t number, WireType wire) { return type.number == number && value.wire_type == wire; };
  if (is(0, WireType::fixed32) || is(1, WireType::varint) || is(2, WireType::bytes) || is(3, WireType::fixed32))
    return "v0.0.2";
  if (is(3, WireType::varint) || is(4, WireType::bytes)) return "v0.0.3 of August 2023 or later";
  return "v0.0.3";
}

const char* old_node_generation(std::span<const uint8_t> node) {
  ProtoReader reader(node);
  ProtoField field;
  uint64_t type = 0;
  uint32_t varint_fields = 0;
  bool has_text = false;
  bool has_attribute = false;
  while (reader.next(field)) {
    if (field.field > 20) continue;
    if (field.wire_type == WireType::varint) varint_fields |= 1U << field.field;
    if (field.field == 3) type = field.number;
    if (field.wire_type != WireType::bytes) continue;
    if (field.field == 11) {
      if (const char* generation = old_attribute_generation(field.bytes)) return generation;
    }
    // Text where the current schema has start and duration: input_shapes and input_types.
    has_text |= field.field == 6 || field.field == 7;
    has_attribute |= field.field == 10;
  }
  if (has_text) return "v0.0.2 or v0.0.3";
  const auto has = [&](uint32_t number) { return (varint_fields >> number & 1U) != 0; };
  // v0.0.1 has no attributes: locations and sizes are varints of the node itself, num_ops is its field 12,
  // comm_type 13, comm_size 18, and COMP is type 3.
  if (has_attribute) return nullptr;
  const bool sized = has(8) || has(9) || has(10) || has(11);
  const bool communicates = has(13) && has(18);
  return sized || communicates || (has(12) && type == 3) ? "v0.0.1" : nullptr;
}

}  // namespace etloop
