"""Notes on the effect of rounding on a job that is scaled by `scale.bytes`.

Decides which ops count as scaled and from which deviation on a note is written; `workload.program.builder` decides how sizes
are rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import parse_factor
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from etloop.controller.plan.demand import OpColumns

_WORD_BYTES: Final = 4
_LEAST_PERCENT: Final = 1
"""Deviation in percent up to which no note is written."""


def rounding_notes(ops: OpColumns, scale_text: str) -> tuple[str, ...]:
    """Return a note if rounding to whole words changes the bytes of a scaled job by more than 1 %, else ().

    `scale_text` is `scale.bytes` as written in the scenario, such as "1/16" or "5%".
    """
    scale = parse_factor(scale_text)
    if scale == 1:
        return ()
    # Generated loads are not scaled (same bytes), and barriers have no bytes. An op of one word cannot shrink, but counts.
    may_be_scaled = (ops.message_bytes != ops.trace_bytes) | (ops.message_bytes <= _WORD_BYTES)
    is_scaled = may_be_scaled & (ops.trace_bytes > 0) & (ops.collective != CollectiveKind.BARRIER)
    exact_bytes = int(ops.trace_bytes[is_scaled].sum()) * scale
    rounded_bytes = int(ops.message_bytes[is_scaled].sum())
    if not exact_bytes or abs(rounded_bytes - exact_bytes) * 100 <= _LEAST_PERCENT * exact_bytes:
        return ()
    deviation = float(rounded_bytes / exact_bytes - 1)
    problem = f"rounding to whole words (at least one) changes the bytes of operations by {deviation:+.1%}"
    return (f"scale.bytes {scale_text}: {problem}; scale down less",)
