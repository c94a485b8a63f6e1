"""Where the repository is, and what may lie beside it."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared"
"""Traces and oracles that are not part of the repository; tests skip with a counted reason where it is absent."""
