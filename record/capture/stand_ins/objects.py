"""Collectives of Python objects: their messages have the sizes of the pickled objects, their values come from the
recordings of the other ranks, or, where those are not recorded, are this rank's own.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

from torch import distributed
from torch.distributed import distributed_c10d
from torch.utils._python_dispatch import _disable_current_modes

from ..channel import Channel
from ..collectives import Call
from ..events import Refusal
from ..recorder import Record

_SIZE_BYTES: Final = 8


def install(record: Record, channel: Channel, rank: int) -> None:
    """Replace the object collectives of torch.distributed."""
    own = _Objects(record, channel, rank)
    for module in (distributed, distributed_c10d):
        for name in ("all_gather_object", "gather_object", "broadcast_object_list"):
            setattr(module, name, getattr(own, name))
        for name in ("scatter_object_list", "send_object_list", "recv_object_list"):
            setattr(module, name, _refuse)


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise Refusal(
        "scatter_object_list, send_object_list and recv_object_list are not recorded",
        "use broadcast_object_list or all_gather_object, or replace the call in --hook FILE",
    )


class _Objects:
    """The object collectives of one rank."""

    def __init__(self, record: Record, channel: Channel, rank: int) -> None:
        self._record, self._channel, self._rank = record, channel, rank
        self._counts: dict[str, int] = {}

    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        """Fill `object_list` with the objects of all members; record the gathers of sizes and of padded objects."""
        with _disable_current_modes():
            group, members, key = self._key(group, "all_gather")
            object_list[:] = self._values(members, key, obj)
            longest = max(len(pickle.dumps(value)) for value in object_list)
        self._issue("all_gather", group, _SIZE_BYTES)
        self._issue("all_gather", group, longest)

    def gather_object(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        """Fill the root's `object_gather_list`; record the all-gather of sizes and the gather of padded objects."""
        with _disable_current_modes():
            group, members, key = self._key(group, "gather")
            values = self._values(members, key, obj)
            longest = max(len(pickle.dumps(value)) for value in values)
        if object_gather_list is not None:
            object_gather_list[:] = values
        root = group_dst if group_dst is not None else members.index(dst or 0)
        self._issue("all_gather", group, _SIZE_BYTES)
        self._issue("gather", group, longest, root)

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Fill `object_list` with the source's objects; record the broadcasts of sizes and objects."""
        with _disable_current_modes():
            group, members, key = self._key(group, "broadcast")
            source = members[group_src] if group_src is not None else (src or 0)
            if source == self._rank:
                self._channel.put(key, list(object_list))
            elif source not in self._channel.recorded:
                raise Refusal(
                    f"broadcast_object_list takes objects of rank {source}, which is not recorded",
                    "record every rank: --record all",
                )
            object_list[:] = self._channel.get(key, f"rank {source}")
            sizes = [len(pickle.dumps(value)) for value in object_list]
        self._issue("broadcast", group, _SIZE_BYTES * len(sizes), members.index(source))
        self._issue("broadcast", group, sum(sizes), members.index(source))

    def _key(self, group: Any, kind: str) -> tuple[Any, list[int], str]:
        """Return the group, its members, and the key of its next collective of a kind."""
        group = group or distributed_c10d._get_default_group()
        members = distributed.get_process_group_ranks(group)
        name = f"{kind}-{group.group_name.replace('/', '_')[-80:]}-{'.'.join(map(str, members))[:80]}"
        self._counts[name] = self._counts.get(name, -1) + 1
        return group, members, f"{name}-{self._counts[name]}"

    def _issue(self, kind: str, group: Any, size_bytes: int, root: int | None = None) -> None:
        """Record one collective of bytes, and the wait for it."""
        record = self._record
        if record.is_suspended:
            return
        first = record.operation_count
        record.call(Call(kind, group, size_bytes, "uint8", size_bytes, (), (), root=root), f"object {kind}")
        record.wait([first])

    def _values(self, members: list[int], key: str, own: Any) -> list[Any]:
        """Return the objects of all members, or this rank's own for each if some are not recorded."""
        self._channel.put(f"{key}-from{self._rank}", own)
        if set(members) <= self._channel.recorded:
            return [self._channel.get(f"{key}-from{member}", f"rank {member}") for member in members]
        self._record.note(
            "object collectives with ranks that are not recorded return this rank's own object for each member"
        )
        return [own] * len(members)
