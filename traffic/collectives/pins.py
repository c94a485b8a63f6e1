"""What a user fixes of how collectives are carried out, for all or for the communicators of some kind. Pure.

A trace names communicators and lists their ranks; it seldom says which dimension of the job one is of. Name, size and distance
of the ranks do: tensor-parallel groups have consecutive ranks, data-parallel ones are as far apart as a replica is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.table import Protocol


@dataclass(frozen=True, slots=True)
class Pin:
    """What the user fixes; what is empty, None or 0 is left to the choice."""

    algorithm: str = ""
    protocol: Protocol | None = None
    channels: int = 0


@dataclass(frozen=True, slots=True)
class GroupPins:
    """What is pinned for communicators of some kind. What is empty or 0 does not matter."""

    where: str
    """File, line and key, for messages."""
    word: str
    """Key alone, for the reasons of choices."""
    name: str = ""
    """A pattern, as of file names."""
    role: str = ""
    """tp, dp, fsdp, ep or all."""
    size: int = 0
    stride: int = 0
    """From each rank to the next."""
    pin: Pin = Pin()
    """For every collective that can follow it."""
    pins: tuple[tuple[str, Pin], ...] = ()
    """(collective, pin): binding."""

    def described(self) -> str:
        """Return which communicators are meant, in words."""
        said = (
            f'is named "{self.name[:64]}"' if self.name else "",
            f"looks like {self.role}" if self.role else "",
            f"has {self.size} ranks" if self.size else "",
            f"has ranks {self.stride} from each other" if self.stride else "",
        )
        return " and ".join(filter(None, said))

    def is_for(self, name: str, role: str, members: Sequence[int]) -> bool:
        """Whether a communicator is of this kind."""
        return (
            (not self.name or fnmatchcase(name, self.name))
            and self.role in ("", role)
            and self.size in (0, len(members))
            and (
                not self.stride or {later - earlier for earlier, later in pairwise(members)} == {self.stride}
            )
        )
