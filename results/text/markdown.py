"""A run as a page of Markdown, for the summaries of continuous integration: verdict first, then figures, then notes.

Decides order, wording and length. Text of a trace, a rig or a condition is escaped, so it is not taken for markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd
from etloop.results.schema.verdict import CheckOutcome, Result, RunResult
from etloop.results.text.units import bytes_words, rate_words, share_words, time_words

if TYPE_CHECKING:
    from etloop.results.schema.summary import Summary

MOST_ROWS: Final = 20
LONGEST_CELL: Final = 300
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
SIGNS: Final = {
    RunResult.PASS: "✅ PASS",
    RunResult.FAIL: "❌ FAIL",
    RunResult.INCONCLUSIVE: "⚠️ INCONCLUSIVE",
    RunResult.BROKEN: "❌ BROKEN",
    RunResult.NO_VERDICT: "no verdict was asked for",
}
_ORDER: Final = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)


def markdown(summary: Summary) -> str:
    """Return the page; it ends with a newline."""
    work = summary.workload
    device = (
        f" of {_text(summary.verdict.device)}"
        if summary.verdict is not None and summary.verdict.device
        else ""
    )
    run_line = (
        f"ETLoop run {_text(summary.run_id)}: {_text(work.source)}, {work.ranks} ranks, {work.iterations} iterations, "
        f"bytes x {work.bytes_scale}, time x {work.time_scale}; started {_text(summary.started_at)}"
    )
    lines = [
        f"## {SIGNS[summary.result]}{device}",
        "",
        f"{run_line}.",
        "",
        *_listed(
            summary.failure.splitlines()
            if summary.state is not RunEnd.DONE or not summary.checks_hold
            else ()
        ),
        *_conditions(summary),
        *_figures(summary),
        *_collectives(summary),
        *_section("Emulator", () if summary.verdict is None else summary.verdict.emulator),
        *_section("Degraded", summary.degraded),
        *_section("Notes", summary.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _conditions(summary: Summary) -> list[str]:
    if summary.verdict is None:
        return []
    checks = sorted(summary.verdict.checks, key=lambda check: _ORDER.index(check.result))
    rows = [
        (
            check.result.value,
            _code(check.expression),
            _text(check.value),
            _text(check.limit),
            _text(_why(check)),
        )
        for check in checks
    ]
    return _table(("result", "condition", "found", "limit", "why"), rows)


def _why(one: CheckOutcome) -> str:
    parts = [one.reason or (one.why if one.result is not Result.PASS else ""), *one.rows[:3]]
    if one.broken and one.checked > 1:
        parts.insert(1, f"{one.broken} of {one.checked} rows break it")
    return "; ".join(part for part in parts if part)


def _figures(summary: Summary) -> list[str]:
    rows = []
    compared = summary.comparison
    if compared is not None:
        sides = (compared.job.ideal, compared.job.twin, compared.job.measured)
        times = [time_words(None if side is None else side.iteration_jct_avg_ns) for side in sides]
        rows.append(("iteration, mean", f"{times[2]} (ideal network {times[0]}, twin {times[1]})"))
    else:
        rows.append(("iteration, mean", time_words(summary.job.iteration_jct_avg_ns)))
    carried = summary.bytes
    total = carried.wire_tx_bytes + carried.local_tx_bytes
    crossing = share_words(carried.wire_tx_bytes / total if total else None)
    rows.append(("through the device", f"{bytes_words(carried.wire_tx_bytes)}, {crossing} of the payload"))
    if summary.losses is not None:
        dropped, unexplained = summary.losses.dropped_packets, summary.losses.unexplained_packets
        rows.append(("dropped by the device", "not counted" if dropped is None else f"{dropped} packets"))
        rows.append(("not explained", "not known" if unexplained is None else f"{unexplained} packets"))
    retransmitted = summary.transport.get("retransmitted_packets", 0)
    rows.append(("sent again", f"{retransmitted} packets"))
    rows.append(("ECN marks", f"{summary.transport.get('np_ecn_marked_roce_packets', 0)} packets"))
    if summary.slip is not None:
        rows.append(("our own lateness", f"{time_words(summary.slip.p99_ns)} (99 of 100 ops begin sooner)"))
    return _table(("figure", "value"), rows)


def _collectives(summary: Summary) -> list[str]:
    rows = [
        (
            _text(kind.kind),
            _text(kind.algorithm),
            str(kind.ranks),
            str(kind.count),
            bytes_words(kind.size_bytes),
            time_words(kind.time_p50_ns),
            time_words(kind.time_p99_ns),
            rate_words(kind.busbw_bytes_per_s),
        )
        for kind in summary.kinds[:MOST_ROWS]
    ]
    kinds_left_out = len(summary.kinds) - MOST_ROWS
    heads = ("collective", "algorithm", "ranks", "count", "bytes", "p50", "p99", "busbw")
    return [*_table(heads, rows), *([f"And {kinds_left_out} more.", ""] if kinds_left_out > 0 else [])]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    listed = _listed(lines)
    return [f"### {title}", "", *listed] if listed else []


def _listed(lines: Iterable[str]) -> list[str]:
    present_lines = [line for line in lines if line]
    bullets = [f"- {_text(line)}" for line in present_lines[:MOST_ROWS]]
    if len(present_lines) > MOST_ROWS:
        bullets.append(f"- and {len(present_lines) - MOST_ROWS} more")
    return [*bullets, ""] if bullets else []


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows), ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return a text as Markdown shows it: on one line, with Markdown's special characters escaped."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return _MARKS.sub(r"\\\1", line[:LONGEST_CELL])


def _code(text: str) -> str:
    line = " ".join(text.split())[:LONGEST_CELL].replace("`", "'").replace("|", "\\|")
    return f"`{line}`"
