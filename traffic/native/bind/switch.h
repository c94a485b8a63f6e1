// contract.topology values -> switches, links and attachments.
#pragma once

#include <nanobind/nanobind.h>

#include "switch/soft_fabric.h"

namespace etloop {

// `settings`: a SwitchSettings; `routes`: for each attachment the egress ports. Throws ValueError with the reason.
SwitchConfig switch_config_from(nanobind::handle settings, nanobind::handle routes);

// `topology`: a Topology; `routes`: for each switch those of traffic.routes. Throws ValueError. The result has passed `validate`.
FabricConfig fabric_from(nanobind::handle topology, nanobind::handle routes);

}  // namespace etloop
