// Maps the wire parsers' errors to the discard reasons that ports count.
#pragma once

#include "core/port.h"
#include "plan/discards.h"
#include "wire/mrc.h"
#include "wire/uet.h"
#include "wire/wire.h"

namespace etloop {

constexpr Discard reason_of(wire::Malformed error) {
  switch (error) {
    case wire::Malformed::too_short: return Discard::too_short;
    case wire::Malformed::transport_version: return Discard::bad_version;
    case wire::Malformed::bad_pad:
    case wire::Malformed::bad_length: return Discard::bad_length;
    case wire::Malformed::other_transport:
    case wire::Malformed::unknown_opcode:
    case wire::Malformed::none: break;
  }
  return Discard::unknown_opcode;
}

constexpr Discard reason_of(wire::mrc::Malformed error) {
  using wire::mrc::Malformed;
  switch (error) {
    case Malformed::too_short: return Discard::too_short;
    case Malformed::transport_version: return Discard::bad_version;
    case Malformed::bad_pad:
    case Malformed::bad_length: return Discard::bad_length;
    case Malformed::not_mrc:
    case Malformed::unknown_opcode:
    case Malformed::unknown_reason:
    case Malformed::none: break;
  }
  return Discard::unknown_opcode;
}

constexpr Discard reason_of(wire::uet::Malformed error) {
  using wire::uet::Malformed;
  switch (error) {
    case Malformed::too_short: return Discard::too_short;
    case Malformed::version: return Discard::bad_version;
    case Malformed::reserved_bits: return Discard::reserved_bits;
    case Malformed::message_ends:
    case Malformed::bad_length: return Discard::bad_length;
    case Malformed::unknown_type:
    case Malformed::encrypted:
    case Malformed::next_header:
    case Malformed::none: break;
  }
  return Discard::unknown_opcode;
}

}  // namespace etloop
