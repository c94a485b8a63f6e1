// The attributes of Chakra nodes that are read, and their values in any numeric case. Pure. Producers use different value cases
// (is_cpu_op as bool or int32, comm_size as int64 or uint64, ...): a getter for one case would read zeros. Decodes one attribute;
// whether a node needs it is decided by the reader of the trace.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etloop {

// Value of a missing integer attribute; workload/trace/trace.py `ABSENT`.
inline constexpr int64_t kAbsent = std::numeric_limits<int64_t>::min();

enum class EtAttribute : uint8_t {
  comm_type,
  comm_size,
  comm_src,
  comm_dst,
  comm_tag,
  is_cpu_op,
  num_ops,
  tensor_size,
  stream,
  start_nanos,     // ETLoop extension: nanoseconds, as the schema has whole microseconds; first of the rare attributes
  duration_nanos,  // likewise
  involved_dims,   // involved_dim: flags of the first 32 dimensions in the low half, their number above
  moved_bytes,     // not an attribute: bytes moved by a storage operation
  group,  // pg_name, or comm_group of older generators
  splits,  // in_split_bytes, an ETLoop extension for uneven all-to-alls
  other,
};
inline constexpr int kNumericAttributes = static_cast<int>(EtAttribute::group);

// The value case of an AttributeProto, by its field number; 0: no value set. Even numbers are lists.
struct AttributeBody {
  std::string_view name;
  uint32_t value_field = 0;
  uint8_t wire_type = 0;
  uint64_t number = 0;
  std::span<const uint8_t> bytes;
};

EtAttribute attribute_named(std::string_view name);

// Split an AttributeProto into name and value. Returns null, or the error.
const char* scan_attribute(std::span<const uint8_t> message, AttributeBody& out);

// Decode a numeric attribute. Returns an empty string, or the error.
std::string numeric_value(const AttributeBody& body, int64_t& out);

// Decode a group attribute: a string, or a number in decimal. Returns an empty string, or the error.
std::string group_value(const AttributeBody& body, std::string& out);

// Decode involved_dim, a bool_list or one bool_val: bit d is dimension d, the number of dimensions is 32 bits above. Returns an
// empty string, or the error.
std::string dims_value(const AttributeBody& body, int64_t& out);

// Decode the bytes moved according to a StorageInfo; kAbsent if it has none. Returns an empty string, or the error.
std::string storage_value(std::span<const uint8_t> info, int64_t& out);

// Append the entries of a list of sizes. Returns an empty string, or the error.
std::string split_values(const AttributeBody& body, std::vector<int64_t>& out);

bool is_utf8(std::string_view text);

}  // namespace etloop
