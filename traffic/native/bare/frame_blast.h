// The bare path of ports that write whole frames: one packet socket or AF_XDP socket at each end, the same frame again and
// again, no protocol and no ICRC. As `blast_send` and `blast_receive`, which call these.
#pragma once

#include <string>

#include "bare/blast.h"

namespace etloop {

Result<BlastTotals> frame_blast_send(const BlastSettings& settings);
Result<BlastTotals> frame_blast_receive(const BlastSettings& settings);

}  // namespace etloop
