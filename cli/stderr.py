"""What a command says beside its answer, as it goes: a line on standard error."""

from __future__ import annotations

import sys


def print_status(line: str) -> None:
    """At once, whatever is buffered."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
