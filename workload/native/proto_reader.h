// Protocol buffer wire format: varints, tags and field bodies out of a bounded span. Pure, no allocation. Checks well-formedness;
// the meaning of fields is left to the caller. Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace etloop {

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// One field: `number` has a varint, fixed64 or fixed32 body; `bytes` a length-delimited one.
struct ProtoField {
  uint32_t field = 0;
  WireType wire_type = WireType::varint;
  uint64_t number = 0;
  std::span<const uint8_t> bytes;
};

// Reads the fields of one message. `next` is false at the end and after a fault; `fault()` distinguishes them.
class ProtoReader {
 public:
  explicit ProtoReader(std::span<const uint8_t> message) : begin_(message.data()), at_(begin_), end_(begin_ + message.size()) {}

  bool next(ProtoField& out) {
    field_begin_ = at_;
    if (at_ == end_) return false;
    uint64_t tag = 0;
    if (!varint(tag)) return false;
    if (tag > UINT32_MAX || (tag >> 3) == 0) return fail("a field tag that no schema can have");
    out.field = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7U) {
      case 0: out.wire_type = WireType::varint; return varint(out.number);
      case 1: out.wire_type = WireType::fixed64; return fixed<uint64_t>(out.number);
      case 5: out.wire_type = WireType::fixed32; return fixed<uint32_t>(out.number);
      case 2: out.wire_type = WireType::bytes; return delimited(out.bytes);
      default: return fail("a field of a wire type that proto3 does not have");
    }
  }

  // Read a bare varint, as in a packed repeated field.
  bool varint(uint64_t& out) {
    if (at_ != end_ && *at_ < 0x80) {
      out = *at_++;
      return true;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; at_ != end_; shift += 7) {
      const uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) return fail("a varint longer than 64 bits");
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) {
        out = value;
        return true;
      }
    }
    return fail("a varint cut off by the end of its message");
  }

  bool at_end() const { return at_ == end_; }
  const char* fault() const { return fault_; }  // null: none
  // Offset of the last field in the message.
  size_t field_offset() const { return static_cast<size_t>(field_begin_ - begin_); }

 private:
  bool fail(const char* what) {
    fault_ = what;
    at_ = end_;
    return false;
  }

  template <typename T>
  bool fixed(uint64_t& out) {
    if (static_cast<size_t>(end_ - at_) < sizeof(T)) return fail("a fixed-width value cut off by the end of its message");
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(at_[i]) << (8 * i);
    at_ += sizeof(T);
    out = value;
    return true;
  }

  bool delimited(std::span<const uint8_t>& out) {
    uint64_t length = 0;
    if (!varint(length)) return false;
    if (length > static_cast<uint64_t>(end_ - at_)) return fail("a length that exceeds its message");
    out = {at_, static_cast<size_t>(length)};
    at_ += length;
    return true;
  }

  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
  const uint8_t* field_begin_ = begin_;
  const char* fault_ = nullptr;
};

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace etloop
