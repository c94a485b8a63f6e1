"""Collects the garbage of a process that runs for months, soon and cheaply. Callers decide when.

Python collects reference cycles of young objects after enough allocations, and of old ones when a quarter as many
objects have joined them (docs.python.org, gc.set_threshold). Modules and classes are a hundred thousand objects, so the
garbage of runs would stay for hundreds of runs. The startup objects are frozen once; a collection of the rest then
takes a millisecond and can be made after every run.
"""

from __future__ import annotations

import gc


def freeze_startup_objects() -> int:
    """Exclude all present objects from later collections; return their number."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


def collect_cycles() -> bool:
    """Collect the cycles among objects made since `freeze_startup_objects`; without a freeze, skip it and return False.

    A full collection without a freeze would take long.
    """
    if gc.get_freeze_count() == 0:
        return False
    gc.collect()
    return True
