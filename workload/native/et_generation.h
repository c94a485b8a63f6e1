// Distinguishes the proto2 generations of the Chakra schema (2023) from the current one by their bytes. Pure; a cold path. A file
// does not contain its generation, and old enums read with the current schema silently turn an all-to-all into a reduce: such
// files are rejected by name, never read. Layouts: mlcommons/chakra, commits df405e8 (v0.0.1), 2719463 (v0.0.2), 9d917e3
// (v0.0.3), 7bab792 (v0.0.3 with uint64 attributes).
#pragma once

#include <cstdint>
#include <span>

namespace etloop {

// Return the name of the old generation of a Node's bytes, null if none matches.
const char* old_node_generation(std::span<const uint8_t> node);

// Same for one AttributeProto: its name followed by the required `type`.
const char* old_attribute_generation(std::span<const uint8_t> attribute);

}  // namespace etloop
