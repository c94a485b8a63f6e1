"""The figures of a serving run as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes, approximate_duration
from etloop.results.schema.serving import Percentiles
from etloop.results.text.verdict import verdict_lines

if TYPE_CHECKING:
    from etloop.results.serving.run import ServingRun

PART_NAMES: Final = {
    "memory_wait": "wait for memory",
    "prefill_wait": "wait for prefill",
    "prefill": "prefill (modelled)",
    "prefill_fabric": "prefill, experts on the fabric",
    "transfer": "KV transfer",
    "decode_wait": "wait for decode",
    "decode": "first step (modelled)",
    "decode_fabric": "first step, experts on the fabric",
}


def serving_lines(run: ServingRun) -> list[str]:
    """Return the summary of a run, a line each."""
    figures = run.figures
    lines = [f"{figures.model}: {figures.source}"]
    if run.failure:
        lines.append(f"the run broke off: {run.failure}")
    if run.verdict is not None:
        lines += verdict_lines(run.verdict)
    lines += [
        (
            f"requests: {figures.arrived} arrived = {figures.finished} finished + {figures.running} running + "
            f"{figures.refused} refused, in {approximate_duration(figures.duration_ns)}"
        ),
        (
            f"rate: {figures.request_rate:.3g} requests/s, {figures.input_tokens_per_s:.4g} input and "
            f"{figures.output_tokens_per_s:.4g} output tokens/s; within the objective {figures.met_objective}, "
            f"{figures.goodput:.3g} requests/s and {figures.goodput_tokens_per_s:.4g} tokens/s"
        ),
        "",
        f"{'':34}{'mean':>12}{'p50':>12}{'p95':>12}{'p99':>12}{'p99.9':>12}{'max':>12}",
    ]
    lines += _row("time to first token (TTFT)", figures.ttft)
    for name, part in figures.ttft_parts.items():
        lines += _row(f"  {PART_NAMES[name]}", part) if part.most else []
    lines += _row("  of these the fabric", figures.ttft_fabric)
    lines += _row("inter-token latency (ITL)", figures.itl)
    lines += _row("  step (modelled)", figures.itl_compute)
    lines += _row("  experts on the fabric", figures.itl_fabric) if figures.exchange else []
    lines += _row("first to second token", figures.second_token)
    lines += _row("arrival to last token", figures.e2e)
    lines += _row("KV transfer, first to last byte", figures.kv_latency)
    lines += _row("dispatch or combine", figures.exchange)
    lines += _row("slip of the emulator, by message", figures.slip)
    for job in figures.jobs:
        lines += _row(f"iteration of {job.name}", job.iteration)
    fairness = ", ".join(f"{name} {value:.3f}" for name, value in figures.fairness.items())
    lines += [
        "",
        (
            f"KV: {approximate_bytes(figures.kv_bytes)}, {figures.kv_bytes_per_s / 1e9:.3g} GB/s on average, "
            f"{figures.kv_transfer_bytes_per_s / 1e9:.3g} GB/s within a transfer (median)"
        ),
        f"prefix cache: {figures.prefix_hit_requests} requests with a hit, {figures.prefix_hit_tokens} tokens",
        f"fairness over instances (Jain): {fairness}",
    ]
    if figures.exchange_bytes:
        lines.append(f"experts: {approximate_bytes(figures.exchange_bytes)} dispatched and combined")
    lines += [
        f"{job.name}: {job.complete} of {job.iterations} iterations, ended after {approximate_duration(job.end_ns)}"
        for job in figures.jobs
    ]
    lines += [f"note: {note}" for note in figures.notes]
    return lines


def _row(name: str, figure: Percentiles | None) -> list[str]:
    if figure is None:
        return []
    values = (figure.mean, figure.p50, figure.p95, figure.p99, figure.p999, figure.most)
    return [f"{name:34}" + "".join(f"{milliseconds(value):>12}" for value in values)]


def milliseconds(value_ns: float) -> str:
    """Return a time in milliseconds with four digits, or with all of them before the point."""
    value_ms = value_ns / 1e6
    return f"{value_ms:.0f} ms" if value_ms >= 1000 else f"{value_ms:.4g} ms"
