"""Makes loading the many modules of a command cheap: no threads that nothing here has work for, no looks for garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def quick_loading() -> Iterator[None]:
    """Load modules inside at less cost; afterwards everything is as it was.

    numpy's library for matrices starts a thread for every core when it is loaded, a third of what loading numpy costs on two
    cores; inside it starts none. What the user has set stays, and processes that are started later inherit nothing. Python
    looks through all classes and functions for garbage again and again while they are made, and finds none; inside it does
    not look.
    """
    collects, own_threads = gc.isenabled(), _THREADS not in os.environ
    if own_threads:
        os.environ[_THREADS] = "1"
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        if own_threads:
            del os.environ[_THREADS]
