// The columns of a `ScheduleTables` (contract/model/assignment.py) as the engine's step tables.
#pragma once

#include <nanobind/nanobind.h>

#include "plan/plan.h"

namespace etloop {

// Read the columns by name. Throws ValueError with the column's name if lengths, offsets or values do not fit; the result is safe
// to walk with LaneCursor.
ScheduleSet schedule_set_from(nanobind::handle tables);

}  // namespace etloop
