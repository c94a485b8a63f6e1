// One packet of MRC on its way out: its headers as values, and the entropy value that it takes.
#pragma once

#include <cstdint>

#include "wire/mrc.h"

namespace etloop::mrc {

struct Outgoing {
  wire::mrc::Packet packet;
  uint16_t entropy = 0;
};

}  // namespace etloop::mrc
