"""The text of `etloop plan` for a serving workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.cli.text.plan import table_lines
from etloop.contract.base.units import approximate_bytes, approximate_duration

if TYPE_CHECKING:
    from etloop.controller.plan.serving_report import ServingPlan


def render_serving_plan(plan: ServingPlan) -> str:
    """Return the plan in words and tables; it ends with a newline."""
    lines = [
        f"{plan.model} on {plan.gpus} GPUs: {plan.requests} requests ({plan.source}) in {approximate_duration(plan.span_ns)}",
        (
            f"tokens: {plan.input_tokens} in, {plan.output_tokens} out; KV of all prompts without reuse "
            f"{approximate_bytes(plan.prompt_kv_bytes)}"
        ),
        f"room for KV: {plan.prefill_kv_tokens} tokens in a prefill instance, {plan.decode_kv_tokens} in a decode instance",
        f"KV cache: {plan.kv_bytes_per_token} bytes a token, moved by {plan.kv_flows} flows",
        "",
    ]
    kv = [(str(row.tokens), str(row.cache_bytes), str(row.moved_bytes)) for row in plan.kv]
    lines += [*table_lines(("tokens", "S_KV (B)", "moved (B)"), kv), ""]
    if plan.exchanges:
        heading = (
            "pool",
            "GPUs",
            "tokens a GPU",
            "T_dispatch (B)",
            "T_egress (B)",
            "to other hosts (B)",
            "combine (B)",
        )
        rows = [
            (
                row.pool,
                str(row.ranks),
                str(row.tokens),
                f"{row.pair_bytes:.1f}",
                str(row.egress_bytes),
                str(row.other_hosts_bytes),
                str(row.combine_bytes),
            )
            for row in plan.exchanges
        ]
        lines += [*table_lines(heading, rows), ""]
    lines += [f"source of the model: {source}" for source in plan.sources]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(line.rstrip() for line in lines) + "\n"
