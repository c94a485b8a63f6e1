// Attributes of Chakra nodes: which are wanted, and their value whatever numeric case the producer chose. Pure.
// Producers disagree on value cases (is_cpu_op as bool or int32, comm_size as int64 or uint64, ...), so a getter by
// one case reads zeros. Decides the value of one attribute; that a node needs it is left to the reader of the trace.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etloop {

// Value of an integer attribute that a node does not carry; workload/trace/trace.py `ABSENT`.
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
  start_nanos,     // ours: what a source tells in ns, where the schema has whole microseconds; the first of those that few have
  duration_nanos,  // the same
  involved_dims,   // involved_dim: flags of the first 32 dimensions in the low half, their number above
  moved_bytes,     // no attribute: what the storage operation of a node says that it moves
  group,  // pg_name, or comm_group of older generators
  splits,  // in_split_bytes, ours: the schema has none for uneven all-to-alls
  other,
};
inline constexpr int kNumericAttributes = static_cast<int>(EtAttribute::group);

// A value case of AttributeProto is its field number; 0: no value set. Even numbers are lists.
struct AttributeBody {
  std::string_view name;
  uint32_t value_field = 0;
  uint8_t wire_type = 0;
  uint64_t number = 0;
  std::span<const uint8_t> bytes;
};

EtAttribute attribute_named(std::string_view name);

// Splits an AttributeProto into name and value. Returns null, or what is malformed.
const char* scan_attribute(std::span<const uint8_t> message, AttributeBody& out);

// Value of a numeric attribute. Returns an empty string, or what is wrong with it.
std::string numeric_value(const AttributeBody& body, int64_t& out);

// Value of a group attribute: a string, or a number in decimal. Returns an empty string, or what is wrong with it.
std::string group_value(const AttributeBody& body, std::string& out);

// Value of involved_dim, a bool_list or one bool_val: bit d is dimension d, the number of dimensions stands 32 bits above.
// Returns an empty string, or what is wrong with it.
std::string dims_value(const AttributeBody& body, int64_t& out);

// Bytes that a StorageInfo says it moves; kAbsent if it says nothing. Returns an empty string, or what is wrong with it.
std::string storage_value(std::span<const uint8_t> info, int64_t& out);

// Appends the entries of a list of sizes. Returns an empty string, or what is wrong with it.
std::string split_values(const AttributeBody& body, std::vector<int64_t>& out);

bool is_utf8(std::string_view text);

}  // namespace etloop
