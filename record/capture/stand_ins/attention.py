"""flex_attention: PyTorch traces the gradient of the script's score function, which belongs to no step."""

from __future__ import annotations

import importlib
from typing import Any

from ..recorder import Record


def install(record: Record) -> None:
    """Suspend the record while a score function is traced."""
    module = importlib.import_module("torch._higher_order_ops.flex_attention")
    original = module.create_fw_bw_graph

    def trace(*args: Any, **kwargs: Any) -> Any:
        with record.suspend():
            return original(*args, **kwargs)

    vars(module).update(create_fw_bw_graph=trace)
