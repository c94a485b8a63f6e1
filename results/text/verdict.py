"""The verdict in the table that is printed after a run. Decides wording only."""

from __future__ import annotations

from typing import Final

from etloop.results.schema.verdict import CheckOutcome, Result, Verdict
from etloop.results.text.layout import each_wrapped, wrapped

_ORDER: Final = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)
WORDS: Final = {Result.PASS: "PASS", Result.FAIL: "FAIL", Result.INCONCLUSIVE: "INCONCLUSIVE"}


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return a summary line, then the lines of every condition, failed ones first, with the rows that broke it."""
    counts = {result: sum(check.result is result for check in verdict.checks) for result in Result}
    summary_text = (
        ", ".join(f"{counts[result]} {result.value}" for result in Result if counts[result])
        or "no conditions"
    )
    device = f" of {verdict.device}" if verdict.device else ""
    lines = wrapped("verdict", f"{WORDS[verdict.result]}{device}: {summary_text}")
    for check in sorted(verdict.checks, key=lambda outcome: _ORDER.index(outcome.result)):
        lines += _check_lines(check)
    return lines + each_wrapped("emulator", verdict.emulator)


def _check_lines(one: CheckOutcome) -> list[str]:
    lines = wrapped(
        f"  {WORDS[one.result].lower()}", f"{one.expression}{f'  ({one.value})' if one.value else ''}"
    )
    if one.result is Result.PASS:
        return lines
    if one.reason:
        lines += wrapped("", one.reason)
    if one.broken and one.checked > 1:
        lines += wrapped("", f"{one.broken} of {one.checked} rows break it")
    lines += each_wrapped("", (f"- {row}" for row in one.rows))
    return [*lines, *(wrapped("", f"why: {one.why}") if one.why else ())]
