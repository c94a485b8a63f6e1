"""Makes loading the many modules of a command cheap: numpy's library starts no threads, and no garbage is collected."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def quick_loading() -> Iterator[None]:
    """Load modules inside the block at less cost; afterwards the settings are as before.

    numpy's linear algebra library starts a thread for every core when it is loaded, a third of the cost of loading
    numpy on two cores; inside the block it starts none. A value set by the user stays, and processes started later do
    not inherit this one. The garbage collector is off: while modules are loaded it runs often and finds no garbage.
    """
    gc_was_enabled, sets_threads = gc.isenabled(), _THREADS not in os.environ
    if sets_threads:
        os.environ[_THREADS] = "1"
    gc.disable()
    try:
        yield
    finally:
        if gc_was_enabled:
            gc.enable()
        if sets_threads:
            del os.environ[_THREADS]
