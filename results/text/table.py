"""The table that is printed after a run: plain text, aligned, at most 118 columns, equal for equal summaries.

Decides wording and rounding only; every figure comes from `measure/summary.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from etloop.contract.model.counters import AgentObject, CounterUse, counters_of
from etloop.contract.model.edges import edge_words
from etloop.contract.model.run import RunEnd
from etloop.results.measure.timeline import event_words
from etloop.results.schema.needless import needless_words
from etloop.results.schema.summary import BaselineSummary, CheckResult, KindSummary, Summary
from etloop.results.text.device import device_lines
from etloop.results.text.expected import comparison_lines
from etloop.results.text.flow_sizes import flow_size_lines
from etloop.results.text.jobs import job_lines
from etloop.results.text.layout import WIDTH, aligned, each_wrapped, labelled, printable, us, wrapped
from etloop.results.text.local_traffic import local_traffic_warning
from etloop.results.text.losses import loss_lines
from etloop.results.text.slow_ops import slow_name_lines
from etloop.results.text.verdict import verdict_lines

_HEADINGS: Final = (
    ("", "", "", "", "total", "S_fab", "time (us)", "", "", "", "algbw", "busbw"),
    ("collective", "algorithm", "n", "count", "S", "/sent", "min", "avg", "p50", "p99", "(GB/s)", "(GB/s)"),
)
_BASELINE_HEADINGS: Final = (
    ("", "", "", "", "", "all joined (us)", "", "recorded"),
    ("collective", "communicator", "k", "count", "S", "min", "p50", "(us)"),
)
BASELINES_SHOWN: Final = 16
_DISCARDS: Final = [counter for owner in AgentObject for counter in counters_of(owner, CounterUse.DISCARD)]
_PROVOKED: Final = [
    counter
    for counter in counters_of(AgentObject.PORT, CounterUse.SUMMED)
    if counter.words and CounterUse.DISCARD not in counter.uses
]
_KIND_LIMIT: Final = 20
_COMMUNICATOR_LIMIT: Final = 20
_ALGORITHM_LIMIT: Final = 10


def render(summary: Summary, run_dir: str, *, pages: Mapping[str, str] | None = None, more: str = "") -> str:
    """Return the table of a run whose files are in `run_dir`; it ends with a newline.

    The verdict comes last, because readers look for it first; only the locations of the results follow. `pages`: paths of
    files for people, by description. `more`: additional text of the caller, printed after the figures.
    """
    carried = summary.bytes
    warning = local_traffic_warning(carried.wire_tx_bytes, carried.wire_tx_bytes + carried.local_tx_bytes)
    lines = [*wrapped("warning", warning)] if warning else []
    lines += [*_header(summary), "", *job_lines(summary), *_kinds(summary), "", *_baselines(summary)]
    lines += [*flow_size_lines(summary.flow_sizes), *slow_name_lines(summary.slow_names)]
    if summary.comparison is not None:
        lines += [*comparison_lines(summary.comparison), ""]
    lines += _figures(summary)
    if summary.dut is not None:
        lines += device_lines(summary.dut)
    lines += each_wrapped("timeline", map(event_words, summary.timeline))
    lines += [*each_wrapped("degraded", grouped(summary.degraded)), *each_wrapped("note", summary.notes)]
    if more:
        lines += ["", *more.splitlines(), ""]
    lines += _checks(summary)
    if summary.verdict is not None:
        lines += verdict_lines(summary.verdict)
    lines += labelled("results", run_dir)
    for label, place in (pages or {}).items():
        lines += labelled(label, place)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _header(summary: Summary) -> list[str]:
    """Return the lines that identify the run and how it ended."""
    workload = summary.workload
    scale = f"bytes x {workload.bytes_scale}, time x {workload.time_scale}"
    lines = [
        *wrapped("run", f"{summary.run_id}, started {summary.started_at}, {summary.state.value}"),
        *wrapped(
            "workload",
            f"{workload.source}: {workload.ranks} ranks, {workload.iterations} iterations, {scale}, "
            f"dependencies {workload.policy}",
        ),
        *wrapped("edges", edge_words(workload.edges)),
        *each_wrapped("numbers", nonce_words(summary)),
    ]
    if summary.state is not RunEnd.DONE:
        # The wait-for chain of a stall has one line per link, so its line breaks are kept.
        for index, line in enumerate(summary.reason.splitlines() or ["no reason was given"]):
            lines += wrapped(summary.state.value if index == 0 else "", line)
    return lines


def grouped(texts: Iterable[str], most_places: int = 4) -> tuple[str, ...]:
    """Merge texts "PLACE: text" that differ only in the place into one line that names the places; other texts stay
    unchanged."""
    places: dict[str, list[str]] = {}
    for text in texts:
        place, colon, message = text.partition(": ")
        places.setdefault(message if colon else text, []).append(place if colon else "")
    merged = []
    for message, names in places.items():
        known_places = [name for name in names if name]
        places_left_out = len(known_places) - most_places
        places_text = ", ".join(known_places[:most_places]) + (
            f" and {places_left_out} more" if places_left_out > 0 else ""
        )
        merged.append(f"{places_text}: {message}" if places_text else message)
    return tuple(merged)


def nonce_words(summary: Summary) -> tuple[str, ...]:
    """Return the setting that reproduces this run's numbers on the wire; empty if they are the default ones."""
    if not summary.run_nonce:
        return ()
    explanation = "queue pair numbers, keys and first PSNs were drawn from it"
    return (f"transport.run_nonce {summary.run_nonce}: {explanation}",)


def _kinds(summary: Summary) -> list[str]:
    if not summary.kinds:
        return ["No collective completed."]
    rows = [*_HEADINGS, *(_kind_row(kind) for kind in summary.kinds)]
    lines = aligned(rows)
    if max(map(len, lines)) > WIDTH:
        lines = aligned(rows, gap=" ")
    incomplete = sum(kind.incomplete for kind in summary.kinds)
    if incomplete:
        lines.append(f"Not in these figures: {incomplete} of which only some members completed.")
    return lines


def _baselines(summary: Summary) -> list[str]:
    """Return the table of replayed and recorded times, one line a collective; no lines if the trace recorded no times."""
    if not summary.baselines.total:
        return []
    shown_baselines = summary.baselines.first[:BASELINES_SHOWN]
    rows = [*_BASELINE_HEADINGS, *(_baseline_row(baseline) for baseline in shown_baselines)]
    lines = aligned(rows)
    more = summary.baselines.total - len(shown_baselines)
    if more:
        lines.append(f"And {more} more in collectives.parquet, column recorded_ns.")
    return [*lines, ""]


def _baseline_row(one: BaselineSummary) -> tuple[str, ...]:
    return (
        one.kind[:_KIND_LIMIT],
        printable(one.communicator)[:_COMMUNICATOR_LIMIT],
        str(one.sequence),
        str(one.count),
        _bytes(one.size_bytes),
        us(one.joined_min_ns),
        us(one.joined_p50_ns),
        ("<= " if one.recorded_ranks < one.ranks else "") + us(one.recorded_ns),
    )


def _kind_row(kind: KindSummary) -> tuple[str, ...]:
    return (
        kind.kind[:_KIND_LIMIT],
        kind.algorithm[:_ALGORITHM_LIMIT],
        str(kind.ranks),
        str(kind.count),
        _bytes(kind.size_bytes),
        _percent(kind.fabric_share),
        *map(us, (kind.time_min_ns, kind.time_avg_ns, kind.time_p50_ns, kind.time_p99_ns)),
        _gigabytes_per_s(kind.algbw_bytes_per_s),
        _gigabytes_per_s(kind.busbw_bytes_per_s),
    )


def _figures(summary: Summary) -> list[str]:
    """Return the lines of job time, ops, slip, payload, retransmissions and losses."""
    job, ops, carried, transport = summary.job, summary.ops, summary.bytes, summary.transport
    slip = summary.slip
    span = "in all" if job.complete else "until it stopped"
    lines = [
        *wrapped(
            "job completion",
            f"{us(job.jct_ns)} us {span}; per iteration min {us(job.iteration_jct_min_ns)}, "
            f"avg {us(job.iteration_jct_avg_ns)}, max {us(job.iteration_jct_max_ns)} us",
        ),
        *(wrapped("", overlap) if (overlap := overlap_words(summary)) else ()),
        *wrapped("ops", f"{ops.recorded} of {ops.planned} completed"),
        *wrapped(
            "slip",
            "no op completed"
            if slip is None
            else f"p50 {us(slip.p50_ns)}, p99 {us(slip.p99_ns)}, max {us(slip.max_ns)} us (our own lateness)",
        ),
        *wrapped(
            "payload",
            f"{_bytes(carried.wire_tx_bytes)} through the device under test ({_percent(carried.fabric_share)} of what was "
            f"sent), {_bytes(carried.local_tx_bytes)} kept local; {carried.messages} messages",
        ),
        *wrapped("retransmitted", _retransmissions(transport)),
    ]
    if needless := needless_words(transport):
        lines += wrapped("needless", needless)
    if discarded := discard_words(transport):
        lines += wrapped("discarded", discarded)
    if provoked := _provoked(transport):
        lines += wrapped("provoked", provoked)
    lines += _own_losses(transport) if summary.losses is None else loss_lines(summary.losses)
    lines += wrapped(
        "clock error",
        f"at most {us(summary.clock.between_agents_error_ns)} us between agents, none within one",
    )
    return lines


def _own_losses(counts: Mapping[str, int]) -> list[str]:
    """Return the losses of a run of an earlier version, which has no table of losses."""
    lines = []
    if dropped := counts["injected_drops"]:
        lines += wrapped("dropped by us", f"{dropped} of the datagrams received, as the scenario asks")
    if lost := counts["receive_overflows"]:
        lines += wrapped("our loss", f"{lost} datagrams, because receive buffers of the agents were full")
    return lines


def overlap_words(summary: Summary) -> str:
    """Return why a collective takes longer than an iteration; "" if none does."""
    ends_ns, overlap = 0, False
    for iteration in summary.job.per_iteration:
        overlap |= iteration.iteration > 0 and iteration.start_ns < ends_ns
        ends_ns = max(ends_ns, iteration.end_ns)
    shortest_ns = summary.job.iteration_jct_min_ns or 0
    longest_ns = max((kind.time_max_ns or 0 for kind in summary.kinds), default=0)
    if not overlap or longest_ns <= shortest_ns:
        return ""
    return (
        f"iterations overlap: ranks begin the next one as soon as they may, and the time of an iteration is counted from the end "
        f"of the one before; so a collective takes up to {us(longest_ns)} us, and an iteration {us(shortest_ns)} us"
    )


def discard_words(counts: Mapping[str, int]) -> str:
    """Return how many packets the endpoints discarded, by reason; "" if none."""
    parts = [f"{counts[counter.name]} {counter.words}" for counter in _DISCARDS if counts[counter.name]]
    return f"packets {', '.join(parts)}" if parts else ""


def _provoked(counts: Mapping[str, int]) -> str:
    """Return the effects of the scenario's fault rules in words; "" if there were none."""
    parts = [f"{counts[counter.name]} {counter.words}" for counter in _PROVOKED if counts[counter.name]]
    words = [f"packets {', '.join(parts)}"] if parts else []
    if counts["tx_pause_frames"]:  # agents send pause frames only if the scenario asks for them
        words.append(f"{counts['tx_pause_frames']} pause frames sent")
    return f"{', '.join(words)}, as the scenario asks" if words else ""


def _retransmissions(counts: Mapping[str, int]) -> str:
    return (
        f"{counts['retransmitted_packets']} of {counts['tx_packets']} packets; "
        f"timeouts {counts['local_ack_timeout_err']}, NAKs {counts['naks_rx']}, "
        f"ECN marks {counts['np_ecn_marked_roce_packets']}, "
        f"CNPs {counts['rp_cnp_handled'] + counts['rp_cnp_ignored']}"
    )


def _checks(summary: Summary) -> list[str]:
    by_result = {
        result: [check for check in summary.checks if check.result is result] for result in CheckResult
    }
    failed, unchecked = by_result[CheckResult.FAIL], by_result[CheckResult.NOT_CHECKED]
    text = f"{len(by_result[CheckResult.PASS])} hold, {len(failed)} fail"
    if unchecked:
        text += f", {len(unchecked)} not checked because the run was aborted"
    lines = wrapped("checks", text)
    for check in failed:
        lines += wrapped("FAILED", f"{check.name}: {check.mismatches} of {check.checked}")
        lines += each_wrapped("", check.examples)
    return lines


def _bytes(size_bytes: int) -> str:
    """Return bytes with a decimal unit and four digits: 999 B, 24.58 MB."""
    value, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB", "PB", "EB"))
    unit = next(units)
    # 999.95 would be rounded up to five digits.
    while value >= 999.95:
        value, unit = value / 1000, next(units)
    if unit == "B":
        return f"{size_bytes} B"
    return f"{value:.{2 if value < 99.995 else 1}f} {unit}"


def _percent(share: float | None) -> str:
    """Return a share in whole percent; never "100%" for less than all, nor "0%" for more than nothing."""
    if share is None:
        return "-"
    percent = round(100 * share)
    if percent == 100 and share < 1:
        return ">99%"
    return f"{percent}%" if percent or not share else "<1%"


def _gigabytes_per_s(rate: float | None) -> str:
    """Return a rate in GB/s (10^9 bytes per second) without unit; "-" for None."""
    if rate is None:
        return "-"
    return f"{rate / 1e9:.3f}" if rate < 999.9995e9 else f"{rate / 1e9:.4g}"
