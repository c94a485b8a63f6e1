"""docs/lint.md has every check and every rule, each once, and none that does not exist."""

from __future__ import annotations

import re

from etloop.workload.lint.fix import Rule
from etloop.workload.trace.findings import Check
from tests.support.places import ROOT

TEXT = (ROOT / "docs" / "lint.md").read_text()
CHECKS, RULES = TEXT.split("## What `--fix` repairs")


def rows(text: str) -> list[list[str]]:
    """Cells of the table rows that begin with a name in backquotes."""
    found = re.findall(r"^\| `([a-z0-9-]+)` \|(.*)\|$", text, re.MULTILINE)
    return [[name, *(cell.strip() for cell in cells.split(" | "))] for name, cells in found]


def test_every_check_is_described_once() -> None:
    assert sorted(row[0] for row in rows(CHECKS)) == sorted(check.value for check in Check)


def test_every_rule_is_described_once() -> None:
    assert sorted(row[0] for row in rows(RULES)) == sorted(rule.value for rule in Rule)


def test_each_check_has_meaning_and_remedy_and_each_rule_its_effect() -> None:
    assert {len(row) for row in rows(CHECKS)} == {3}
    assert {len(row) for row in rows(RULES)} == {2}
    assert all(cell for row in rows(TEXT) for cell in row)
