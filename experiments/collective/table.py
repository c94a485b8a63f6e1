"""Text output of `etloop collective` in the layout of NVIDIA/nccl-tests, so that parsers of its output work.

Decides wording, widths and rounding (src/common.cu: print_header, print_line_header and the rows of BenchTime); every
figure comes from `figures`. Information that nccl-tests does not print is in additional comment lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.collective_spec import BenchSpec, Half, Variant, root_of
from etloop.experiments.collective.result import RankLine, TestOpening, Verdict
from etloop.results.schema.kinds import CONVENTIONS
from etloop.results.text.layout import align
from etloop.results.text.verdict import verdict_lines

if TYPE_CHECKING:
    from etloop.contract.model.run import PlannedChoice
    from etloop.experiments.collective.figures import Interference, RowFigures
    from etloop.results.schema.summary import Summary

_LABEL_WIDTH: Final = 20
_TIME_WIDTH: Final = 7
_RATE_WIDTH: Final = 6


def render_start(
    version: str,
    spec: BenchSpec,
    kind: int,
    variant: Variant,
    places: Sequence[RankLine],
    notes: Sequence[str],
) -> str:
    """Return the text above the rows of one test."""
    pinned = variant.words()
    growth = f"{spec.factor}(factor)" if spec.factor > 1 else f"{spec.step_bytes}(bytes)"
    lines = [
        f"# etloop version {version}, RoCEv2 through the device under test, no GPU (layout of nccl-tests)",
        f"# Collective test starting: {CONVENTIONS[kind].name}" + (f" ({pinned})" if pinned else ""),
        (
            f"# nThread 1 nGpus 1 minBytes {spec.least_bytes} maxBytes {spec.most_bytes} step: {growth} "
            f"warmup iters: {spec.warmups} iters: {spec.iterations} agg iters: 1 validation: 1 graph: 0"
        ),
        "#",
        "# Using devices",
        *(
            f"#  Rank {place.rank:2d} Group  0 Host {place.host:3d} on {place.agent:>10s} port {place.port} [{place.address}]"
            for place in places
        ),
        *(f"# note: {note}" for note in notes),
        "# out-of-place and in-place send the same bytes: two samples of one measurement.",
        "# #wrong counts bytes whose accounting (sent, received, by way) differs from the plan.",
    ]
    left_out = len(spec.sizes()) - len(spec.amounts(kind))
    if left_out:
        sizes = "size is" if left_out == 1 else "sizes are"
        lines.append(f"# {left_out} {sizes} left out: a rank would contribute less than 16 B.")
    return "\n".join(lines) + "\n"


def choice_words(choice: PlannedChoice) -> str:
    """Return how operations of a range of sizes were carried out, and why; bytes are the input of one rank."""
    sizes = str(choice.least_bytes)
    if choice.most_bytes != choice.least_bytes:
        sizes += f" to {choice.most_bytes}"
    channels = f"{choice.channels} channel{'s' if choice.channels > 1 else ''}"
    rule = f"complete when {choice.completion}"
    return f"{sizes} B a rank: {choice.algorithm}, {choice.protocol}, {channels}, {rule} ({choice.reason})"


def render_heading(*, per_iteration: bool) -> str:
    """Return the three heading lines above the columns."""
    gap = " " * (36 if per_iteration else 0)
    extra = ("i_min", "i_max", "i_p99", "i_cv%") if per_iteration else ()
    units = ("(us)", "(us)", "(us)", "") if per_iteration else ()
    half = ("time", "algbw", "busbw", "#wrong")
    half_units = ("(us)", "(GB/s)", "(GB/s)", "")
    return (
        f"#\n# {'':10s}  {'':12s}  {'':8s}  {'':6s}  {'':6s}           out-of-place            {gap}           in-place\n"
        f"# {'size':>10s}  {'count':>12s}  {'type':>8s}  {'redop':>6s}  {'root':>6s}"
        f"{_columns(half, extra)}{_columns(half, extra)}{_medians(('median',) * 2)}\n"
        f"# {'(B)':>10s}  {'(elements)':>12s}  {'':>8s}  {'':>6s}  {'':>6s}"
        f"{_columns(half_units, units)}{_columns(half_units, units)}{_medians(('(us)',) * 2)}\n"
    )


def _columns(half: Sequence[str], extra: Sequence[str]) -> str:
    time, algbw, busbw, wrong = half
    text = f"  {time:>7s}  {algbw:>6s}  {busbw:>6s}  {wrong:>6s}"
    return text + "".join(f"  {heading:>7s}" for heading in extra)


def render_rows(spec: BenchSpec, rows: Sequence[RowFigures], *, per_iteration: bool) -> str:
    """Return one line for every size, with both halves."""
    lines = []
    halves: dict[tuple[int, int], dict[Half, RowFigures]] = {}
    for row in rows:
        halves.setdefault((row.amount.size_bytes, row.amount.count), {})[row.half] = row
    for (size_bytes, count), row_by_half in halves.items():
        kind = row_by_half[Half.OUT_OF_PLACE].kind
        line = (
            f"{size_bytes:12d}  {count:12d}  {spec.datatype:>8s}  {spec.redop(kind):>6s}  {root_of(kind):6d}"
        )
        lines.append(
            line
            + "".join(
                _half(row_by_half[half], per_iteration=per_iteration) for half in Half if half in row_by_half
            )
            + _medians(_median(row_by_half[half]) for half in Half if half in row_by_half)
        )
    return "".join(f"{line}\n" for line in lines)


def _medians(cells: Iterable[str]) -> str:
    """Return the columns after those of nccl-tests: the medians of single operations of both halves."""
    return "".join(f"  {cell:>7s}" for cell in cells)


def _median(row: RowFigures) -> str:
    return "N/A" if row.iterations is None else fit(row.iterations.p50_ns / 1000, _TIME_WIDTH)


def _half(row: RowFigures, *, per_iteration: bool) -> str:
    # A row with a missing operation has no time; it never looks like a fast one.
    time = "N/A" if row.time_ns is None else fit(row.time_ns / 1000, _TIME_WIDTH)
    rates = [
        "N/A" if row.time_ns is None else fit(rate / 1e9, _RATE_WIDTH) for rate in (row.algbw, row.busbw)
    ]
    text = f"  {time:>7s}  {rates[0]:>6s}  {rates[1]:>6s}  {row.wrong_bytes:6d}"
    if not per_iteration:
        return text
    single = row.iterations
    if single is None:
        return text + f"  {'N/A':>7s}" * 4
    cells = [fit(ns / 1000, _TIME_WIDTH) for ns in (single.min_ns, single.max_ns, single.p99_ns)]
    return text + "".join(f"  {cell:>7s}" for cell in (*cells, fit(single.cv_percent, _TIME_WIDTH)))


def fit(value: float, width: int) -> str:
    """Format a value with two decimals, or as many as fit into `width`."""
    for form in ("%.2f", "%.1f", "%.0f"):
        text = form % value
        if len(text) <= width:
            return text
    return f"{value:.1e}"


def render_end(kind: int, rows: Sequence[RowFigures], verdict: Verdict) -> str:
    """Return the text below the rows of one test."""
    # A stopped test found no error in its completed operations; the missing ones are reported separately.
    checked_words = "OK" if verdict.complete else "in the completed operations; others are missing"
    bounds = f"{verdict.wrong_bytes} {'FAILED' if verdict.wrong_bytes else checked_words}"
    outcome_words = {None: "", True: " OK", False: " FAILED"}[verdict.bandwidth_ok]
    sent_bytes, fabric_bytes = sum(row.sent_bytes for row in rows), sum(row.fabric_bytes for row in rows)
    share = f"{100 * fabric_bytes / sent_bytes:.1f} %" if sent_bytes else "0 %"
    lines = [
        _labelled_line("Out of bounds values", bounds),
        _labelled_line("Avg bus bandwidth", f"{verdict.average_busbw / 1e9:.4g}{outcome_words}"),
        _labelled_line("S_fabric", f"{share} of the bytes sent cross the device under test"),
        "#",
        f"# Collective test {'concluded' if verdict.complete else 'incomplete'}: {CONVENTIONS[kind].name}",
    ]
    return "\n".join(lines) + "\n"


def _labelled_line(label: str, text: str) -> str:
    return f"# {label:<{_LABEL_WIDTH}s} : {text}"


def render_opening(version: str, spec: BenchSpec, opening: TestOpening, *, per_iteration: bool) -> str:
    """Return the text above the rows of a test: its opening, known before it runs, and the heading of its rows."""
    notes = (f"shaping: {opening.shaping}", *map(choice_words, opening.choices), *opening.notes)
    text = render_start(version, spec, opening.kind, opening.variant, opening.places, notes)
    return text + render_heading(per_iteration=per_iteration)


def render_session(summary: Summary, degraded: Sequence[str], errors: Sequence[str]) -> str:
    """Return the text after the session of one or several tests."""
    transport, verdict = summary.transport, summary.verdict
    text = "".join(f"# note: {note}\n" for note in degraded)
    text += "".join(f"# ERROR: {line}\n" for error in errors for line in error.splitlines())
    retransmitted_packets, sent_packets = transport["retransmitted_packets"], transport["tx_packets"]
    text += f"# retransmitted {retransmitted_packets} of {sent_packets} packets of the whole session\n"
    if verdict is not None:
        text += "".join(f"# {line.rstrip()}\n" for line in verdict_lines(verdict))
    return text


_TOGETHER: Final = "# {:>15s}  {:>12s}  {:>12s}  {:>12s}  {:>8s}  {:>10s}\n"


def render_interference(interferences: Sequence[Interference]) -> str:
    """Return the table of every collective alone and together with the other ones."""
    text = _TOGETHER.format("collective", "size", "alone", "together", "factor", "overlapped")
    text += _TOGETHER.format("", "(B)", "(us)", "(us)", "", "(iters)")
    for result in interferences:
        times = ["N/A" if ns is None else fit(ns / 1000, 12) for ns in (result.alone_ns, result.together_ns)]
        factor = "N/A" if result.factor is None else f"{result.factor:.2f}"
        name, size = CONVENTIONS[result.kind].name, str(result.amount.size_bytes)
        text += f"  {name:>15s}  {size:>12s}  {times[0]:>12s}  {times[1]:>12s}  {factor:>8s}  {result.overlapped:>10d}\n"
    return text


@dataclass(frozen=True, slots=True)
class SweepLine:
    """One test of a sweep."""

    kind: int
    variant: Variant
    verdict: Verdict
    rows: tuple[RowFigures, ...]


def render_sweep(tests: Sequence[SweepLine]) -> str:
    """Return the table of all tests of a sweep: average bus bandwidth, and the best one of any size."""
    rows = [
        ("collective", "pinned", "avg busbw", "best busbw", "at size"),
        ("", "", "(GB/s)", "(GB/s)", "(B)"),
    ]
    for test in tests:
        best = max(test.rows, key=lambda row: row.busbw)
        rows.append(
            (
                CONVENTIONS[test.kind].name,
                test.variant.words() or "nothing",
                f"{test.verdict.average_busbw / 1e9:.4g}",
                f"{best.busbw / 1e9:.4g}",
                str(best.amount.size_bytes),
            )
        )
    return "\n".join(["# Sweep", *(f"#  {line}" for line in align(rows))]) + "\n"
