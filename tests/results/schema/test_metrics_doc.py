"""docs/metrics.md derives every number: no column or key without its line, and no line for a column that is gone."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args, get_type_hints

import pytest

from etloop.contract.model.run import RunEnd
from etloop.results.device.summary import CLASSES, RECONCILIATION
from etloop.results.device.tables import COUNTERS, DUT
from etloop.results.measure.summary import measure
from etloop.results.schema.columns import COMPARISON, JOBS, TABLES, Column
from etloop.results.schema.kinds import CONVENTIONS
from etloop.results.schema.summary import SUMMARY_SCHEMA, ConsistencyResult, Summary
from tests.support.places import ROOT
from tests.support.runs.records_by_hand import connection_rows_by_hand, outcome_by_hand, tables_by_hand

PAGE: Final = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
OTHER_TABLES: Final = {
    "comparison.parquet": COMPARISON,
    "jobs.parquet": JOBS,
    "reconciliation.parquet": RECONCILIATION,
    "classes.parquet": CLASSES,
    "counters.parquet": COUNTERS,
    "dut.parquet": DUT,
}
"""Those that not every run has."""


def section(title: str) -> str:
    """The text of one `## N. title` section."""
    found = re.search(rf"^## \d+\. {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/metrics.md has no section {title!r}"
    return found[1]


def named(text: str) -> set[str]:
    """Everything in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def summary_keys(cls: Any = Summary) -> set[str]:
    """Every key of summary.json, at every depth."""
    keys: set[str] = set()
    hints = get_type_hints(cls)
    for field in fields(cls):
        keys.add(field.name)
        for part in (hints[field.name], *get_args(hints[field.name])):
            if is_dataclass(part):
                keys |= summary_keys(part)
    return keys


@pytest.mark.parametrize(("file", "columns"), [*TABLES.items(), *OTHER_TABLES.items()])
def test_every_column_is_derived(file: str, columns: tuple[Column, ...]) -> None:
    missing = {column.name for column in columns} - named(section(file))
    assert missing == set(), f"derive them in docs/metrics.md, section {file}"


@pytest.mark.parametrize(("file", "columns"), [*TABLES.items(), *OTHER_TABLES.items()])
def test_no_line_outlives_its_column(file: str, columns: tuple[Column, ...]) -> None:
    rows = [line.split("|")[1] for line in section(file).splitlines() if line.startswith("| `")]
    extra = named("\n".join(rows)) - {column.name for column in columns}
    assert extra == set(), f"{file} has no such columns"


def test_every_key_of_the_summary_is_derived() -> None:
    assert summary_keys() - named(section("summary.json")) == set()
    assert SUMMARY_SCHEMA in named(PAGE)


def test_every_check_state_and_kind_is_explained() -> None:
    outcome, tables = outcome_by_hand(), tables_by_hand()
    checks = measure(outcome, tables, connection_rows_by_hand()).summary.checks
    explained = named(PAGE)
    assert {check.name for check in checks} <= explained
    assert {str(value) for value in (*ConsistencyResult, *RunEnd)} <= explained
    assert {convention.name for convention in CONVENTIONS} <= explained


def test_the_factors_of_the_page_are_those_of_the_code() -> None:
    rows = [line.split("|") for line in section("Conventions").splitlines() if line.startswith("| `")]
    factors = {kind: row[3].strip().replace("\N{MINUS SIGN}", "-") for row in rows for kind in named(row[1])}
    factors["barrier"] = "1"  # The page says "no bandwidth", which S = 0 makes of it.
    assert factors == {convention.name: convention.factor.value for convention in CONVENTIONS}


def test_a_section_that_is_not_there_is_told() -> None:
    with pytest.raises(AssertionError, match=r"no section 'nothing\.parquet'"):
        section("nothing.parquet")
