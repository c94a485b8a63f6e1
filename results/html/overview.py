"""The top of a report: device and run, the conditions with failed ones first, and four figures.

Decides order and wording; `results.verdict` decides what a condition means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd
from etloop.results.html.blocks import Block, Fact, Text, Tile, Tiles, listing, table_blocks
from etloop.results.report.run import consistency_words, nonce_words, run_figures, scale_words
from etloop.results.report.table import Column, Unit, table_of
from etloop.results.report.values import list_names, rate_words, share_words, time_words
from etloop.results.report.verdict import WORDS, conditions_table, count_words
from etloop.results.schema.verdict import RunResult

if TYPE_CHECKING:
    from etloop.results.schema.device_facts import DeviceFacts
    from etloop.results.schema.kpis import KpiSet
    from etloop.results.schema.summary import Summary

_BANDWIDTH: Final = "Bandwidth of collectives against line rate"
BADGES: Final = {
    RunResult.PASS: "PASS",
    RunResult.FAIL: "FAIL",
    RunResult.INCONCLUSIVE: "INCONCLUSIVE",
    RunResult.BROKEN: "BROKEN",
    RunResult.NO_VERDICT: "no verdict",
}


def head_facts(summary: Summary, facts: DeviceFacts) -> tuple[Fact, ...]:
    """Return the facts on device, firmware, run and workload; unknown ones are left out."""
    work = summary.workload
    hosts = sorted({agent.host for agent in summary.agents if agent.host})
    versions = sorted({
        f"{name} {version}" for agent in summary.agents for name, version in agent.versions.items() if name == "etloop"
    })  # fmt: skip
    device = " ".join(filter(None, (facts.vendor, facts.model)))
    profile = facts.profile or (summary.verdict.device if summary.verdict is not None else "")
    named_values = (
        ("device", device or profile or _model_words(facts)),
        ("firmware or network system", facts.software),
        ("ASIC", facts.asic),
        ("buffer", facts.buffer),
        ("profile", profile if device and profile != device else ""),
        ("identity is", facts.basis),
        ("started", _moment(summary.started_at)),
        ("made by", ", ".join(versions)),
        ("on hosts", list_names(hosts, 8)),
        ("scale", scale_words(summary)),
        ("traffic shaped as", work.shaping),
        ("drawn from", "; ".join(nonce_words(summary))),
        ("not known", "; ".join(facts.unread)),
    )
    return tuple(Fact(name, value) for name, value in named_values if value)


def _model_words(facts: DeviceFacts) -> str:
    if facts.topology is None:
        return "not named: the rig has no dut"
    count = len(facts.topology.switches)
    profiles = sorted(
        {switch.origin.profile for switch in facts.topology.switches if switch.origin is not None}
    )
    words = f"modelled after {', '.join(profiles)}" if profiles else "of no profile"
    return f"{count} switch{'es' if count > 1 else ''} of topology.yaml, {words}"


def _moment(started_at: str) -> str:
    day, separator, time = started_at.partition("T")
    if not separator:
        return started_at
    zone = time[8:].lstrip(".0123456789")
    return f"{day} {time[:8]} {'UTC' if zone in ('+00:00', 'Z') else zone}".strip()


def verdict_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the result, and each condition with its value and its limit."""
    verdict = summary.verdict
    failure_blocks: tuple[Block, ...] = ()
    if summary.state is not RunEnd.DONE:
        failure_blocks = (Text(f"The run ended early: {summary.reason}"),)
    for failed in summary.failed_checks:
        words = f"Consistency check failed: {failed.name}: {failed.mismatches} of {failed.checked}"
        failure_blocks += (Text(f"{words}; {'; '.join(failed.examples)}" if failed.examples else words),)
    if verdict is None:
        return (
            *failure_blocks,
            Text("No verdict was asked for: scenario and profile state no conditions.", is_dim=True),
        )
    emulator_lines = tuple(f"the emulator was the limit: {word}" for word in verdict.emulator)
    return (
        Text(
            f"Conditions: {count_words(verdict)}.",
            badge=verdict.result.value,
            badge_text=WORDS[verdict.result],
        ),
        *failure_blocks,
        *listing((*verdict.reasons, *emulator_lines)),
        *table_blocks(conditions_table(verdict), len(verdict.checks)),
    )


def tiles(kpis: KpiSet, summary: Summary) -> Tiles:
    """Return the four most important figures."""
    return Tiles((_completion(summary), _bandwidth(kpis), _drops(kpis), _pauses(kpis)))


def _completion(summary: Summary) -> Tile:
    measured = summary.job.iteration_jct_avg_ns
    references = []
    if summary.comparison is not None:
        job = summary.comparison.job
        for side, name, ratio in (
            (job.twin, "twin", job.measured_per_twin),
            (job.ideal, "ideal network", job.measured_per_ideal),
        ):
            if side is not None and side.iteration_jct_avg_ns is not None:
                times = "" if ratio is None else f" (x {ratio:.3g})"
                references.append(f"{name} {time_words(side.iteration_jct_avg_ns)}{times}")
    words = "; ".join(references) or "neither twin nor ideal network to compare with"
    return Tile("Job completion time of an iteration, mean", time_words(measured), words)


def _bandwidth(kpis: KpiSet) -> Tile:
    shares = [
        kind for kind in kpis.kinds if kind.share_of_ideal is not None and kind.busbw_bytes_per_s is not None
    ]
    if not shares:
        return Tile(_BANDWIDTH, "-", "no collective crosses the device at a known speed")
    greatest = max(shares, key=lambda kind: kind.size_bytes * kind.count)
    words = (
        f"{greatest.kind}, {greatest.ranks} ranks, once all take part; "
        f"busbw {rate_words(greatest.busbw_bytes_per_s)}, with the wait for the last of them"
    )
    return Tile(_BANDWIDTH, share_words(greatest.share_of_ideal), words)


def _drops(kpis: KpiSet) -> Tile:
    device, retransmitted, lost = (
        kpis.value(name) for name in ("dut_dropped_packets", "retransmitted_packets", "not_received_packets")
    )
    packets = device if device is not None else lost
    source_words = (
        "counted by the device"
        if device is not None
        else "sent and never received; the device's drops were not read"
    )
    words = (
        f"{source_words}; {retransmitted:.0f} packets sent again"
        if retransmitted is not None
        else source_words
    )
    return Tile("Packets dropped" if device is not None else "Packets lost", _count(packets), words)


def _pauses(kpis: KpiSet) -> Tile:
    device, received, paused = (
        kpis.value(name) for name in ("dut_pfc_tx_frames", "pause_frames", "paused_share")
    )
    frames = device if device is not None else received
    words = "sent by the device" if device is not None else "received by our ports"
    if paused:
        words += f"; the most paused port was paused for {share_words(paused)} of the job"
    marked = kpis.value("ecn_marked_share")
    words += f"; {share_words(marked)} of packets marked" if marked is not None else ""
    return Tile("Pause frames", _count(frames), words)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}".replace(",", "\u202f")


_AGENT_COLUMNS: Final = (
    Column("name", "agent"),
    Column("host", "host"),
    Column("ranks", "ranks", Unit.NUMBER),
    Column("ops_recorded", "ops", Unit.NUMBER),
    Column("clock_error_ns", "clock error", Unit.TIME),
    Column(
        "versions",
        "versions",
        value=lambda agent: ", ".join(f"{name} {version}" for name, version in agent.versions.items()),
    ),
)


def trust_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the limits on the accuracy of the figures: lateness of the emulator, clock errors, consistency of the records,
    degradations, and the agents."""
    emulator = () if summary.verdict is None else summary.verdict.emulator
    absent = summary.comparison.absent if summary.comparison is not None else ()
    agents = table_of("agents", "Agents", _AGENT_COLUMNS, summary.agents, all_rows_in="summary.json")
    return (
        *table_blocks(run_figures(summary)),
        Text(f"Consistency of the records: {consistency_words(summary)}."),
        *listing(emulator, "The emulator was the limit:"),
        *listing(summary.degraded, "Degraded:"),
        *listing((*summary.notes, *absent), "Notes:"),
        *table_blocks(agents),
    )
