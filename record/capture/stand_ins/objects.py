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


_NAMES: Final = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)


def install(record: Record, channel: Channel, rank: int) -> None:
    """Replace the object collectives of torch.distributed."""
    own = _Objects(record, channel, rank)
    for module in (distributed, distributed_c10d):
        for name in _NAMES:
            setattr(module, name, getattr(own, name))


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
            object_list[:] = self._from_source("broadcast_object_list", key, source, object_list)
            sizes = [len(pickle.dumps(value)) for value in object_list]
        self._issue("broadcast", group, _SIZE_BYTES * len(sizes), members.index(source))
        self._issue("broadcast", group, sum(sizes), members.index(source))

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
        **options: Any,
    ) -> None:
        """Take this rank's object from the source; record the broadcast of the longest size and the two scatters."""
        with _disable_current_modes():
            group, members, key = self._key(group, "scatter")
            source = members[group_src] if group_src is not None else (src or 0)
            values = self._from_source("scatter_object_list", key, source, scatter_object_input_list)
            longest = max(len(pickle.dumps(value)) for value in values)
            scatter_object_output_list[0] = values[members.index(self._rank)]
        root = members.index(source)
        self._issue("broadcast", group, _SIZE_BYTES, root)
        self._issue("scatter", group, longest * len(members), root)
        self._issue("scatter", group, _SIZE_BYTES * len(members), root)

    def send_object_list(
        self,
        object_list: list[Any],
        dst: int | None = None,
        group: Any = None,
        device: Any = None,
        group_dst: int | None = None,
        **options: Any,
    ) -> None:
        """Hand objects to another rank; record the messages of sizes and objects."""
        with _disable_current_modes():
            group = group or distributed_c10d._get_default_group()
            members = distributed.get_process_group_ranks(group)
            peer = group_dst if group_dst is not None else members.index(dst if dst is not None else 0)
            sizes = [len(pickle.dumps(value)) for value in object_list]
            self._channel.put(self._message_key(group, self._rank, members[peer]), list(object_list))
        self._issue("send", group, _SIZE_BYTES * len(sizes), peer=peer)
        self._issue("send", group, sum(sizes), peer=peer)

    def recv_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
        **options: Any,
    ) -> int:
        """Fill `object_list` with the objects that another rank sends, and return that rank."""
        if src is None and group_src is None:
            raise Refusal(
                "a receive from any source has no peer to record",
                "name the source in recv_object_list(src=...)",
            )
        with _disable_current_modes():
            group = group or distributed_c10d._get_default_group()
            members = distributed.get_process_group_ranks(group)
            peer = group_src if group_src is not None else members.index(src)
            key = self._message_key(group, members[peer], self._rank)
            object_list[:] = self._from_source("recv_object_list", key, members[peer], None)
            sizes = [len(pickle.dumps(value)) for value in object_list]
        self._issue("recv", group, _SIZE_BYTES * len(sizes), peer=peer)
        self._issue("recv", group, sum(sizes), peer=peer)
        return int(members[peer])

    def _message_key(self, group: Any, source: int, destination: int) -> str:
        name = f"message-{group.group_name.replace('/', '_')[-80:]}-{source}to{destination}"
        self._counts[name] = self._counts.get(name, -1) + 1
        return f"{name}-{self._counts[name]}"

    def _from_source(self, function: str, key: str, source: int, own: list[Any] | None) -> list[Any]:
        """Return the objects that a source hands over, after handing over this rank's own if it is the source."""
        if source == self._rank:
            self._channel.put(key, list(own or ()))
        elif source not in self._channel.recorded:
            raise Refusal(
                f"{function} takes objects of rank {source}, which is not recorded",
                "record every rank: --record all",
            )
        objects: list[Any] = self._channel.get(key, f"rank {source}")
        return objects

    def _key(self, group: Any, kind: str) -> tuple[Any, list[int], str]:
        """Return the group, its members, and the key of its next collective of a kind."""
        group = group or distributed_c10d._get_default_group()
        members = distributed.get_process_group_ranks(group)
        name = f"{kind}-{group.group_name.replace('/', '_')[-80:]}-{'.'.join(map(str, members))[:80]}"
        self._counts[name] = self._counts.get(name, -1) + 1
        return group, members, f"{name}-{self._counts[name]}"

    def _issue(
        self, kind: str, group: Any, size_bytes: int, root: int | None = None, peer: int | None = None
    ) -> None:
        """Record one operation of bytes, and the wait for it, which is the host's."""
        record = self._record
        if record.is_suspended:
            return
        first = record.operation_count
        call = Call(kind, group, size_bytes, "uint8", size_bytes, (), (), root=root, peer=peer)
        record.call(call, f"object {kind}")
        record.wait([first])
        if record.streams is not None:
            record.host_waits(record.stream())

    def _values(self, members: list[int], key: str, own: Any) -> list[Any]:
        """Return the objects of all members, or this rank's own for each if some are not recorded."""
        self._channel.put(f"{key}-from{self._rank}", own)
        if set(members) <= self._channel.recorded:
            return [self._channel.get(f"{key}-from{member}", f"rank {member}") for member in members]
        self._record.note(
            "object collectives with ranks that are not recorded return this rank's own object for each member"
        )
        return [own] * len(members)
