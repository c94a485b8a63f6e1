// Whether the kernel lets packets leave an interface at times that are said with them (SO_TXTIME): its queueing discipline
// `fq` does (Linux net/sched/sch_fq.c, since 4.20), anything else sends them at once. Found by rtnetlink.
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
// The queueing disciplines in one answer to a dump request, of whatever interfaces. What follows a broken message is not read.
DumpPart read_qdiscs(std::span<const uint8_t> messages, std::vector<Qdisc>& out);

// Why packets of the interface do not leave at their times, and what to do; "": they do.
std::string departures_refused(std::span<const Qdisc> qdiscs, const Interface& interface);
// The same of this host as it stands.
std::string departures_refused(const Interface& interface);

}  // namespace etloop
