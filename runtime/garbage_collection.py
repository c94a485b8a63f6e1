"""Finds what a process that lives for months has left behind, soon and cheaply. Decides nothing about when.

Python looks for rings of objects that nothing refers to when enough was made since, and through old ones when a quarter as
many have joined them. Modules and classes are a hundred thousand objects, so what runs leave behind would lie about for
hundreds of runs (docs.python.org, gc.set_threshold). What stays is set aside once, so that a look at the rest takes a
millisecond and can be had after every run.
"""

from __future__ import annotations

import gc


def freeze_startup_objects() -> int:
    """Takes what there is, which stays, out of every later look for garbage; how many objects that are."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


def collect_cycles() -> bool:
    """Frees the rings among what was made since `freeze_startup_objects`. Without that nothing is done, as it would take long."""
    if gc.get_freeze_count() == 0:
        return False
    gc.collect()
    return True
