"""Links of a stage that carry all flows in the same proportion are one link with the sum of their rates. Pure.

Where each of n links takes an equal part of whatever crosses them, what is possible over them is what is possible over one with
the sum of their rates: the constraints are the same one, n times. A Clos network has two such stages for a flow, however many
spines.
"""

from __future__ import annotations

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.flow_walk import Parts
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Sets of links that are one each, and parts of flows over them in place of their links."""

    members: tuple[NDArray[np.int64], ...]
    """Links of bundle i, which has the number `links` + i."""
    flow: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float64]

    def names(self, of_links: tuple[str, ...]) -> list[str]:
        """Return the bundles' names."""
        return [f"{of_links[members[0]]} and {len(members) - 1} more" for members in self.members]

    def rates(self, link_bps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bundles' rates."""
        return np.array([link_bps[members].sum() for members in self.members], np.int64)


def bundle(parts: Parts, link_bps: NDArray[np.int64], kept: NDArray[np.int64]) -> Bundles:
    """Return parts with links put together that every flow takes in proportion to their rates, at the same depth.

    `kept`: links that other flows take, too, which stay as they are.
    """
    order = np.lexsort((parts.flow, parts.link))
    flow, link, share, depth = (
        column[order] for column in (parts.flow, parts.link, parts.share, parts.depth)
    )
    density = (share / link_bps[link] * link_bps.max()).astype(np.float32)
    used, starts = np.unique(link, return_index=True)
    alone = np.isin(used, kept)
    groups: dict[tuple[bytes, bytes, bytes] | int, list[int]] = {}
    ends = np.append(starts, len(link))[1:].tolist()
    for number, first, last, by_itself in zip(
        used.tolist(), starts.tolist(), ends, alone.tolist(), strict=True
    ):
        span = slice(first, last)
        alike = (flow[span].tobytes(), depth[span].tobytes(), density[span].tobytes())
        groups.setdefault(number if by_itself else alike, []).append(number)
    bundles = tuple(np.array(links, np.int64) for links in groups.values() if len(links) > 1)
    number_of = np.arange(len(link_bps), dtype=np.int64)
    for row, links in enumerate(bundles):
        number_of[links] = len(link_bps) + row
    link = number_of[link]
    width = len(link_bps) + len(bundles)
    unique, inverse = np.unique(flow * width + link, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), weights=share, minlength=len(unique))
    return Bundles(bundles, unique // width, unique % width, np.minimum(summed, 1))
