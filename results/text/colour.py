"""Colours for the table of a run on a terminal: pass, fail and warnings are visible at a glance. Pure wording."""

from __future__ import annotations

import re
from typing import Final

_GREEN: Final = "32"
_RED: Final = "31"
_YELLOW: Final = "33"
_RULES: Final = (
    (re.compile(r"^(PASS|DONE) +\S.*"), f"1;{_GREEN}"),
    (re.compile(r"^(FAIL|BROKEN) +\S.*"), f"1;{_RED}"),
    (re.compile(r"^(INCONCLUSIVE) +\S.*"), f"1;{_YELLOW}"),
    (re.compile(r"^(?:# )?verdict +(PASS)\b.*"), f"1;{_GREEN}"),
    (re.compile(r"^(?:# )?verdict +(FAIL)\b.*"), f"1;{_RED}"),
    (re.compile(r"^(?:# )?verdict +(INCONCLUSIVE)\b.*"), f"1;{_YELLOW}"),
    (re.compile(r"^(?:# )?  (pass) +\S.*"), _GREEN),
    (re.compile(r"^(?:# )?  (fail) +\S.*"), _RED),
    (re.compile(r"^(?:# )?  (inconclusive) +\S.*"), _YELLOW),
    (re.compile(r"^consistency +\d+ checks pass, ([1-9]\d* fail)\b.*"), _RED),
    (re.compile(r"^(FAILED) +\S.*"), _RED),
    (re.compile(r"^(warning|degraded|aborted|stopped|needless|finding) +\S.*"), _YELLOW),
)
"""Group of a line that is coloured, and its SGR parameters (ECMA-48, select graphic rendition)."""


def paint(table: str) -> str:
    """Return a table of a run, or of collectives with `# ` in front of such lines, with its states in colour; the text is
    unchanged."""
    return "".join(map(_paint_line, table.splitlines(keepends=True)))


def _paint_line(line: str) -> str:
    for rule, colour in _RULES:
        if match := rule.match(line):
            start, end = match.span(1)
            return f"{line[:start]}\x1b[{colour}m{line[start:end]}\x1b[0m{line[end:]}"
    return line
