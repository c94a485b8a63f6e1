// contract.topology.SwitchSettings -> SwitchConfig.
#pragma once

#include <nanobind/nanobind.h>

#include "switch_config.h"

namespace etloop {

// `routes`: of this switch, by destination, the numbers of its ports that lead there. Not yet validated. Throws ValueError
// for values that do not fit their types.
SwitchConfig switch_config_from(nanobind::handle settings, nanobind::handle routes);

}  // namespace etloop
