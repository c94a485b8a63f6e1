"""The choice of files that a run leaves. Cheap to import: command lines are parsed with it."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """Which files of a run are written."""

    FIGURES = "figures"
    """summary.json, kpis.json and the inputs: the figures, without anything by rank, flow or time."""
    TABLES = "tables"
    """All but plan.json and case.zip."""
    EVERYTHING = "everything"
