"""Builds the command that runs a module of this project as a process of its own."""

from __future__ import annotations

import sys


def own_module(module: str, *words: str) -> tuple[str, ...]:
    """Return the command line that runs `module` of this installation with `words`.

    `-P` keeps the working directory out of the module search path, so that modules in it cannot replace this project's.
    """
    return (sys.executable, "-P", "-m", module, *words)
