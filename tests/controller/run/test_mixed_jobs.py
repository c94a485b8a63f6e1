"""Jobs over unlike transports in one twin: alone where they share no link, and in each other's way where they share one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

import etloop

if TYPE_CHECKING:
    from pathlib import Path

RIG: Final = {
    "agents": [
        {"name": name, "ports": [
            {"name": f"p{port}", "addresses": f"10.0.{2 * at + port}.1-10.0.{2 * at + port}.4", "link": "100Gbps"}
            for port in (0, 1)
        ]}
        for at, name in enumerate("abcd")
    ]
}  # fmt: skip
STAR: Final = {
    "single": {"rate": "100Gbps", "ports": [f"{name}/p{port}" for port in (0, 1) for name in "abcd"]}
}
RING: Final = {
    "name": "ring",
    "workload": {"collective": {"kind": "all_reduce", "ranks": 4, "size": "8MiB"}},
    "mapping": {"ports": [f"{name}/p0" for name in "abcd"]},
}
EXCHANGE: Final = {
    "name": "exchange",
    "workload": {"collective": {"kind": "all_to_all", "ranks": 4, "size": "8MiB"}},
    "mapping": {"ports": [f"{name}/p1" for name in "abcd"]},
}
SHARED: Final = {
    "leaf_spine": {
        "leaves": [{"ports": ["a/p0", "a/p1", "b/p0", "b/p1"]}, {"ports": ["c/p0", "c/p1", "d/p0", "d/p1"]}],
        "spines": 1,
        "rate": "100Gbps",
    }
}
"""One uplink, over which all between the leaves goes."""
ACROSS: Final = {
    "name": "across",
    "workload": {"incast": {"senders": 1, "size": "16MiB", "bursts": 1}},
    "mapping": {"ports": ["c/p0", "a/p0"]},
}
INCAST: Final = {
    "name": "incast",
    "workload": {"incast": {"senders": 3, "size": "16MiB", "bursts": 1}},
    "mapping": {"ports": ["d/p0", "a/p1", "b/p0", "b/p1"]},
}
VERDICT: Final = {"checks": [{"check": "retransmitted_packets == 0"}]}


def ran(directory: Path, *jobs: dict[str, Any], topology: dict[str, Any] = STAR, **top: Any) -> etloop.Run:
    scenario = {"jobs": list(jobs), **top}
    return etloop.run_twin(scenario, RIG, directory, topology=topology)


def by_kind(job: dict[str, Any], kind: str, **own: Any) -> dict[str, Any]:
    return {**job, "transport": {"kind": kind, **own}}


TIE: Final = 1e-4
"""Queue pairs take turns by their numbers, and draw entropy values by them; beside others a job has other numbers."""


def ops(directory: Path, job: str = "") -> list[tuple[int, ...]]:
    """Of every op of a job, by its ranks from 0 on: bytes, and when it was issued and done."""
    rows = pq.read_table(directory / "ops.parquet").to_pylist()
    own = [row for row in rows if not job or row["job"] == job]
    first = min(row["rank"] for row in own)
    names = ("op", "wire_tx_bytes", "wire_rx_bytes", "issued_ns", "completed_ns")
    return sorted((row["rank"] - first, *(row[name] for name in names)) for row in own)


def same(found: list[tuple[int, ...]], alone: list[tuple[int, ...]]) -> None:
    assert [one[:-1] for one in found] == [one[:-1] for one in alone], "bytes, and when they were issued"
    assert [one[-1] for one in found] == pytest.approx([one[-1] for one in alone], rel=TIE)


@pytest.mark.parametrize("kind", ["mrc", "uet"])
def test_jobs_that_share_no_link_are_what_they_are_alone(tmp_path: Path, kind: str) -> None:
    mixed = ran(tmp_path / "mixed", RING, by_kind(EXCHANGE, kind), verdict=VERDICT)
    assert mixed.summary.verdict is not None
    assert mixed.summary.verdict.result == "pass"
    flows = pq.read_table(tmp_path / "mixed" / "flows.parquet", columns=["job", "transport"]).to_pylist()
    spoken = {(flow["job"], flow["transport"]) for flow in flows}
    assert spoken == {("ring", "rocev2"), ("exchange", kind)}
    ran(tmp_path / "ring", RING)
    ran(tmp_path / "exchange", EXCHANGE, transport={"kind": kind})
    same(ops(tmp_path / "mixed", "ring"), ops(tmp_path / "ring"))
    same(ops(tmp_path / "mixed", "exchange"), ops(tmp_path / "exchange"))
    again = ran(tmp_path / "again", RING, by_kind(EXCHANGE, kind), verdict=VERDICT)
    assert again.summary.transport == mixed.summary.transport


def together_ns(run: etloop.Run, name: str) -> int:
    (job,) = [one for one in run.summary.jobs if one.name == name]
    assert job.together is not None
    return job.together.jct_avg_ns


@pytest.mark.parametrize("kind", ["mrc", "uet"])
def test_a_job_is_slowed_by_an_incast_of_another_transport_on_its_uplink(tmp_path: Path, kind: str) -> None:
    alone = ran(tmp_path / "alone", ACROSS, topology=SHARED)
    beside = ran(tmp_path / "beside", ACROSS, by_kind(INCAST, kind), topology=SHARED)
    assert not beside.summary.failure
    assert alone.summary.job.jct_ns is not None
    assert together_ns(beside, "across") > 1.3 * alone.summary.job.jct_ns


def test_one_kind_with_unlike_controls_has_each_job_by_its_own(tmp_path: Path) -> None:
    controls = (
        by_kind(RING, "rocev2", cc={"algorithm": "dctcp"}),
        by_kind(EXCHANGE, "rocev2", cc={"algorithm": "swift"}),
    )
    ran(tmp_path / "both", *controls)
    for name, job, algorithm in (("ring", RING, "dctcp"), ("exchange", EXCHANGE, "swift")):
        ran(tmp_path / name, job, transport={"cc": {"algorithm": algorithm}})
        same(ops(tmp_path / "both", name), ops(tmp_path / name))


def test_background_of_another_transport_is_beside_the_jobs(tmp_path: Path) -> None:
    load = {
        "name": "burst",
        "incast": {"senders": 2, "size": "1MiB", "period": "1ms"},
        "mapping": {"ports": ["a/p1", "b/p1", "c/p1"]},
        "transport": {"kind": "uet"},
    }
    run = ran(tmp_path / "run", RING, background=[load])
    burst = next(job for job in run.summary.jobs if job.name == "burst")
    assert burst.background
    assert burst.ops_recorded > 0
    ran(tmp_path / "alone", RING)
    same(ops(tmp_path / "run", "ring"), ops(tmp_path / "alone"))
