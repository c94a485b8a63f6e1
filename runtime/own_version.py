"""Name the version that runs here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def etloop_version() -> str:
    """Return the version of the installed package; "source" when run from a work tree."""
    try:
        return version("etloop")
    except PackageNotFoundError:
        return "source"
