"""The history of a device as `etloop trend` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.trend import changes_table, false_alarm_words, figures_table, verdict_words
from etloop.results.text.layout import label_each, label_text, titled_table

if TYPE_CHECKING:
    from etloop.results.schema.trend import Trend

_MOST_FIGURES: Final = 80


def render_trend(trend: Trend) -> str:
    """Return verdict, changes and one line per figure for every job; ends with a newline."""
    lines = label_text("verdict", verdict_words(trend))
    lines += label_each("", trend.worse)
    for history in trend.histories:
        runs, versions = history.runs, dict.fromkeys(run.version for run in history.runs if run.version)
        words = (
            f"{history.job}, {len(runs)} runs from {runs[0].at} to {runs[-1].at}, {len(versions)} versions"
        )
        lines += ["", *label_text("job", words)]
        if runs[-1].device:
            lines += label_text("device", runs[-1].device)
        if not history.changes:
            lines += label_text("changes", f"none; {false_alarm_words(history)}")
        lines += label_each("warning", history.warnings)
        lines += titled_table(changes_table(history))
        lines += titled_table(figures_table(history), _MOST_FIGURES)
    lines += label_each("too few runs", trend.too_short)
    lines += label_each("left out", trend.left_out)
    return "\n".join(lines) + "\n"
