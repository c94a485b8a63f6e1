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
    counts: dict[str, int] = {}

    def key_of(group: Any, kind: str) -> tuple[Any, list[int], str]:
        group = group or distributed_c10d._get_default_group()
        members = distributed.get_process_group_ranks(group)
        name = f"{kind}-{group.group_name.replace('/', '_')[-80:]}-{'.'.join(map(str, members))[:80]}"
        counts[name] = counts.get(name, -1) + 1
        return group, members, f"{name}-{counts[name]}"

    def issue(kind: str, group: Any, size_bytes: int, root: int | None = None) -> None:
        if record.is_suspended:
            return
        first = record.operation_count
        record.call(Call(kind, group, size_bytes, "uint8", size_bytes, (), (), root=root), f"object {kind}")
        record.wait([first])

    def values_of(members: list[int], key: str, own: Any) -> list[Any]:
        channel.put(f"{key}-from{rank}", own)
        if set(members) <= channel.recorded:
            return [channel.get(f"{key}-from{member}", f"rank {member}") for member in members]
        record.note(
            "object collectives with ranks that are not recorded return this rank's own object for each member"
        )
        return [own] * len(members)

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        with _disable_current_modes():
            group, members, key = key_of(group, "all_gather")
            object_list[:] = values_of(members, key, obj)
            longest = max(len(pickle.dumps(value)) for value in object_list)
        issue("all_gather", group, _SIZE_BYTES)
        issue("all_gather", group, longest)

    def gather_object(
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        with _disable_current_modes():
            group, members, key = key_of(group, "gather")
            values = values_of(members, key, obj)
            longest = max(len(pickle.dumps(value)) for value in values)
        if object_gather_list is not None:
            object_gather_list[:] = values
        root = group_dst if group_dst is not None else members.index(dst or 0)
        issue("all_gather", group, _SIZE_BYTES)
        issue("gather", group, longest, root)

    def broadcast_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
    ) -> None:
        with _disable_current_modes():
            group, members, key = key_of(group, "broadcast")
            source = members[group_src] if group_src is not None else (src or 0)
            if source == rank:
                channel.put(key, list(object_list))
            elif source not in channel.recorded:
                raise Refusal(
                    f"broadcast_object_list takes objects of rank {source}, which is not recorded",
                    "record every rank: --record all",
                )
            object_list[:] = channel.get(key, f"rank {source}")
            sizes = [len(pickle.dumps(value)) for value in object_list]
        issue("broadcast", group, _SIZE_BYTES * len(sizes), members.index(source))
        issue("broadcast", group, sum(sizes), members.index(source))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(
            "scatter_object_list, send_object_list and recv_object_list are not recorded",
            "use broadcast_object_list or all_gather_object, or replace the call in --hook FILE",
        )

    own = {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": refuse,
        "send_object_list": refuse,
        "recv_object_list": refuse,
    }
    for module in (distributed, distributed_c10d):
        for name, function in own.items():
            setattr(module, name, function)
