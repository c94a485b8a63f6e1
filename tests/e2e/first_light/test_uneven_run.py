"""The DLRM step of eight GPUs over real sockets: the only real set whose all-to-all is uneven arrives pair by pair."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from etloop.traffic.collectives.algorithms.alltoall import UNEVEN
from tests.support.first_light import commands
from tests.support.traces.shared_traces import SHARED_TRACES, known_sets

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not known_sets(), reason="the real trace sets are not beside the repository"),
    pytest.mark.timeout(2 * commands.PATIENCE_S),
]

DLRM: Final = SHARED_TRACES / "param-dlrm-8gpu"
ITERATIONS: Final = 2
UNEVEN_AT: Final = 3
"""Which of the eight operations it is."""


def agent_of(rank: int) -> int:
    return rank // 4


def test_every_pair_gets_what_it_was_sent_in_the_recording(tmp_path: Path) -> None:
    ranks = json.loads((DLRM / "dlrm8_network_projection.json").read_text())["ranks"]
    splits = [ranks[str(rank)][UNEVEN_AT]["in_splits"] for rank in range(8)]
    place = commands.free_place(tmp_path)
    place.rig()
    with commands.agents(place):
        ended = commands.run_to_end(
            place,
            f"workload: {{trace: {DLRM / 'dlrm_pytorch_et.tar.gz'}, dependencies: data+communicator}}\n"
            "collectives: {all_reduce: {algorithm: ring, protocol: simple, channels: 1}}\n"
            f"iterations: {ITERATIONS}\nlimits: {{gather_timeout: 30s}}\n",
        )
    assert ended.exit_code == 0, ended.err
    left = commands.left_by(place)
    assert {check["result"] for check in left.summary["checks"]} == {"pass"}
    hot = [row for row in left.rows("ops") if row["algorithm"] == UNEVEN]
    assert len(hot) == 8 * ITERATIONS
    for row in hot:
        rank = row["rank"]
        others = [peer for peer in range(8) if agent_of(peer) != agent_of(rank)]
        assert row["message_bytes"] == sum(splits[rank])
        assert row["wire_tx_bytes"] == sum(splits[rank][peer] for peer in others)
        assert row["wire_rx_bytes"] == sum(splits[peer][rank] for peer in others)
    kinds = {kind["algorithm"]: kind for kind in left.summary["kinds"]}
    assert kinds[UNEVEN]["count"] == ITERATIONS
    assert kinds[UNEVEN]["size_bytes"] == ITERATIONS * max(map(sum, splits))
    carried: Counter[tuple[int, int, int]] = Counter()
    planned: dict[tuple[int, int, int], int] = {}
    for row in left.rows("flows"):
        if row["role"] == "sender":
            connection = row["src_rank"], row["dst_rank"], row["channel"]
            carried[connection] += row["tx_payload_bytes"]
            planned[connection] = row["planned_connection_bytes"]
    assert carried == planned
    by_pair: Counter[tuple[int, int]] = Counter()
    for (src, dst, _), payload in carried.items():
        by_pair[src, dst] += payload
    # Neighbours of a ring carry the all-reduces as well; all other pairs carry all-to-alls alone.
    for (src, dst), payload in by_pair.items():
        if (dst - src) % 8 != 1:
            ops = [op for op in ranks[str(src)] if op["op"] != "allreduce"]
            each = [(op["in_splits"] or [op["in_bytes"] // 8] * 8)[dst] for op in ops]
            assert payload == ITERATIONS * sum(each)
