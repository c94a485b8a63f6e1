"""Run one rank of a script over gloo: `python real_run.py HOW OUT SCRIPT [ARGS]` under RANK, WORLD_SIZE and MASTER_PORT.

`observer` writes PyTorch's execution trace to OUT. `groups` writes the ranks of each operation's group, seen by a dispatch mode:
two runs, because under a mode the observer counts some operations twice. After a `+balanced`, torch.bincount returns equal
counts.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

FUNCTIONAL = "_c10d_functional"


def main() -> None:
    """Run the script."""
    how, out, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    if how.endswith("+balanced"):
        how = how.removesuffix("+balanced")
        torch.bincount = lambda counted, minlength: torch.full((minlength,), counted.numel() // minlength)
    if how == "observer":
        observer = torch.profiler.ExecutionTraceObserver().register_callback(out)
        observer.start()
        _leave_out_inference(observer.stop, observer.start)
        runpy.run_path(script, run_name="__main__")
        observer.stop()
        observer.unregister_callback()
        return
    groups: list[list[int]] = []
    mode = _Groups(groups)
    _leave_out_inference(
        lambda: setattr(mode, "is_stopped", True), lambda: setattr(mode, "is_stopped", False)
    )
    with mode:
        runpy.run_path(script, run_name="__main__")
    Path(out).write_text(json.dumps(groups))


def _leave_out_inference(stop: Callable[[], None], start: Callable[[], None]) -> None:
    """Stop observing while stages of a pipeline agree on shapes: the recorder leaves these messages out."""
    from torch.distributed.pipelining import schedules

    outermost = [True]
    for kind, name in (
        (schedules.PipelineScheduleSingle, "_initialize_stage"),
        (schedules.PipelineScheduleMulti, "_initialize_stages"),
    ):
        original = getattr(kind, name, None)
        if original is None:
            continue

        def run(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            is_outermost, outermost[0] = outermost[0], False
            if is_outermost:
                stop()
            result = _original(*args, **kwargs)
            if is_outermost:
                start()
                outermost[0] = True
            return result

        setattr(kind, name, run)


class _Groups(TorchDispatchMode):
    def __init__(self, groups: list[list[int]]) -> None:
        super().__init__()
        self._groups = groups
        self.is_stopped = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the group of a collective; sends and receives have a peer."""
        if any(kind.__name__ in ("DTensor", "AsyncCollectiveTensor") for kind in types):
            return NotImplemented
        has_peer = func.__name__.startswith(("send", "recv"))
        if func.namespace in ("c10d", FUNCTIONAL) and not (has_peer or self.is_stopped):
            group = self._group(func, args)
            if group is not None:
                self._groups.append(distributed.get_process_group_ranks(group))
        return func(*args, **(kwargs or {}))

    def _group(self, func: Any, args: Any) -> Any:
        if func.namespace == FUNCTIONAL:
            names = [value for value in args if isinstance(value, str)]
            waits = func.__name__.startswith("wait_tensor")
            if waits or not names:  # _wrap_tensor_autograd is no collective
                return None
            return distributed.distributed_c10d._resolve_process_group(names[-1])  # noqa: SLF001
        objects = [value for value in args if isinstance(value, torch.ScriptObject)]
        for value in objects:
            try:
                return distributed.ProcessGroup.unbox(value)
            except (RuntimeError, TypeError):
                continue
        return None


main()
