// Streaming decoder of Chakra execution traces: `[varint length][GlobalMetadata] ([varint length][Node])*` to columns. Accepts
// bytes in any chunking, and buffers at most one message. Decides whether a trace is well-formed in the current schema (v0.0.4 to
// 1.0.0 and its additions); consistency between nodes is checked by the reader of the columns. Pure: no I/O, no exceptions; the
// first fault stops the decoder and has its position.
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
// NodeType 8 and 9 were added after 1.0.0; 10 was proposed. None of them is a network operation.
inline constexpr uint64_t kMaxNodeType = 10;

enum class EtFaultKind : uint8_t {
  empty,           // no bytes
  truncated,       // ends inside a message
  damaged,         // bytes that the schema cannot produce
  old_generation,  // a proto2 schema of 2023
  bad_value,       // an attribute with an impossible value
  limit,           // larger than any plausible trace
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
  std::vector<int64_t> numeric[kNumericAttributes];  // by EtAttribute; from start_nanos on empty until a node has one
  std::vector<int32_t> pg_name;
  std::vector<std::string> pg_names;
  std::vector<int64_t> split_offsets = {0};
  std::vector<int64_t> send_split_bytes;
  std::string version;
  std::string schema;  // the metadata attribute `schema`
};

class EtDecoder {
 public:
  explicit EtDecoder(uint64_t max_nodes = kMaxNodes) : max_nodes_(max_nodes) {}

  // Decode the next bytes of the file. Returns false after a fault or the end of the file, without effect.
  bool feed(std::span<const uint8_t> chunk);
  // Note the end of the file. Returns whether it is complete.
  bool finish();

  const std::optional<EtFault>& fault() const { return fault_; }
  const EtColumns& columns() const { return columns_; }
  // Whether the file ended without a fault: the columns are complete and no longer move.
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
  uint64_t consumed_bytes_ = 0;   // stream bytes before the current chunk
  uint64_t message_offset_ = 0;  // offset of the current message's length prefix
  uint64_t fault_offset_ = 0;    // offset of a fault in the current message
  uint64_t length_ = 0;
  unsigned prefix_bytes_ = 0;
  bool in_body_ = false;
  bool first_ = true;
  bool finished_ = false;
  std::vector<uint8_t> pending_;  // partial body of a message that spans chunks
  std::span<const uint8_t> body_;
  std::string group_scratch_;
  std::unordered_map<std::string, int32_t> group_indices_;
  EtColumns columns_;
  std::optional<EtFault> fault_;
};

}  // namespace etloop
