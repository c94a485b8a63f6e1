"""What all tests share: reproducible random examples, and nothing more."""

from __future__ import annotations

import os

from hypothesis import settings

# A shared machine may stall for a second, and a test that is slow there is not wrong: no deadlines. In continuous
# integration the examples are the same every time, so that a red run is red again.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
