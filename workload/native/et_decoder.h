// Streaming decoder of Chakra execution traces: `[varint length][GlobalMetadata] ([varint length][Node])*` to columns.
// Takes bytes in any chunking and keeps at most one message. Decides what is a well-formed trace of the current schema
// (v0.0.4 to 1.0.0 and its additions); whether its nodes make sense together is left to the reader of the columns.
// Pure: no I/O, no exceptions; the first fault stops the decoder and says where.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "et_attributes.h"
#include "proto_reader.h"

namespace etloop {

inline constexpr uint64_t kMaxMessageBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxNodes = uint64_t{1} << 28;
// NodeType 8 and 9 came after 1.0.0; 10 was proposed. None of them touches the network.
inline constexpr uint64_t kMaxNodeType = 10;

enum class EtFaultKind : uint8_t {
  empty,           // not one byte
  truncated,       // ends inside a message
  damaged,         // bytes that the schema cannot have written
  old_generation,  // a proto2 schema of 2023
  bad_value,       // an attribute whose value cannot be what its name means
  limit,           // larger than any trace should be
};

struct EtFault {
  EtFaultKind kind;
  std::string what;
  uint64_t byte_offset;              // in the decompressed stream
  std::optional<uint64_t> node_index;  // none: in the first message, before any node
  std::optional<uint64_t> node_id;
};

// Columns of workload/trace/trace.py `RankTrace`, in file order.
struct EtColumns {
  std::vector<uint64_t> node_id;
  std::vector<uint8_t> kind;
  std::vector<uint64_t> byte_offset;
  std::vector<uint64_t> name_offsets = {0};
  std::string name_bytes;
  std::vector<int64_t> data_dep_offsets = {0};
  std::vector<uint64_t> data_deps;
  std::vector<int64_t> ctrl_dep_offsets = {0};
  std::vector<uint64_t> ctrl_deps;
  std::vector<uint64_t> start_us;
  std::vector<uint64_t> duration_us;
  std::vector<int64_t> numeric[kNumericAttributes];  // by EtAttribute; from start_nanos on empty while no node has one
  std::vector<int32_t> pg_name;
  std::vector<std::string> pg_names;
  std::vector<int64_t> split_offsets = {0};
  std::vector<int64_t> send_split_bytes;
  std::string version;
  std::string schema;  // the metadata attribute of that name
};

class EtDecoder {
 public:
  explicit EtDecoder(uint64_t max_nodes = kMaxNodes) : max_nodes_(max_nodes) {}

  // Takes the next bytes of the file. Returns false once there is a fault or the file has ended; changes nothing then.
  bool feed(std::span<const uint8_t> chunk);
  // Tells that the file ended. Returns whether it is whole.
  bool finish();

  const std::optional<EtFault>& fault() const { return fault_; }
  const EtColumns& columns() const { return columns_; }
  // Whether the file ended without a fault: the columns are complete and will not move any more.
  bool whole() const { return finished_ && !fault_; }

 private:
  struct NodeDraft;

  bool message(std::span<const uint8_t> body);
  bool metadata(std::span<const uint8_t> body);
  bool metadata_attribute(std::span<const uint8_t> attribute);
  bool node(std::span<const uint8_t> body);
  bool node_field(const ProtoField& field, NodeDraft& draft);
  bool node_attribute(std::span<const uint8_t> attribute, NodeDraft& draft);
  bool dependencies(const ProtoField& field, std::vector<uint64_t>& out);
  bool append(const NodeDraft& draft);
  int32_t group_index(const std::string& name);
  bool fail(EtFaultKind kind, std::string what);
  bool malformed(std::string what);

  uint64_t max_nodes_;
  uint64_t taken_bytes_ = 0;   // of the stream, before the chunk in hand
  uint64_t message_offset_ = 0;  // of the length prefix of the message in hand
  uint64_t fault_offset_ = 0;    // where a fault of the message in hand would lie
  uint64_t length_ = 0;
  unsigned prefix_bytes_ = 0;
  bool in_body_ = false;
  bool first_ = true;
  bool finished_ = false;
  std::vector<uint8_t> pending_;  // the begun body of a message that spans chunks
  std::span<const uint8_t> body_;
  std::string group_scratch_;
  std::unordered_map<std::string, int32_t> group_indices_;
  EtColumns columns_;
  std::optional<EtFault> fault_;
};

}  // namespace etloop
