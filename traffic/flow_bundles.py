"""Merge links that carry all flows in the same proportion into one link with the sum of their rates. Pure.

If each of n links takes an equal part of all flows that cross them, their n constraints are the same one, so a single
link with the sum of their rates allows the same rates. A flow through a Clos network crosses two such stages, however
many spines there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.flow_walk import Parts


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Sets of links merged into one, and the parts of flows over the merged links."""

    members: tuple[NDArray[np.int64], ...]
    """Links of bundle i, which is link number (number of original links) + i."""
    flow: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float64]

    def names(self, of_links: tuple[str, ...]) -> list[str]:
        """Return the names of the bundles."""
        return [f"{of_links[members[0]]} and {len(members) - 1} more" for members in self.members]

    def rates(self, link_bps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rates of the bundles in bits per second."""
        return np.array([link_bps[members].sum() for members in self.members], np.int64)


def bundle(parts: Parts, link_bps: NDArray[np.int64], kept: NDArray[np.int64]) -> Bundles:
    """Merge links at the same depth that every flow uses in proportion to their rates.

    `kept`: links that other flows use too; they are not merged.
    """
    order = np.lexsort((parts.flow, parts.link))
    flow, link, share, depth = (
        column[order] for column in (parts.flow, parts.link, parts.share, parts.depth)
    )
    density = (share / link_bps[link] * link_bps.max()).astype(np.float32)
    used, starts = np.unique(link, return_index=True)
    is_kept = np.isin(used, kept)
    groups: dict[tuple[bytes, bytes, bytes] | int, list[int]] = {}
    ends = np.append(starts, len(link))[1:].tolist()
    for number, first, last, separate in zip(
        used.tolist(), starts.tolist(), ends, is_kept.tolist(), strict=True
    ):
        span = slice(first, last)
        signature = (flow[span].tobytes(), depth[span].tobytes(), density[span].tobytes())
        groups.setdefault(number if separate else signature, []).append(number)
    bundles = tuple(np.array(links, np.int64) for links in groups.values() if len(links) > 1)
    number_of = np.arange(len(link_bps), dtype=np.int64)
    for row, links in enumerate(bundles):
        number_of[links] = len(link_bps) + row
    link = number_of[link]
    width = len(link_bps) + len(bundles)
    unique, inverse = np.unique(flow * width + link, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), weights=share, minlength=len(unique))
    return Bundles(bundles, unique // width, unique % width, np.minimum(summed, 1))
