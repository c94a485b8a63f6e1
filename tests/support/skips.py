"""Which tests may be left out, and why: every reason is of a kind that is listed here, and kinds are counted.

Decides whether a skip is accounted for. A reason of no kind is a failure, so that nothing is left out in silence; so is what
is missing where continuous integration, as root, was promised it: all of system-packages.txt, and a kernel to boot.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

PACKAGES: Final = re.compile(r"\(Debian packages? ([a-z0-9.+, -]+)\)")


class Kind(StrEnum):
    """Why a test was left out."""

    FULL = "left to ETLOOP_FULL=1"
    MATERIAL = "of material that is not beside the repository"
    PROGRAM = "of programs that are not installed"
    FETCHED = "of a kernel package that could not be fetched"
    RIGHTS = "for root"
    TORCH = "of PyTorch, which this environment lacks (.ci/run records the examples with one of its own)"
    SNAPPI = "of the snappi package, which pins older releases than the lock files"
    CLOUDAI = "of CloudAI, which is not on the package index"
    KERNEL = "of what this kernel or machine does not have"


_KINDS: Final = (
    (re.compile(r"ETLOOP_FULL=1 "), Kind.FULL),
    (
        re.compile(r"(trace sets|oracle schedules|shared traces) are not |commit history is not "),
        Kind.MATERIAL,
    ),
    (PACKAGES, Kind.PROGRAM),
    (re.compile(r"^no interop machine: no kernel to boot\b"), Kind.FETCHED),
    (re.compile(r"^(PyTorch is not installed|ETLOOP_TORCHTITAN names no directory)"), Kind.TORCH),
    (re.compile(r"^the snappi package is not installed"), Kind.SNAPPI),
    (re.compile(r"^CloudAI is not installed"), Kind.CLOUDAI),
    (re.compile(r"\broot\b"), Kind.RIGHTS),
    (
        re.compile(
            r"^(this kernel|this C library|this system is not Debian bookworm|no interop machine|no container engine"
            r"|no soft switch on this host)\b"
        ),
        Kind.KERNEL,
    ),
)


def kind_of(reason: str) -> Kind | None:
    """None for a reason that nobody has accounted for."""
    return next((kind for pattern, kind in _KINDS if pattern.search(reason)), None)


def objection(reason: str, *, all_installed: bool) -> str:
    """Why a test may not be left out for this reason; "" if it may. `all_installed`: by `.ci/run`, as root."""
    kind = kind_of(reason)
    if kind is None:
        return f"skipped for a reason that tests/support/skips.py does not know: {reason}"
    if kind is Kind.PROGRAM and all_installed:
        return f"skipped although system-packages.txt promises it: {reason}"
    if kind is Kind.RIGHTS and all_installed:
        return f"skipped for root although root runs it: {reason}"
    if kind is Kind.FETCHED and all_installed:
        return f"skipped although continuous integration can fetch it: {reason}"
    return ""
