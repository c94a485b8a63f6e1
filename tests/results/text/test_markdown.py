"""A run in Markdown: the verdict first, what failed before what passed, and no text of a user's becomes markup."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from etloop.results.schema.verdict import ConditionOutcome, Result, RunResult, Verdict
from etloop.results.text.markdown import MOST_ROWS, SIGNS, markdown
from tests.support.runs.records_by_hand import run_by_hand

SUMMARY = run_by_hand().summary


def outcome(result: Result, expression: str = "jct_ns < 1ms", **more: object) -> ConditionOutcome:
    """One condition's outcome."""
    one = ConditionOutcome(expression, "because", "scenario", result, "jct_ns = 2 ms", "< 1 ms", 1, 0, (), "")
    return replace(one, **more)  # type: ignore[arg-type]


def verdict(*checks: ConditionOutcome) -> Verdict:
    """A verdict of these."""
    worst = max((one.result for one in checks), key=[Result.PASS, Result.INCONCLUSIVE, Result.FAIL].index)
    return Verdict(worst, "tomahawk", (), ("slow host",), checks)


def test_verdict_comes_first_and_failed_conditions_before_passed_ones() -> None:
    checks = (
        outcome(Result.PASS),
        outcome(Result.FAIL, "drops == 0", rows=("leaf0/1",), checked=9, broken=2),
    )
    text = markdown(replace(SUMMARY, verdict=verdict(*checks)))
    lines = text.splitlines()
    assert lines[0] == "## ❌ FAIL of tomahawk"
    rows = [line for line in lines if line.startswith(("| PASS", "| FAIL"))]
    assert rows == [
        "| FAIL | `drops == 0` | jct\\_ns = 2 ms; 2 of 9 rows break it; leaf0/1 | \\< 1 ms | because |",
        "| PASS | `jct_ns < 1ms` | jct\\_ns = 2 ms | \\< 1 ms | because |",
    ]
    assert "### Emulator\n\n- slow host" in text


@pytest.mark.parametrize("result", list(RunResult))
def test_every_result_has_words(result: RunResult) -> None:
    assert SIGNS[result]


def test_names_of_a_trace_are_escaped() -> None:
    nasty = "<script>alert(1)</script> | [x](http://evil) `*_\n# head"
    text = markdown(replace(SUMMARY, workload=replace(SUMMARY.workload, source=nasty), notes=(nasty,) * 30))
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert "<script" not in html
    assert "<a " not in html
    assert "<h1" not in html
    assert f"and {30 - MOST_ROWS} more" in text


def test_tables_are_valid_markdown() -> None:
    html = MarkdownIt("commonmark").enable("table").render(markdown(SUMMARY))
    assert html.count("<table>") == 2, "figures and collectives"
    assert "no verdict was asked for" in html
