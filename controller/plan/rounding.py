"""What rounding made of a job that `scale.bytes` shrank, for the notes of a plan.

Decides what counts as scaled and when it is worth a note; how sizes are rounded is decided by `workload.program.builder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import parse_factor
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from etloop.controller.plan.demand import OpColumns

_WORD_BYTES: Final = 4
_LEAST_PERCENT: Final = 1
"""Less is not worth a note."""


def rounding_notes(ops: OpColumns, scale_text: str) -> tuple[str, ...]:
    """Tell by how much whole words make a scaled job other than it should be, where that is more than 1 %.

    `scale_text` is `scale.bytes` as the scenario has it, such as "1/16" or "5%".
    """
    scale = parse_factor(scale_text)
    if scale == 1:
        return ()
    # Loads of the scenario are not scaled, and barriers say nothing of bytes. A word stays a word and counts.
    changed = (ops.message_bytes != ops.trace_bytes) | (ops.message_bytes <= _WORD_BYTES)
    scaled = changed & (ops.trace_bytes > 0) & (ops.collective != CollectiveKind.BARRIER)
    wanted = int(ops.trace_bytes[scaled].sum()) * scale
    got = int(ops.message_bytes[scaled].sum())
    if not wanted or abs(got - wanted) * 100 <= _LEAST_PERCENT * wanted:
        return ()
    share = float(got / wanted - 1)
    what = (
        f"whole words, and none that becomes nothing, make the operations' bytes {share:+.1%} of what it says"
    )
    return (f"scale.bytes {scale_text}: {what}; scale down less",)
