"""torch.compile: the script runs eagerly, so that its operators and collectives are those of eager mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..recorder import Record


def install(record: Record) -> None:
    """Replace `torch.compile` and `Module.compile`."""

    def remark() -> None:
        record.note(
            "torch.compile is not applied: fusion, bucketing and reordering by the compiler are not recorded"
        )

    def compile_nothing(model: Any = None, **kwargs: Any) -> Any:
        remark()
        return model if model is not None else lambda function: function

    torch.compile = compile_nothing
    nn.Module.compile = lambda self, *args, **kwargs: remark()
