// Ctrl-C during a calculation that does not hold Python's lock: its signal handlers run when asked, in the main thread alone,
// and what they raise ends the calculation.
#pragma once

#include <nanobind/nanobind.h>

#include "base/stop_sign.h"

namespace etloop {

inline bool signal_raised() {
  const nanobind::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0;
}

// After the calculation, with the lock.
inline void raise_if_stopped() {
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
}

}  // namespace etloop
