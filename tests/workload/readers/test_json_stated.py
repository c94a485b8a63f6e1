"""Recordings whose names tell no job are the ranks that they state: PyTorch's, vLLM's, NeMo's and others' usual names."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.readers import stores
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.json_sources import JsonForm, Statement, statement_of
from tests.support.traces.json_traces_by_hand import comms, host, kernel, kineto, tensor

COUNT = 3
GROUP = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": COUNT, "ranks": list(range(COUNT))}
EVENT = kernel("ncclDevKernel_AllReduce(x)", 5, 2, 40)
EVENT["args"] |= {
    "Collective name": "allreduce",
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "dtype": "Float",
    "Group size": COUNT,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2]",
}


def recorded(rank: int, world: int = COUNT) -> bytes:
    """Kineto of one rank, with an all-reduce of `100 + rank` floats so that ranks can be told."""
    event = EVENT | {"args": EVENT["args"] | {"In msg nelems": 100 + rank, "Out msg nelems": 100 + rank}}
    return kineto(event, distributedInfo={"rank": rank, "world_size": world, "pg_config": [GROUP]})


def write(at: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(content)
    return at


def order(at: Path) -> list[int]:
    """Which recording every rank was read from."""
    return [int(rank.comm.size.max()) // 4 - 100 for rank in read_trace(at).ranks]


NAMINGS = {
    "tensorboard_trace_handler": "gpu-host_{pid}.{ns}.pt.trace.json",
    "vLLM": "dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.{ns}.pt.trace.json",
    "vLLM of 2024": "gpu-host_{pid}-rank-{rank}.{ns}.pt.trace.json",
    "NeMo": "gpu-host_{pid}_rank{rank}.pt.trace.json",
    "a folder a rank": "rank{rank}/trace.json",
    "a folder a rank, with its time": "{rank}/profile/host_{pid}.{ns}.pt.trace.json",
    "folders of nodes": "node{other}/rank{rank}.pt.trace.json",
    "so many of so many": "model_{rank}_of_3.json",
    "torchtitan": "rank{rank}_trace.json",
    "Megatron": "rank-{rank}.json",
    "process ids that look like ranks": "trace_{pid}.json",
    "padded": "kineto_0{rank}.json",
    "no order that its names could tell": "{pid}.json",
}


def named(naming: str) -> dict[str, bytes]:
    """Three files; process ids and times fall as ranks rise."""
    return {
        naming.format(
            rank=rank, pid=1111 - 37 * rank, ns=1773709679453551505 - rank, other=rank // 2
        ): recorded(rank)
        for rank in range(COUNT)
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("naming", NAMINGS)
def test_a_job_is_read_whatever_its_files_are_called(tmp_path: Path, naming: str, packed: bool) -> None:
    files = named(NAMINGS[naming])
    if not packed:
        assert order(write(tmp_path / "job", files)) == [0, 1, 2]
        return
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"job/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert order(write(tmp_path, {"job.tar.gz": buffer.getvalue()}) / "job.tar.gz") == [0, 1, 2]


def test_host_traces_beside_recordings_have_the_ranks_of_their_names(tmp_path: Path) -> None:
    files = named(NAMINGS["tensorboard_trace_handler"])
    hosts = {
        f"et_{rank}.json": host(comms(10, "allreduce", [tensor(5, 6, 100)], group=77))
        for rank in range(COUNT)
    }
    trace = read_trace(write(tmp_path, files | hosts | {"notes.json": b'{"who": "ann"}'}))
    assert len(trace.ranks) == COUNT
    assert all(rank.stream is not None for rank in trace.ranks), "both were joined"


@pytest.mark.parametrize(
    ("sentence", "files", "said"),
    [
        (
            "two steps of one job lie side by side",
            {f"host_{n}.{n}.pt.trace.json": recorded(n % 2) for n in range(4)},
            "host_0.0.pt.trace.json and host_2.2.pt.trace.json are both rank 0; name one by its prefix or file",
        ),
        (
            "two jobs lie side by side",
            {"a_1.0x.pt.trace.json": recorded(0), "b_2.0y.pt.trace.json": recorded(1, 2)},
            "b_2.0y.pt.trace.json is of 2 ranks, a_1.0x.pt.trace.json of 3; name one",
        ),
        (
            "files state nothing",
            {"monday.json": kineto(EVENT), "tuesday.json": kineto(EVENT), "wednesday.json": kineto(EVENT)},
            "neither the content of monday.json nor its name states its rank; name one",
        ),
        (
            "one rank is missing",
            {f"x_{n}.{n}y.pt.trace.json": recorded(n) for n in (0, 2)},
            "the trace of rank 1 is missing: found ranks 0,2; put the files of all ranks 0 to n-1 into one directory or archive",
        ),
    ],
)
def test_what_is_no_whole_job_is_refused_with_what_its_files_state(
    tmp_path: Path, sentence: str, files: dict[str, bytes], said: str
) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(write(tmp_path, files))
    assert said in str(refused.value), sentence


def test_folders_are_not_looked_into_beside_traces_nor_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = write(tmp_path, named("rank{rank}.json") | {"old/rank7.json": recorded(0)})
    assert order(at) == [0, 1, 2]
    deep = write(tmp_path / "deep", {"a/b/c/d/rank0.json": recorded(0), "a/b/c/d/e/rank1.json": recorded(1)})
    assert len(read_trace(deep).ranks) == 1, "the fifth folder down is another matter"
    monkeypatch.setattr(stores, "_MOST_SEEN", 3)
    with pytest.raises(
        TraceError,
        match="holds more than 3 files in its folders, but no trace at its top level; give the directory",
    ):
        read_trace(deep)


@pytest.mark.parametrize(
    ("info", "stated"),
    [
        ({"rank": 3, "world_size": 8}, (3, 8)),
        ({"rank": -1, "world_size": True}, (None, None)),
        ({"rank": "3"}, (None, None)),
        ({"rank": 1 << 40}, (None, None)),
        (["rank"], (None, None)),
    ],
)
def test_what_a_head_states(info: Any, stated: tuple[int | None, int | None]) -> None:
    assert statement_of(kineto(EVENT, distributedInfo=info)) == Statement(JsonForm.KINETO, *stated)
    assert statement_of(b'{"distributedInfo": {"rank": 1') == Statement(JsonForm.KINETO), "cut off"
    assert statement_of(b'{"a": 1}') == Statement(None)
