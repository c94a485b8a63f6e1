"""Defines the facts about a job that its files do not state, as users give them."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.value_parsers import integer

MAX_SERVERS: Final = 4096


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Number of ranks and of storage endpoints, and the remote tiers of a cache."""

    ranks: int | None = setting("ranks", integer(1, 16_384), None)
    """Ranks of a job whose file does not state their number (DLIO)."""
    servers: int = setting("servers", integer(1, MAX_SERVERS), 1)
    """Storage endpoints of such a job; they are the ranks after those of the job."""
    remote_tiers: tuple[int, ...] = list_setting("remote_tiers", integer(0, 9), stand_in=0)
    """Tiers of a KV cache log that are reached over the network; by default 1 and 2."""
