"""A run in words: what was executed, how it ended, and its figures as a table of labels and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from etloop.contract.model.counters import AgentObject, CounterUse, counters_of
from etloop.results.report.losses import loss_words
from etloop.results.report.table import Table, text_columns
from etloop.results.report.values import bytes_words, us, whole_percent
from etloop.results.schema.needless import needless_words
from etloop.results.schema.summary import VIRTUAL_TIME, ConsistencyResult, StreamWord

if TYPE_CHECKING:
    from etloop.results.schema.summary import StreamSummary, Summary

LEAST_FABRIC_PERCENT: Final = 50
"""Below this share of payload the results depend more on the model of the hosts than on the device."""
_DISCARDS: Final = [counter for owner in AgentObject for counter in counters_of(owner, CounterUse.DISCARD)]
_PROVOKED: Final = [
    counter
    for counter in counters_of(AgentObject.PORT, CounterUse.SUMMED)
    if counter.words and CounterUse.DISCARD not in counter.uses
]
_FORM_WORDS: Final = {StreamWord.UDP: "plain UDP", StreamWord.UUD: "UUD of UET"}


def local_traffic_warning(fabric_bytes: int, payload_bytes: int) -> str:
    """Return a warning if less than half of the payload crosses the device; "" otherwise."""
    if fabric_bytes * 100 >= payload_bytes * LEAST_FABRIC_PERCENT:
        return ""
    percent = 100 * fabric_bytes / payload_bytes
    share = "nothing" if fabric_bytes == 0 else f"only {percent:.2g}%"
    return f"{share} of the job's payload crosses the device under test; the rest stays inside hosts or ports"


def scale_words(summary: Summary) -> str:
    """Return the scale of bytes and times."""
    return f"bytes x {summary.workload.bytes_scale}, time x {summary.workload.time_scale}"


def workload_words(summary: Summary) -> str:
    """Return the source, the size and the scale of the workload."""
    workload = summary.workload
    iterations = "1 iteration" if workload.iterations == 1 else f"{workload.iterations} iterations"
    return f"{workload.source}: {workload.ranks} ranks, {iterations}, {scale_words(summary)}"


def nonce_words(summary: Summary) -> tuple[str, ...]:
    """Return the setting that reproduces this run's numbers on the wire; empty if they are the default ones."""
    if not summary.run_nonce:
        return ()
    explanation = "queue pair numbers, keys and first PSNs were drawn from it"
    return (f"transport.run_nonce {summary.run_nonce}: {explanation}",)


def run_figures(summary: Summary) -> Table:
    """Return job time, ops, slip, payload, retransmissions, losses and clock error, one row each."""
    rows = tuple(row for row in _figures(summary) if row[1])
    return Table("run-figures", "Figures of the run", text_columns("figure", "value"), rows)


def _rule_words(summary: Summary) -> str:
    """Return when ops were complete; "" for a file of an earlier version."""
    rules = dict.fromkeys(choice.completion for choice in summary.workload.choices if choice.completion)
    return f", each when {' or '.join(rules)}" if rules else ""


def _figures(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield labels and texts; "" for a text that does not apply."""
    job, slip, carried, counts = summary.job, summary.slip, summary.bytes, summary.transport
    completion = (
        f"{us(job.jct_ns)} us {'in all' if job.complete else 'until it stopped'}; per iteration "
        f"min {us(job.iteration_jct_min_ns)}, avg {us(job.iteration_jct_avg_ns)}, max {us(job.iteration_jct_max_ns)} us"
    )
    yield "job completion", completion
    yield "overlap", overlap_words(summary)
    yield "ops", f"{summary.ops.recorded} of {summary.ops.planned} completed{_rule_words(summary)}"
    yield (
        "slip",
        "no op completed"
        if slip is None
        else f"p50 {us(slip.p50_ns)}, p99 {us(slip.p99_ns)}, max {us(slip.max_ns)} us (lateness of the emulator)",
    )
    payload = (
        f"{bytes_words(carried.wire_tx_bytes)} through the device under test ({whole_percent(carried.fabric_share)} of what "
        f"was sent), {bytes_words(carried.local_tx_bytes)} kept local; {carried.messages} messages"
    )
    yield "payload", payload
    retransmissions = (
        f"{counts['retransmitted_packets']} of {counts['tx_packets']} packets; "
        f"timeouts {counts['local_ack_timeout_err']}, NAKs {counts['naks_rx']}, "
        f"ECN marks {counts['np_ecn_marked_roce_packets']}, CNPs {counts['rp_cnp_handled'] + counts['rp_cnp_ignored']}"
    )
    yield "retransmitted", retransmissions
    yield "needless", needless_words(counts)
    yield "discarded", discard_words(counts)
    yield "provoked", provoked_words(counts)
    yield (
        "clock error",
        ""
        if summary.started_at == VIRTUAL_TIME
        else f"at most {us(summary.clock.between_agents_error_ns)} us between agents, none within one",
    )
    if summary.losses is not None:
        yield "losses", loss_words(summary.losses)
    else:
        # Files of earlier versions have no table of losses.
        dropped, overflows = counts["injected_drops"], counts["receive_overflows"]
        yield (
            "dropped by us",
            f"{dropped} of the datagrams received, by a rule of the scenario" if dropped else "",
        )
        yield (
            "our loss",
            f"{overflows} datagrams, because receive buffers of the agents were full" if overflows else "",
        )


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
        "iterations overlap: a rank begins the next one as soon as its dependencies allow, and the time of an iteration is "
        "counted from the end of the one before; so a collective takes up to "
        f"{us(longest_ns)} us, and an iteration {us(shortest_ns)} us"
    )


def discard_words(counts: Mapping[str, int]) -> str:
    """Return how many packets the endpoints discarded, by reason; "" if none."""
    parts = [f"{counts[counter.name]} {counter.words}" for counter in _DISCARDS if counts[counter.name]]
    return f"packets {', '.join(parts)}" if parts else ""


def provoked_words(counts: Mapping[str, int]) -> str:
    """Return the effects of the scenario's fault rules in words; "" if there were none."""
    parts = [f"{counts[counter.name]} {counter.words}" for counter in _PROVOKED if counts[counter.name]]
    words = [f"packets {', '.join(parts)}"] if parts else []
    if counts["tx_pause_frames"]:  # agents send pause frames only if the scenario asks for them
        words.append(f"{counts['tx_pause_frames']} pause frames sent")
    return f"{', '.join(words)}, by rules of the scenario" if words else ""


def consistency_words(summary: Summary) -> str:
    """Return how many consistency checks of the run's own records passed, failed and were skipped."""
    results = [check.result for check in summary.checks]
    skipped = results.count(ConsistencyResult.NOT_CHECKED)
    text = (
        f"{results.count(ConsistencyResult.PASS)} checks pass, {results.count(ConsistencyResult.FAIL)} fail"
    )
    return f"{text}, {skipped} skipped because the run was aborted" if skipped else text


def stream_words(stream: StreamSummary) -> str:
    """Return the name and form of a background stream, and how many of its datagrams were sent and received."""
    name = f"{stream.name}: {_FORM_WORDS[stream.form]}"
    if stream.sent_datagrams is None or stream.received_datagrams is None:
        return f"{name}, one of its ends reported no counts"
    text = f"{name}, {stream.sent_datagrams} datagrams sent, {stream.received_datagrams} received"
    lost = stream.sent_datagrams - stream.received_datagrams
    text += f" ({lost / stream.sent_datagrams:.2%} lost)" if stream.sent_datagrams else ""
    return text + (f"; {stream.left_out} not sent, the agent was too slow" if stream.left_out else "")
