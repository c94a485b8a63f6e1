"""The prefix blocks that an instance keeps, the least recently used of which leave first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Blocks by id. A hit counts only if all blocks before it hit, too, as in caches with chained hashes."""

    def __init__(self, most_blocks: int) -> None:
        self._most_blocks = most_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._blocks)

    def hits(self, blocks: Sequence[int]) -> int:
        """Return how many leading blocks are here; changes nothing."""
        for number, block in enumerate(blocks):
            if block not in self._blocks:
                return number
        return len(blocks)

    def put(self, blocks: Sequence[int]) -> None:
        """Keep blocks as the most recently used, then drop the least recently used ones over the limit."""
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._most_blocks:
            self._blocks.popitem(last=False)
