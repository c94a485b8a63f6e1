"""What a long-lived process is done with does not lie about for hundreds of runs."""

import subprocess
import sys

_PROBE = """
import gc, weakref
from etloop.runtime.garbage_collection import collect_cycles, freeze_startup_objects

class Ring:
    def __init__(self):
        self.self = self

before = Ring()
aside = freeze_startup_objects()
seen = []
gc.callbacks.append(lambda phase, told: seen.append(len(gc.get_objects())) if phase == "start" else None)
gone = weakref.ref(Ring())
assert gone() is not None, "the ring went by itself: this probe can tell nothing"
collect_cycles()
print(gone() is None, aside > 10 * seen[-1])
"""


def test_rings_are_found_without_looking_through_what_was_there_from_the_start() -> None:
    printed = subprocess.run(
        (sys.executable, "-c", _PROBE), check=True, capture_output=True, text=True, timeout=60
    )
    assert printed.stdout.split() == ["True", "True"]
