// Ctrl-C during a calculation without the GIL: signal_raised runs Python's signal handlers, in the main thread only, and an
// exception that they raise ends the calculation.
#pragma once

#include <nanobind/nanobind.h>

#include "base/stop_sign.h"

namespace etloop {

inline bool signal_raised() {
  const nanobind::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0;
}

// Throw the exception of a signal handler. Call after the calculation, with the GIL.
inline void raise_if_stopped() {
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
}

}  // namespace etloop
