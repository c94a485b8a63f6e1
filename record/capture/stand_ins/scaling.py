"""GradScaler: every step is taken, because whether a gradient overflowed is data."""

from __future__ import annotations

from typing import Any

from torch.amp import GradScaler

from ..recorder import Record


def install(record: Record) -> None:
    """Replace the decision of `GradScaler` whether to skip a step."""

    def step(
        self: GradScaler, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        for overflow in optimizer_state["found_inf_per_device"].values():
            record.host_read(overflow)
        record.note("GradScaler takes every step: overflows are data")
        return optimizer.step(*args, **kwargs)

    GradScaler._maybe_opt_step = step
