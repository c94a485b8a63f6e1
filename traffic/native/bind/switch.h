// contract.topology values -> the switches, links and attachments that they describe.
#pragma once

#include <nanobind/nanobind.h>

#include "switch/soft_fabric.h"

namespace etloop {

// `settings`: a SwitchSettings; `routes`: by attachment, the ports that lead there. Throws ValueError saying what cannot be.
SwitchConfig switch_config_from(nanobind::handle settings, nanobind::handle routes);

// `topology`: a Topology; `routes`: by switch, as traffic.routes gives them. Throws ValueError. The result passed `validate`.
FabricConfig fabric_from(nanobind::handle topology, nanobind::handle routes);

}  // namespace etloop
