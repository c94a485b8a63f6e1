"""A measurement in a process of its own, so that its memory and its caches are its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    F = TypeVar("F", bound=DataclassInstance)

BAR_MISSED = 30
"""Exit code of a bench with --check whose bar is not met."""


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def print_figures(figures: DataclassInstance) -> None:
    """Hand figures to the process that waits for them in `measured_apart`."""
    sys.stdout.write(json.dumps(asdict(figures)))


def measured_apart(kind: type[F], module: str, *arguments: str) -> F:
    """Figures of a bench's module, run with `arguments` in a fresh process."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return kind(**json.loads(done.stdout))
