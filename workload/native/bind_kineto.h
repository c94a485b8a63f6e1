// The scanner of profiler events, for Python.
#pragma once

#include <nanobind/nanobind.h>

void bind_kineto(nanobind::module_& module);
