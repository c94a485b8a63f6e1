"""Rows of tables that the code declares: rooms with their first sentence, and rules of `dut check`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from etloop.controller.run.device_check import CHECK_RULE
from etloop.dut_profiles.model.findings import Rule
from etloop.dut_profiles.rules.contradictions import RULES
from etloop.dut_profiles.rules.job import JOB_RULES, RIG_RULES, USUAL_RULES

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MARK: Final = "<!-- rows: tools/write_reference.py -->\n"
_TABLE: Final = re.compile(rf"{MARK}(\|[^\n]+\n\|[-|]+\n)((?:\|[^\n]*\n)*)")


def pages_with_rows() -> dict[str, str]:
    """Return the pages whose marked table has its rows from the code, with their text."""
    return {page: _with_rows(page, rows) for page, rows in _ROWS.items()}


def _with_rows(page: str, rows_of: Callable[[str], str]) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    text, places = _TABLE.subn(lambda table: f"{MARK}{table[1]}{rows_of(table[2])}", text)
    assert places == 1, f"{page} has {places} tables behind {MARK}"
    return text


def _rooms(rows: str) -> str:
    """Return a row for each room in the order of `rows`: the first paragraph of its `__init__`."""
    return "".join(
        f"| `{room}/` | {_sentence_of(room)} |\n" for room in re.findall(r"^\| `(.+)/`", rows, re.MULTILINE)
    )


def _sentence_of(room: str) -> str:
    source = ROOT / room / "__init__.py"
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text, f"{source} has no docstring"
    return " ".join(text.partition("\n\n")[0].split())


def _rules(_: str) -> str:
    rules: list[Rule[Any]] = [*RULES, *USUAL_RULES, CHECK_RULE, *RIG_RULES, *JOB_RULES]
    return "".join(f"| `{rule.name}` | {rule.severity} | {rule.meaning} |\n" for rule in rules)


_ROWS: Final = {"docs/reference/rooms.md": _rooms, "docs/reference/rules.md": _rules}
