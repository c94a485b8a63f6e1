// The bare path of ports that write whole frames: one packet socket or AF_XDP socket at each end, the same frame repeatedly, no
// protocol and no ICRC. Used by `blast_send` and `blast_receive`.
#pragma once

#include <string>

#include "bare/blast.h"

namespace etloop {

Result<BlastTotals> frame_blast_send(const BlastSettings& settings);
Result<BlastTotals> frame_blast_receive(const BlastSettings& settings);

}  // namespace etloop
