"""Pins: choices of algorithm, protocol and channels that the user fixes, for all or for some communicators. Pure.

A trace names communicators and lists their ranks, but seldom says which parallel dimension of the job one belongs to.
Name, size and stride of the ranks show it: tensor-parallel groups have consecutive ranks, data-parallel ones have a
stride of one replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.value_parsers import integer, one_of, words
from etloop.traffic.collectives.core.table import Protocol

_BINDING: Final = "binding under the key of one collective"
MOST_CHANNELS_WRITTEN: Final = 1 << 16
"""Largest number that is parsed as a number of channels."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Values fixed by the user; empty, None and 0 leave the value to the choice."""

    algorithm: str = setting(
        "algorithm", words, "", f"Algorithm of every collective that can follow it; {_BINDING}."
    )
    protocol: Protocol | None = setting(
        "protocol",
        one_of({protocol.name.lower(): protocol for protocol in Protocol}),
        None,
        f"Protocol of every collective that can follow it; {_BINDING}.",
    )
    channels: int = setting(
        "channels",
        integer(1, MOST_CHANNELS_WRITTEN),
        0,
        f"Channels of every collective that can have so many; {_BINDING}.",
    )


@dataclass(frozen=True, slots=True)
class GroupPins:
    """Pins for communicators that match. Criteria that are empty or 0 match every communicator."""

    where: str
    """File, line and key, for error messages."""
    word: str
    """Key alone, for the reasons of choices."""
    name: str = ""
    """Pattern of the communicator's name, with wildcards as for file names."""
    role: str = ""
    """Role of the communicator: tp, dp, fsdp, ep or all; "": any."""
    size: int = 0
    stride: int = 0
    """Distance between consecutive ranks."""
    pin: Pin = Pin()
    """Pin for every collective that can follow it."""
    pins: tuple[tuple[str, Pin], ...] = ()
    """(collective, pin): binding for that collective."""

    def describe(self) -> str:
        """Return a description of the matching communicators, for messages."""
        criteria = (
            f'is named "{self.name[:64]}"' if self.name else "",
            f"looks like {self.role}" if self.role else "",
            f"has {self.size} ranks" if self.size else "",
            f"has ranks {self.stride} from each other" if self.stride else "",
        )
        return " and ".join(filter(None, criteria))

    def is_for(self, name: str, role: str, members: Sequence[int]) -> bool:
        """Return whether a communicator matches."""
        return (
            (not self.name or fnmatchcase(name, self.name))
            and self.role in ("", role)
            and self.size in (0, len(members))
            and (
                not self.stride or {later - earlier for earlier, later in pairwise(members)} == {self.stride}
            )
        )
