"""Colours for the table of a run on a terminal: what is good, bad or doubtful is seen before it is read. Pure wording."""

from __future__ import annotations

import re
from typing import Final

_GREEN: Final = "32"
_RED: Final = "31"
_YELLOW: Final = "33"
_RULES: Final = (
    (re.compile(r"^(?:# )?verdict +(PASS)\b.*"), f"1;{_GREEN}"),
    (re.compile(r"^(?:# )?verdict +(FAIL)\b.*"), f"1;{_RED}"),
    (re.compile(r"^(?:# )?verdict +(INCONCLUSIVE)\b.*"), f"1;{_YELLOW}"),
    (re.compile(r"^(?:# )?  (pass) +\S.*"), _GREEN),
    (re.compile(r"^(?:# )?  (fail) +\S.*"), _RED),
    (re.compile(r"^(?:# )?  (inconclusive) +\S.*"), _YELLOW),
    (re.compile(r"^checks +\d+ hold, ([1-9]\d* fail)\b.*"), _RED),
    (re.compile(r"^(FAILED) +\S.*"), _RED),
    (re.compile(r"^(warning|degraded|aborted|stopped|needless) +\S.*"), _YELLOW),
)
"""What of a line is painted (its group), and how (ECMA-48, select graphic rendition)."""


def painted(table: str) -> str:
    """Return a table of a run, or of collectives with `# ` before such lines, with its states in colour; nothing else changes."""
    return "".join(map(_painted_line, table.splitlines(keepends=True)))


def _painted_line(line: str) -> str:
    for rule, colour in _RULES:
        if found := rule.match(line):
            start, end = found.span(1)
            return f"{line[:start]}\x1b[{colour}m{line[start:end]}\x1b[0m{line[end:]}"
    return line
