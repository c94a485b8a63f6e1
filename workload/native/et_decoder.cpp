#include "et_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "et_generation.h"

namespace etloop {
namespace {

constexpr unsigned kMaxPrefixBytes = 5;
constexpr size_t kMaxVersionBytes = 256;
constexpr uint64_t kStorageNode = 8;
constexpr auto kFirstRare = static_cast<size_t>(EtAttribute::start_nanos);

constexpr std::array<const char*, 13> kNodeFields = {"",        "id",     "name",    "type",    "ctrl_deps",
                                                     "data_deps", "start_time_micros", "duration_micros", "inputs",
                                                     "outputs", "attr",   "storage", "data_op"};

bool looks_like_attribute(std::span<const uint8_t> bytes) {
  AttributeBody body;
  return !bytes.empty() && bytes[0] == 0x0A && scan_attribute(bytes, body) == nullptr && !body.name.empty();
}

// A file may begin with a Node. A Node has a varint id or type, except one with id 0 and type INVALID; GlobalMetadata has only
// length-delimited fields: its version (text) and its attributes.
bool is_node(std::span<const uint8_t> body) {
  ProtoReader reader(body);
  ProtoField field;
  bool has_version = false;
  while (reader.next(field)) {
    if (field.wire_type == WireType::varint && (field.field == 1 || field.field == 3)) return true;
    has_version |= field.field == 1;
    if (field.field == 2 && (field.wire_type != WireType::bytes || !looks_like_attribute(field.bytes))) return true;
    if (field.field >= 4 && field.field <= 10 && !has_version) return true;
  }
  return false;
}

// Return the id in a partial node, for an error message. A complete node without the field has id 0.
std::optional<uint64_t> id_in(std::span<const uint8_t> body, bool whole) {
  ProtoReader reader(body);
  ProtoField field;
  while (reader.next(field)) {
    if (field.field != 1) continue;
    if (field.wire_type != WireType::varint) return std::nullopt;
    return field.number;
  }
  if (whole && reader.fault() == nullptr) return 0;
  return std::nullopt;
}

}  // namespace

// A node being decoded; dependencies go directly into the columns.
struct EtDecoder::NodeDraft {
  uint64_t id = 0;
  uint64_t type = 0;
  uint64_t start_us = 0;
  uint64_t duration_us = 0;
  std::span<const uint8_t> name;
  std::span<const uint8_t> storage;
  std::array<int64_t, kNumericAttributes> numeric;
  int32_t group = -1;
  bool suspect = false;  // has fields with another meaning in an old generation

  NodeDraft() { numeric.fill(kAbsent); }
};

bool EtDecoder::feed(std::span<const uint8_t> chunk) {
  if (fault_ || finished_) return false;
  size_t at = 0;
  while (at < chunk.size()) {
    if (!in_body_) {
      if (prefix_bytes_ == 0) {
        fault_offset_ = message_offset_ = consumed_bytes_ + at;
        body_ = {};
      }
      const uint8_t byte = chunk[at++];
      length_ |= static_cast<uint64_t>(byte & 0x7FU) << (7 * prefix_bytes_++);
      if (byte >= 0x80) {
        if (prefix_bytes_ == kMaxPrefixBytes) return fail(EtFaultKind::damaged, "no message length is this long");
        continue;
      }
      if (length_ > kMaxMessageBytes)
        return fail(EtFaultKind::limit, "a message of " + std::to_string(length_) + " bytes, the limit is " +
                                            std::to_string(kMaxMessageBytes));
      in_body_ = true;
      if (length_ == 0 && !message({})) return false;
      continue;
    }
    const size_t taken = std::min<size_t>(length_ - pending_.size(), chunk.size() - at);
    const auto piece = chunk.subspan(at, taken);
    at += taken;
    if (pending_.empty() && taken == length_) {
      if (!message(piece)) return false;
      continue;
    }
    pending_.insert(pending_.end(), piece.begin(), piece.end());
    if (pending_.size() < length_) continue;
    if (!message(pending_)) return false;
    pending_.clear();
  }
  consumed_bytes_ += chunk.size();
  return true;
}

bool EtDecoder::finish() {
  if (fault_ || finished_) return whole();
  finished_ = true;
  fault_offset_ = message_offset_;
  if (consumed_bytes_ == 0) return fail(EtFaultKind::empty, "has no bytes");
  if (in_body_ || prefix_bytes_ != 0) {
    body_ = pending_;
    const std::string there = in_body_ ? "ends after " + std::to_string(pending_.size()) + " of the " +
                                             std::to_string(length_) + " bytes of a message"
                                       : "ends inside the length of a message";
    in_body_ = false;
    return fail(EtFaultKind::truncated, there);
  }
  pending_.shrink_to_fit();
  return true;
}

bool EtDecoder::message(std::span<const uint8_t> body) {
  body_ = body;
  const bool opens = first_;
  // Set before decoding, so that a fault in a leading node is reported as node 0.
  const bool as_node = !opens || is_node(body);
  if (as_node) first_ = false;
  const bool whole = as_node ? node(body) : metadata(body);
  first_ = false;
  in_body_ = false;
  length_ = 0;
  prefix_bytes_ = 0;
  return whole;
}

bool EtDecoder::metadata(std::span<const uint8_t> body) {
  const uint64_t body_offset = message_offset_ + prefix_bytes_;
  ProtoReader reader(body);
  ProtoField field;
  while (reader.next(field)) {
    fault_offset_ = body_offset + reader.field_offset();
    if (field.wire_type != WireType::bytes) continue;
    if (field.field == 1) {
      if (const char* generation = old_attribute_generation(field.bytes)) return fail(EtFaultKind::old_generation, generation);
      // In one commit of 2023 the attributes were field 1.
      if (looks_like_attribute(field.bytes)) {
        if (!metadata_attribute(field.bytes)) return false;
        continue;
      }
      if (field.bytes.size() > kMaxVersionBytes || !is_utf8(as_text(field.bytes)))
        return fail(EtFaultKind::damaged, "the metadata's version is not a short text");
      columns_.version = as_text(field.bytes);
    } else if (field.field == 2 && !metadata_attribute(field.bytes)) {
      return false;
    }
  }
  fault_offset_ = body_offset + reader.field_offset();
  return reader.fault() == nullptr || fail(EtFaultKind::damaged, std::string("the metadata has ") + reader.fault());
}

bool EtDecoder::metadata_attribute(std::span<const uint8_t> attribute) {
  AttributeBody body;
  if (const char* wrong = scan_attribute(attribute, body))
    return fail(EtFaultKind::damaged, std::string("an attribute of the metadata has ") + wrong);
  std::string text;
  if (body.name == "schema" && group_value(body, text).empty()) columns_.schema = text;
  return true;
}

bool EtDecoder::node(std::span<const uint8_t> body) {
  if (body.empty()) return fail(EtFaultKind::damaged, "a message of 0 bytes where a node should be");
  if (columns_.node_id.size() == max_nodes_)
    return fail(EtFaultKind::limit, "more than " + std::to_string(max_nodes_) + " nodes");
  const uint64_t body_offset = message_offset_ + prefix_bytes_;
  ProtoReader reader(body);
  ProtoField field;
  NodeDraft draft;
  while (reader.next(field)) {
    fault_offset_ = body_offset + reader.field_offset();
    if (!node_field(field, draft)) return false;
  }
  fault_offset_ = body_offset + reader.field_offset();
  if (reader.fault() != nullptr) return malformed(std::string("the node has ") + reader.fault());
  fault_offset_ = message_offset_;
  if (draft.suspect) {
    if (const char* generation = old_node_generation(body)) return fail(EtFaultKind::old_generation, generation);
  }
  if (draft.type > kMaxNodeType)
    return malformed("node type " + std::to_string(draft.type) + " is unknown, the schema ends at " +
                     std::to_string(kMaxNodeType));
  if (draft.type == kStorageNode) {
    const std::string wrong = storage_value(draft.storage, draft.numeric[static_cast<size_t>(EtAttribute::moved_bytes)]);
    if (!wrong.empty()) return fail(EtFaultKind::bad_value, "storage " + wrong);
  }
  return append(draft);
}

bool EtDecoder::node_field(const ProtoField& field, NodeDraft& draft) {
  const auto misfit = [&] {
    return malformed("field " + std::to_string(field.field) + " (" + kNodeFields[field.field] + ") has wire type " +
                     std::to_string(static_cast<int>(field.wire_type)) + ", which the schema does not give it");
  };
  const bool varint = field.wire_type == WireType::varint;
  const bool bytes = field.wire_type == WireType::bytes;
  switch (field.field) {
    case 1: draft.id = field.number; return varint || misfit();
    case 2: draft.name = field.bytes; return bytes || misfit();
    case 3: draft.type = field.number; return varint || misfit();
    case 4: return (varint || bytes) ? dependencies(field, columns_.ctrl_deps) : misfit();
    case 5: return (varint || bytes) ? dependencies(field, columns_.data_deps) : misfit();
    case 6: draft.start_us = field.number; return varint || misfit();
    case 7: draft.duration_us = field.number; return varint || misfit();
    case 8: case 9: return bytes || misfit();
    case 10: return bytes ? node_attribute(field.bytes, draft) : misfit();
    default:
      if (field.field == 11 && bytes) draft.storage = field.bytes;
      draft.suspect |= field.field <= 20;
      return true;
  }
}

bool EtDecoder::node_attribute(std::span<const uint8_t> attribute, NodeDraft& draft) {
  AttributeBody body;
  if (const char* wrong = scan_attribute(attribute, body)) return malformed(std::string("an attribute has ") + wrong);
  const EtAttribute which = attribute_named(body.name);
  if (which == EtAttribute::other) return true;
  const auto refuse = [&](const std::string& wrong) {
    return fail(EtFaultKind::bad_value, std::string(body.name) + " " + wrong);
  };
  if (which == EtAttribute::group) {
    if (const std::string wrong = group_value(body, group_scratch_); !wrong.empty()) return refuse(wrong);
    const int32_t group = group_index(group_scratch_);
    if (draft.group >= 0 && draft.group != group) return refuse("disagrees with an earlier group attribute of the node");
    draft.group = group;
    return true;
  }
  if (which == EtAttribute::splits) {
    if (columns_.send_split_bytes.size() != static_cast<size_t>(columns_.split_offsets.back())) return refuse("is given twice");
    const std::string wrong = split_values(body, columns_.send_split_bytes);
    return wrong.empty() || refuse(wrong);
  }
  int64_t value = 0;
  const bool is_dims = which == EtAttribute::involved_dims;
  if (const std::string wrong = is_dims ? dims_value(body, value) : numeric_value(body, value); !wrong.empty())
    return refuse(wrong);
  int64_t& slot = draft.numeric[static_cast<size_t>(which)];
  if (slot != kAbsent && slot != value) return refuse("is given twice with different values");
  slot = value;
  return true;
}

bool EtDecoder::dependencies(const ProtoField& field, std::vector<uint64_t>& out) {
  if (field.wire_type == WireType::varint) {
    out.push_back(field.number);
    return true;
  }
  ProtoReader packed(field.bytes);
  uint64_t id = 0;
  while (!packed.at_end()) {
    if (!packed.varint(id)) return malformed(std::string("a dependency list has ") + packed.fault());
    out.push_back(id);
  }
  return true;
}

bool EtDecoder::append(const NodeDraft& draft) {
  columns_.node_id.push_back(draft.id);
  columns_.kind.push_back(static_cast<uint8_t>(draft.type));
  columns_.byte_offset.push_back(message_offset_);
  columns_.name_bytes.append(as_text(draft.name));
  columns_.name_offsets.push_back(columns_.name_bytes.size());
  columns_.data_dep_offsets.push_back(static_cast<int64_t>(columns_.data_deps.size()));
  columns_.ctrl_dep_offsets.push_back(static_cast<int64_t>(columns_.ctrl_deps.size()));
  columns_.start_us.push_back(draft.start_us);
  columns_.duration_us.push_back(draft.duration_us);
  for (size_t i = 0; i < draft.numeric.size(); ++i) {
    std::vector<int64_t>& column = columns_.numeric[i];
    if (i >= kFirstRare && column.empty()) {
      if (draft.numeric[i] == kAbsent) continue;
      column.assign(columns_.node_id.size() - 1, kAbsent);
    }
    column.push_back(draft.numeric[i]);
  }
  columns_.pg_name.push_back(draft.group);
  columns_.split_offsets.push_back(static_cast<int64_t>(columns_.send_split_bytes.size()));
  return true;
}

int32_t EtDecoder::group_index(const std::string& name) {
  const auto [entry, fresh] = group_indices_.try_emplace(name, static_cast<int32_t>(columns_.pg_names.size()));
  if (fresh) columns_.pg_names.push_back(name);
  return entry->second;
}

// Bytes that do not fit the current schema may fit an old one, which is the better diagnosis.
bool EtDecoder::malformed(std::string what) {
  if (const char* generation = old_node_generation(body_)) return fail(EtFaultKind::old_generation, generation);
  return fail(EtFaultKind::damaged, std::move(what));
}

bool EtDecoder::fail(EtFaultKind kind, std::string what) {
  EtFault fault{kind, std::move(what), fault_offset_, std::nullopt, std::nullopt};
  if (!first_) {
    fault.node_index = columns_.node_id.size();
    if (!body_.empty()) fault.node_id = id_in(body_, in_body_);
  }
  fault_ = std::move(fault);
  return false;
}

}  // namespace etloop
