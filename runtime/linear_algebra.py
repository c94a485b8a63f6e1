"""Keeps numpy from starting threads that nothing here has work for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let numpy, if it is first loaded inside, multiply matrices in one thread.

    Its library otherwise starts a thread for every core when it is loaded, a third of what loading numpy costs on two
    cores. What the user has set stays, and processes that are started later inherit nothing.
    """
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS]
