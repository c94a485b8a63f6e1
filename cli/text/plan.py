"""The text of `etloop plan`: a plan for display, at most one or two screens however large the job is.

Decides wording and how tables are shortened; `controller.plan.report` has every figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes, approximate_duration, format_rate
from etloop.contract.model.edges import edge_words
from etloop.results.report.run import local_traffic_warning
from etloop.results.text.layout import align

if TYPE_CHECKING:
    from etloop.contract.model.run import PlannedChoice
    from etloop.controller.plan.report import PlanReport, UnevenExchange

MOST_ROWS: Final = 32
"""Rows of a table that are shown; --json has all."""
_MOST_RANGES: Final = 6


def render_plan(report: PlanReport) -> str:
    """Return the plan in words and tables; it ends with a newline."""
    paths = ", ".join(f"{count} {path.replace('_', '-')}" for path, count in report.connections.items())
    tables = (
        table_lines(_rank_heading(report), _rank_rows(report)),
        table_lines(_COMMUNICATOR_HEADING, _communicator_rows(report)),
        table_lines(
            ("kind", "algorithm", "ranks", "ops", "put in", "through DUT", "local"), _kind_rows(report)
        ),
        *([table_lines(_CHOICE_HEADING, _choice_rows(report))] if report.choices else []),
        *([table_lines(_UNEVEN_HEADING, _uneven_rows(report))] if report.uneven else []),
        table_lines(
            ("port", "link", "ranks", "QP ends", "tx", "rx", "at link speed", "hairpin"), _port_rows(report)
        ),
    )
    warning = local_traffic_warning(report.fabric_bytes, report.payload_bytes)
    lines = [f"warning: {text}" for text in (warning, *report.warnings) if text]
    lines += [_headline(report), *_crossing(report), f"edges: {edge_words(report.edges)}", ""]
    for table in tables:
        lines += [*table, ""]
    lines += [f"connections: {paths}", _bound(report)]
    lines += [f"note: {note}" for note in report.notes if note not in report.warnings]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(report: PlanReport) -> str:
    return (
        f"{report.source}: {len(report.ranks)} ranks, {report.operations} network ops an iteration, "
        f"{report.iterations} iterations, bytes x {report.bytes_scale}, time x {report.time_scale}, "
        f"dependencies {report.policy}{f', shaped as {report.shaping}' if report.shaping else ''}"
    )


def _crossing(report: PlanReport) -> tuple[str, ...]:
    total, crossing = approximate_bytes(report.payload_bytes), approximate_bytes(report.fabric_bytes)
    share = f"S_fabric {crossing} ({share_text(report.fabric_bytes, report.payload_bytes)})"
    rail_lines: tuple[str, ...] = ()
    if report.same_rail_bytes is not None:
        same_rail_text = approximate_bytes(report.same_rail_bytes)
        rail_lines = (
            f"of S_fabric, {same_rail_text} ({share_text(report.same_rail_bytes, report.fabric_bytes)}) stay on their rail",
        )
    return (f"payload an iteration: S {total}, of which {share} crosses the device under test", *rail_lines)


def _bound(report: PlanReport) -> str:
    least = approximate_duration(report.ideal_ns)
    return f"no iteration can be shorter than {least}: the busiest port's payload at link speed, and nothing else"


def _rank_heading(report: PlanReport) -> tuple[str, ...]:
    rails = report.same_rail_bytes is not None
    return ("rank", "host", *(["rail"] if rails else []), "port", "address")


def _rank_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            str(place.rank),
            str(place.host),
            *([] if place.nic is None else [str(place.nic)]),
            f"{place.agent}/{place.port}",
            place.address,
        )
        for place in report.ranks
    ]


_COMMUNICATOR_HEADING: Final = ("communicator", "ranks", "ops", "payload", "through DUT", "members")


def _communicator_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            use.name or "(world)",
            str(len(use.members)),
            str(use.operations),
            approximate_bytes(use.payload_bytes),
            approximate_bytes(use.fabric_bytes),
            rank_ranges(use.members),
        )
        for use in report.communicators
        if use.operations
    ]


def _kind_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            kind.kind,
            kind.algorithm,
            str(kind.ranks),
            str(kind.operations),
            approximate_bytes(kind.message_bytes),
            approximate_bytes(kind.wire_bytes),
            approximate_bytes(kind.local_bytes),
        )
        for kind in report.kinds
    ]


_CHOICE_HEADING: Final = (
    "carried out",
    "ranks",
    "a host",
    "bytes",
    "algorithm",
    "protocol",
    "complete when",
    "channels",
    "messages",
    "why",
)


def _choice_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            choice.collective,
            str(choice.ranks),
            str(choice.ranks_per_host),
            _byte_range(choice.least_bytes, choice.most_bytes),
            choice.algorithm,
            choice.protocol,
            choice.completion,
            str(choice.channels),
            str(choice.messages),
            _why(choice),
        )
        for choice in report.choices
    ]


def _byte_range(least: int, most: int) -> str:
    return (
        approximate_bytes(most)
        if least == most
        else f"{approximate_bytes(least)} - {approximate_bytes(most)}"
    )


def _why(choice: PlannedChoice) -> str:
    """Return the reason of a choice, with the model's times of the choice and of the best alternative."""
    by_time = sorted(choice.alternatives.items(), key=lambda item: item[1])
    choice_name = f"{'ring' if choice.algorithm == 'chain' else choice.algorithm} {choice.protocol}"
    choice_ns = choice.alternatives.get(choice_name)
    alternatives = [
        f"{name} {approximate_duration(time_ns)}" for name, time_ns in by_time if name != choice_name
    ]
    if choice_ns is None or not alternatives:
        return choice.reason
    return f"{choice.reason}: {approximate_duration(choice_ns)}, next {alternatives[0]}"


_UNEVEN_HEADING: Final = ("uneven all-to-all", "ranks", "ops", "payload", "sends most", "receives most")


def _uneven_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            use.communicator or "(world)",
            str(use.ranks),
            str(use.operations),
            approximate_bytes(use.payload_bytes),
            _busiest(use.busiest_sender, use.sender_bytes, use),
            _busiest(use.busiest_receiver, use.receiver_bytes, use),
        )
        for use in report.uneven
    ]


def _busiest(rank: int, rank_bytes: int, use: UnevenExchange) -> str:
    """Return a rank, its bytes, and their ratio to the mean."""
    if not rank_bytes:
        return "no rank"
    return f"rank {rank}: {approximate_bytes(rank_bytes)} ({rank_bytes * use.ranks / use.payload_bytes:.1f} x mean)"


def _port_rows(report: PlanReport) -> list[tuple[str, ...]]:
    return [
        (
            f"{port.agent}/{port.port}",
            format_rate(port.link_bps),
            rank_ranges(port.ranks),
            str(port.queue_pairs),
            approximate_bytes(port.tx_bytes),
            approximate_bytes(port.rx_bytes),
            f"{approximate_duration(port.link_time_ns)} ({share_text(port.link_time_ns, report.ideal_ns)})",
            approximate_bytes(port.hairpin_bytes),
        )
        for port in report.ports
    ]


def share_text(part: int, whole: int) -> str:
    """Return a part of a whole in percent."""
    return f"{100 * part / whole:.0f}%" if whole else "0%"


def rank_ranges(ranks: Sequence[int]) -> str:
    """Format ranks in their order: "0-3,8-11", strides as "0-56:8"; at most six ranges, then "..."."""
    ranges: list[str] = []
    begin = 0
    while begin < len(ranks):
        end = begin + 1
        step = ranks[begin + 1] - ranks[begin] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step > 0:
            end += 1
        if end - begin < 3 and step != 1:
            end = begin + 1
        first, last = ranks[begin], ranks[end - 1]
        stride = f":{step}" if step > 1 and end - begin > 1 else ""
        ranges.append(f"{first}-{last}{stride}" if end - begin > 1 else str(first))
        begin = end
    return ",".join(ranges[:_MOST_RANGES]) + (",..." if len(ranges) > _MOST_RANGES else "")


def table_lines(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Yield the lines of a table in columns, shortened to `MOST_ROWS`."""
    shown_rows = rows if len(rows) <= MOST_ROWS else rows[: MOST_ROWS - 1]
    yield from align((heading, *shown_rows), range(len(heading)))
    if len(rows) > len(shown_rows):
        yield f"... and {len(rows) - len(shown_rows)} more (--json has all)"
