"""Make the import of many modules cheap: no BLAS threads, no garbage collection of modules, no pandas in our programs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def quick_loading() -> Iterator[None]:
    """Reduce the cost of imports inside the block; afterwards the settings are as before.

    numpy's linear algebra library starts a thread for every core when it is loaded, a third of the cost of loading
    numpy on two cores; inside the block it starts none. A value set by the user stays, and processes started later do
    not inherit this one. The garbage collector is off inside the block, where it finds no garbage, and later collections skip
    all objects that exist at the end of the first block (`gc.freeze`): modules live until the process ends.
    """
    gc_was_enabled, sets_threads = gc.isenabled(), _THREADS not in os.environ
    if sets_threads:
        os.environ[_THREADS] = "1"
    gc.disable()
    try:
        yield
    finally:
        _freeze_once()
        if gc_was_enabled:
            gc.enable()
        if sets_threads:
            del os.environ[_THREADS]


@cache
def _freeze_once() -> None:
    """Exclude all present objects from later collections, at the first call only: asking how many are excluded takes
    milliseconds."""
    gc.freeze()


class _NoPandas:
    """A finder that finds no pandas, and leaves every other module to the finders after it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("no program of ETLoop uses pandas", name=name)


def leave_out_pandas() -> None:
    """Let nothing import pandas in this process from now on; for programs of ETLoop alone, never for a user's own.

    Where it is installed, Arrow imports it for its first array, to distinguish a data frame from a list. That takes half a
    second of processor time and is of no use to any command.
    """
    sys.meta_path.insert(0, _NoPandas())
