"""Replace the process groups of a script by fake ones of the same ranks, and bind waits to operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import distributed
from torch._C import _distributed_c10d as c10d
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import device_mesh, distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from .events import Refusal
from .recorder import Record

_COLLECTIVE_METHODS = (
    "allreduce allreduce_coalesced allgather _allgather_base all_gather_single all_gather_single_coalesced allgather_coalesced"
    " allgather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_single reduce_scatter_single_coalesced"
    " reduce_scatter_tensor_coalesced alltoall alltoall_base all_to_all_single broadcast reduce gather scatter barrier"
    " monitored_barrier send recv recv_anysource"
).split()


def replace_process_groups(record: Record, rank: int, world_size: int) -> None:
    """Make every way to create a process group create a fake one, and record it."""
    own = _Groups(record, rank, world_size)
    replacements = {
        "init_process_group": own.init_process_group,
        "new_group": own.new_group,
        "split_group": own.split_group,
    }
    for module in (distributed, distributed_c10d, device_mesh):
        for name, replacement in replacements.items():
            if hasattr(module, name):
                setattr(module, name, replacement)
    distributed.get_backend = own.get_backend
    _replace_mesh()
    _bind_works(record)


class _Groups:
    """The process groups of one rank, which are fake, under the names that the script gave them."""

    def __init__(self, record: Record, rank: int, world_size: int) -> None:
        self._record, self._rank, self._world_size = record, rank, world_size
        self._default = "nccl" if record.streams is not None else "gloo"
        self._backends: dict[str, str] = {}
        self._init, self._new = distributed_c10d.init_process_group, distributed_c10d.new_group

    def init_process_group(self, backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Make the default group."""
        for name, stated, own in (
            ("rank", kwargs.get("rank", -1), self._rank),
            ("world_size", kwargs.get("world_size", -1), self._world_size),
        ):
            if stated not in (-1, None, own):
                raise Refusal(
                    f"init_process_group gets {name} {stated}, but {own} is recorded",
                    "take rank and world size from RANK and WORLD_SIZE, and state the number of ranks with --ranks",
                )
        if isinstance(backend, str):
            self._default = backend
        with unset_fake_temporarily():
            self._init("fake", rank=self._rank, world_size=self._world_size, store=FakeStore())
        world = distributed_c10d._get_default_group()
        self._record.group(
            world.group_name, list(range(self._world_size)), "world", self._record.places.current()
        )

    def new_group(
        self,
        ranks: Any = None,
        timeout: Any = None,
        backend: str | None = None,
        pg_options: Any = None,
        use_local_synchronization: bool = False,
        group_desc: str | None = None,
        device_id: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Make a group of ranks. Options of the backend have no effect."""
        members = sorted(ranks) if ranks is not None else list(range(self._world_size))
        before = set(distributed_c10d._world.pg_names.values())
        with unset_fake_temporarily():
            group = self._new(ranks, timeout, None, None, use_local_synchronization, group_desc, **kwargs)
        made = [name for name in distributed_c10d._world.pg_names.values() if name not in before]
        name = made[0] if made else ""
        if made:
            self._backends[name] = backend or self._default
        self._record.group(name, members, group_desc or "", self._record.places.current())
        return group

    def split_group(
        self,
        parent_pg: Any = None,
        split_ranks: Any = None,
        timeout: Any = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        backend: str | None = None,
    ) -> Any:
        """Make a group of each part, whose members are positions in the parent.

        Only members of the parent call this. The groups that were made with the parent are split the same way by theirs.
        """
        record = self._record
        parent = distributed.get_process_group_ranks(parent_pg or distributed_c10d._get_default_group())
        own = distributed.GroupMember.NON_GROUP_MEMBER
        for part in split_ranks or ():
            members = [parent[position] for position in part]
            if members != sorted(members):
                raise Refusal(
                    "split_group gets ranks that do not ascend", "list the ranks of each part in order"
                )
            group = self.new_group(members, timeout, backend, group_desc=group_desc)
            if self._rank in members:
                own = group
        for sibling in record.siblings(parent):
            for part in split_ranks or ():
                members = [sibling[position] for position in part]
                record.group("", members, group_desc or "", record.places.current())
        return own

    def get_backend(self, group: Any = None) -> str:
        """Return the backend that the script asked for: it decides by it."""
        made = group or distributed_c10d._get_default_group()
        return self._backends.get(made.group_name, self._default)


def _replace_mesh() -> None:
    """Execute the methods of DeviceMesh on real tensors: a mesh computes with its few rank numbers."""
    mesh = device_mesh.DeviceMesh
    for name, value in list(vars(mesh).items()):
        if name in ("__class__", "__doc__", "__module__", "__dict__", "__weakref__", "__annotations__"):
            continue
        if isinstance(value, staticmethod):
            setattr(mesh, name, staticmethod(_real(value.__func__)))
        elif isinstance(value, classmethod):
            setattr(mesh, name, classmethod(_real(value.__func__)))
        elif isinstance(value, property):
            getter, setter = (method and _real(method) for method in (value.fget, value.fset))
            setattr(mesh, name, property(getter, setter))
        elif callable(value):
            setattr(mesh, name, _real(value))
    original = device_mesh.init_device_mesh
    device_mesh.init_device_mesh = _real(original)
    distributed.init_device_mesh = device_mesh.init_device_mesh


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def on_real_tensors(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return on_real_tensors


def _bind_works(record: Record) -> None:
    """Bind each `Work` to the operations of the call that returned it, and record waits for it."""
    for name in _COLLECTIVE_METHODS:
        original = getattr(c10d.ProcessGroup, name, None)
        if original is None:
            continue

        def call(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            with record.group_call():
                first = record.operation_count
                work = _original(self, *args, **kwargs)
                record.bind_work(work, first)
            return work

        setattr(c10d.ProcessGroup, name, call)
    for kind in (c10d.Work, c10d.FakeWork):
        original_wait = kind.wait

        def wait(self: Any, *args: Any, _original: Any = original_wait, **kwargs: Any) -> Any:
            record.wait_work(self)
            return _original(self, *args, **kwargs)

        kind.wait = wait
        kind.is_completed = lambda self: True
    start: dict[Any, int] = {}
    original_start, original_end = c10d.ProcessGroup._start_coalescing, c10d.ProcessGroup._end_coalescing

    def start_coalescing(self: Any, *args: Any) -> Any:
        start[self.group_name] = record.operation_count
        return original_start(self, *args)

    def end_coalescing(self: Any, *args: Any) -> Any:
        work = original_end(self, *args)
        record.bind_work(work, start.pop(self.group_name, record.operation_count))
        return work

    c10d.ProcessGroup._start_coalescing = start_coalescing
    c10d.ProcessGroup._end_coalescing = end_coalescing
