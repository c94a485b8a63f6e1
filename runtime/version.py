"""Which version of ETLoop is installed."""

from __future__ import annotations


def installed_version() -> str:
    """Return the version that the package index knows, "unknown" where the package is not installed at all."""
    # Here, because it takes longer to load than all else that a short command needs.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("etloop")
    except PackageNotFoundError:
        return "unknown"
