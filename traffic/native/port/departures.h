// Checks whether an interface honours departure times of packets (SO_TXTIME): the queueing discipline `fq` does (Linux
// net/sched/sch_fq.c, since 4.20), others send at once. Queried by rtnetlink.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "port/neighbours.h"

namespace etloop {

struct Qdisc {
  int interface = 0;
  uint32_t handle = 0;
  uint32_t parent = 0;
  std::string kind;
};

enum class DumpPart : uint8_t { more, over, broken };
// Parse the queueing disciplines of one dump answer, of all interfaces. Parsing stops at a malformed message.
DumpPart read_qdiscs(std::span<const uint8_t> messages, std::vector<Qdisc>& out);

// Return why departure times are not honoured, and the remedy; "": they are.
std::string departures_refused(std::span<const Qdisc> qdiscs, const Interface& interface);
// Same for the current state of this host.
std::string departures_refused(const Interface& interface);

}  // namespace etloop
