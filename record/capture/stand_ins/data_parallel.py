"""DistributedDataParallel's reducer in Python: PyTorch's own, in C++, reads data.

The Python class around it stays PyTorch's own. The rules are those of torch/csrc/distributed/c10d/reducer.cpp: buckets are
reduced in order as soon as all their gradients are ready; after the first backward pass they are rebuilt in the order in which
gradients became ready, which two broadcasts from rank 0 make equal everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed
from torch.autograd import Variable
from torch.distributed import utils as distributed_utils
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import distributed as data_parallel

from ..events import Refusal


def install() -> None:
    """Replace the reducer, its logger, and the constructor's exchange of states."""

    def verify(process_group: Any, tensors: Any, logger: Any = None) -> None:
        """Exchange what PyTorch compares: the number of parameters, then sizes and strides, as int64."""
        count = torch.zeros(1, dtype=torch.int64, device=tensors[0].device)
        distributed.all_gather(
            [torch.empty_like(count) for _ in range(process_group.size())], count, group=process_group
        )
        shapes = torch.zeros(
            2 * sum(tensor.dim() for tensor in tensors), dtype=torch.int64, device=tensors[0].device
        )
        distributed.broadcast(shapes, group=process_group, group_src=0)

    def broadcast_coalesced(
        process_group: Any, tensors: list[torch.Tensor], buffer_size: int, src: int = 0
    ) -> None:
        for indices in _assign(tensors, [buffer_size], [], []):
            bucket = [tensors[index] for index in indices]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in bucket])
            distributed.broadcast(flat, group=process_group, group_src=src)
            for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.detach().copy_(part.view(tensor.shape))

    def register_builtin(reducer: Reducer, kind: Any) -> None:
        hooks = {
            distributed.BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
            distributed.BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
        }
        reducer.register_comm_hook(reducer.group, hooks[kind])

    def compute_assignment(
        tensors: Any, limits: Any, expect_sparse: Any = (), indices: Any = (), logger: Any = None
    ) -> Any:
        buckets = _assign(list(tensors), list(limits), list(expect_sparse), list(indices))
        return buckets, [limits[-1]] * len(buckets)

    for module in (distributed, distributed.distributed_c10d, distributed_utils, data_parallel):
        for name, function in (
            ("_broadcast_coalesced", broadcast_coalesced),
            ("_verify_params_across_processes", verify),
            ("_verify_param_shape_across_processes", verify),
        ):
            if hasattr(module, name):
                setattr(module, name, function)
    distributed.Reducer = Reducer
    distributed.Logger = _Logger
    distributed._compute_bucket_assignment_by_size = compute_assignment
    distributed._register_comm_hook = lambda reducer, state, hook: reducer.register_comm_hook(state, hook)
    distributed._register_builtin_comm_hook = register_builtin


def _assign(
    tensors: list[torch.Tensor], limits: list[int], expect_sparse: list[bool], indices: list[int]
) -> list[list[int]]:
    """Return the buckets as lists of indices: a bucket holds one data type and is closed once it reaches its limit.

    Without given `indices`, buckets are sorted by their first tensor, as compute_bucket_assignment_by_size does.
    """
    if any(expect_sparse):
        raise Refusal("sparse gradients are not recorded", "use dense gradients (sparse=False)")
    names = indices or list(range(len(tensors)))
    open_buckets: dict[torch.dtype, tuple[list[int], int]] = {}
    limit_index: dict[torch.dtype, int] = {}
    closed: list[list[int]] = []
    for tensor, name in zip(tensors, names, strict=True):
        members, size_bytes = open_buckets.pop(tensor.dtype, ([], 0))
        members = [*members, name]
        size_bytes += tensor.numel() * tensor.element_size()
        limit = limits[min(limit_index.get(tensor.dtype, 0), len(limits) - 1)]
        if size_bytes >= limit:
            closed.append(members)
            limit_index[tensor.dtype] = limit_index.get(tensor.dtype, 0) + 1
        else:
            open_buckets[tensor.dtype] = (members, size_bytes)
    closed += [members for members, _ in open_buckets.values()]
    return closed if indices else sorted(closed, key=min)


_OPTIONS = (
    "per_bucket_size_limits process_group expect_sparse_gradients bucket_bytes_cap find_unused_parameters"
    " gradient_as_bucket_view param_to_name_mapping first_bucket_bytes_cap skip_all_reduce_unused_params use_python_reducer"
    " bucket_bytes_cap_list"
).split()


class Bucket:
    """Gradients that a communication hook gets in place of PyTorch's `GradBucket`."""

    def __init__(
        self, index: int, flat: torch.Tensor, parameters: list[torch.Tensor], *, is_last: bool
    ) -> None:
        self._index, self._flat, self._parameters, self._is_last = index, flat, parameters, is_last

    def index(self) -> int:
        """Return the position of the bucket."""
        return self._index

    def buffer(self) -> torch.Tensor:
        """Return all gradients as one tensor."""
        return self._flat

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Replace the gradients."""
        self._flat = buffer

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients in the shapes of their parameters."""
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters of the bucket."""
        return self._parameters

    def is_last(self) -> bool:
        """Return whether it is the last bucket to be reduced."""
        return self._is_last


class Reducer:
    """Reduces the gradients of a module bucket by bucket during the backward pass."""

    def __init__(self, params: list[torch.Tensor], bucket_indices: list[list[int]], *options: Any) -> None:
        """`options` are PyTorch's positional arguments, in the order of `_OPTIONS`; it may have more."""
        stated = dict(zip(_OPTIONS, options, strict=False))
        if stated.get("skip_all_reduce_unused_params"):
            raise Refusal("skip_all_reduce_unused_params is not recorded", "leave it at False")
        self._params, self._buckets, self.group = list(params), bucket_indices, stated["process_group"]
        self._hook: tuple[Any, Any] | None = None
        self._limits = list(stated.get("bucket_bytes_cap_list") or ()) or [
            stated["first_bucket_bytes_cap"],
            stated["bucket_bytes_cap"],
        ]
        self._find_unused, self._as_view = stated["find_unused_parameters"], stated["gradient_as_bucket_view"]
        self._static = self._is_first_static = False
        self._seen: set[int] = set()
        """Parameters that got gradients in the first pass of a static graph."""
        self._ready_order: list[int] = []
        self._is_rebuilt = False
        self._is_expecting = False
        self._must_mark_unused = False
        self._unused: list[int] = []
        self._ready: set[int] = set()
        self._next_bucket = 0
        self._pending: list[tuple[Any, list[int], torch.Tensor]] = []
        self._used_map: tuple[Any, torch.Tensor] | None = None
        for index, parameter in enumerate(self._params):
            parameter.register_post_accumulate_grad_hook(self._hook_of(index))

    def __getattr__(self, name: str) -> Any:
        raise Refusal(
            f"DistributedDataParallel uses {name} of its reducer, which is not recorded",
            "leave out join(), mixed_precision and changes of the process group",
        )

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Let a hook reduce the buckets: `hook(state, bucket)` returns the future of the reduced gradients."""
        self._hook = state, hook

    def set_logger(self, logger: Any) -> None:
        """Accept the logger."""

    def _set_static_graph(self) -> None:
        self._static = self._is_first_static = True

    def _delay_all_reduce(self) -> None:
        """Reduce the map of used parameters and all buckets at the end of the first pass of a static graph."""
        self._is_expecting = False
        self._unused = [index for index in range(len(self._params)) if index not in self._seen]
        self._is_first_static = False
        with torch.no_grad():
            self._reduce_used_map()
            for bucket in self._buckets:
                self._reduce(bucket)
        self._finish()

    def _push_all_rebuilt_params(self) -> None:
        self._ready_order = list(range(len(self._params)))

    def _remove_autograd_hooks(self) -> None:
        self._is_expecting = False

    def _check_reducer_finalized(self) -> None:
        pass

    def prepare_for_forward(self) -> None:
        """Begin an iteration. Refuse it if the last one left gradients unreduced, as PyTorch does."""
        if self._is_expecting and self._ready:
            raise Refusal(
                "parameters of DistributedDataParallel got no gradient in the last iteration",
                "set find_unused_parameters=True, as PyTorch demands",
            )

    def prepare_for_backward(self, outputs: list[torch.Tensor]) -> None:
        """Expect gradients; with `find_unused_parameters`, of the parameters that the outputs depend on."""
        self._is_expecting = True
        self._ready, self._next_bucket, self._pending, self._used_map = set(), 0, [], None
        self._must_mark_unused = True
        if not self._static:
            self._unused = self._find_unused_parameters(outputs) if outputs and self._find_unused else []

    def _find_unused_parameters(self, outputs: list[torch.Tensor]) -> list[int]:
        reached: set[int] = set()
        nodes = [output.grad_fn for output in outputs if output.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            variable = getattr(node, "variable", None)
            if variable is not None:
                reached.add(id(variable))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    nodes.append(following)
        return [index for index, parameter in enumerate(self._params) if id(parameter) not in reached]

    def _hook_of(self, index: int) -> Any:
        def ready(parameter: torch.Tensor) -> None:
            if not self._is_expecting:
                return
            if self._is_first_static:
                self._seen.add(index)
                return
            if self._must_mark_unused:
                self._must_mark_unused = False
                for unused in self._unused:
                    self._mark(unused)
            self._mark(index)

        return ready

    def _mark(self, index: int) -> None:
        if index in self._ready:
            return
        self._ready.add(index)
        if self._rebuilds and not self._is_rebuilt and not (self._static and index in self._unused):
            self._ready_order.append(index)
        while self._next_bucket < len(self._buckets) and self._ready.issuperset(
            self._buckets[self._next_bucket]
        ):
            with torch.no_grad():
                self._reduce(self._buckets[self._next_bucket])
            self._next_bucket += 1
        if self._next_bucket == len(self._buckets) and self._is_expecting:
            self._is_expecting = False
            if self._find_unused and not self._static:
                self._reduce_used_map()
            Variable._execution_engine.queue_callback(self._finish)

    def _reduce_used_map(self) -> None:
        used = torch.zeros(len(self._params), dtype=torch.int32, device=self._params[0].device)
        self._used_map = distributed.all_reduce(used, group=self.group, async_op=True), used

    @property
    def _rebuilds(self) -> bool:
        return self._static or not self._find_unused

    def _reduce(self, bucket: list[int]) -> None:
        flat = torch.empty(
            sum(self._params[index].numel() for index in bucket),
            dtype=self._params[bucket[0]].dtype,
            device=self._params[bucket[0]].device,
        )
        views = flat.split([self._params[index].numel() for index in bucket])
        for index, view in zip(bucket, views, strict=True):
            gradient = self._params[index].grad
            if gradient is None:
                view.zero_()
            elif self._hook is not None:
                view.copy_(gradient.reshape(-1))
            else:
                torch.mul(gradient.reshape(-1), 1 / self.group.size(), out=view)
        if self._hook is None:
            self._pending.append(
                (distributed.all_reduce(flat, group=self.group, async_op=True), bucket, flat)
            )
            return
        state, hook = self._hook
        index = self._buckets.index(bucket)
        parameters = [self._params[index] for index in bucket]
        future = hook(state, Bucket(index, flat, parameters, is_last=index == len(self._buckets) - 1))
        self._pending.append((future, bucket, flat))

    def _finish(self) -> None:
        with torch.no_grad():
            self._copy_back()

    def _copy_back(self) -> None:
        for work, bucket, flat in self._pending:
            reduced = work.wait()
            if self._hook is not None:
                flat = (reduced[0] if isinstance(reduced, (list, tuple)) else reduced).reshape(-1)  # noqa: PLW2901
            views = flat.split([self._params[index].numel() for index in bucket])
            for index, view in zip(bucket, views, strict=True):
                gradient = self._params[index].grad
                if gradient is None:
                    continue
                if self._as_view:
                    self._params[index].grad = view.view(gradient.shape)
                else:
                    gradient.copy_(view.view(gradient.shape))
        if self._used_map is not None:
            self._used_map[0].wait()
        self._pending, self._ready = [], set()

    def _rebuild_buckets(self) -> bool:
        if not self._rebuilds or self._is_rebuilt or not self._ready_order:
            return False
        self._is_rebuilt = True
        if self._static:
            self._ready_order += self._unused
        ordered = [self._params[index] for index in self._ready_order]
        self._buckets = _assign(ordered, self._limits, [], self._ready_order)
        device = self._params[0].device
        for count in (len(self._params) + 1, len(self._buckets)):
            indices = torch.zeros(count, dtype=torch.int32, device=device)
            distributed.broadcast(indices, group=self.group, group_src=0)
        return True


class _Logger:
    """Accepts what DistributedDataParallel logs."""

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
