"""Mutated traces of every format through reading, checking, repairing and looking: refused or accepted, nothing else.

A case is a number: it decides target, file and mutation, so a failure names the number that brings it back. Runs a fixed
set of cases, and with ETLOOP_FUZZ_SECONDS as many new ones as fit into that time (ETLOOP_FUZZ_SEED to begin elsewhere).
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import Problem, TraceError
from etloop.workload.chakra.encoder import encode_trace
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.inspect.inspection import inspect
from etloop.workload.lint.fix import fix
from etloop.workload.lint.report import lint
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import DependencyPolicy, WorkloadSettings
from tests.support.traces.json_traces_by_hand import (
    call,
    comms,
    cpu_op,
    groups,
    host,
    kernel,
    kineto,
    tensor,
    wait,
)

CASES = 40
SECONDS = float(os.environ.get("ETLOOP_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("ETLOOP_FUZZ_SEED", "1000000"))
GROWTH_LIMIT_KIB = 768 << 10
"""Peak memory that all cases of a target may add."""

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DEFAULT = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2, "group_count": 1}
HOST = host(
    groups(3, DEFAULT),
    comms(4, "allreduce", [tensor(5, 6, 4)], where=(0, 1, 2), record=40),
    comms(5, "all_to_allv", [tensor(7, 8, 6)], splits=(2, 4), where=(0, 1, 2), record=41),
    wait(6, 1),
    call(7, "aten::mm", [tensor(5, 6, 4)], [tensor(9, 10, 4)]),
)
FLAT = host(
    call(7, "aten::mm", [tensor(5, 6, 4)]),
    comms(4, "allreduce", [tensor(5, 6, 4)], group=123456),
    schema="1.0.1",
)
LINKED = host(
    call(10, "c10d::allreduce_", [[tensor(5, 6, 4)], "<Object>"])
    | {"ts": 100, "inclusive_dur": 30, "exclusive_dur": 12.5},
    call(11, NCCL, [[tensor(5, 6, 4)]], parent=10)
    | {"ts": 140, "inclusive_dur": 500.25, "exclusive_dur": 500.25, "cat": "kernel", "stream": 40},
    comms(12, "allreduce", [tensor(5, 6, 4)], parent=10, where=(0, 1, 2))
    | {"ts": 105, "inclusive_dur": 20, "exclusive_dur": 20},
)
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def device(rank: int) -> bytes:
    return kineto(
        cpu_op("record_param_comms", 1, 5, 40, 40),
        cpu_op("record_param_comms", 6, 5, 41, 41),
        kernel(
            NCCL,
            10,
            3.5,
            External_id=40,
            Collective_name="allreduce",
            Group_size=2,
            In_msg_nelems=4,
            dtype="Float",
        ),
        kernel(SEND_RECV, 15, 4, External_id=41),
        kernel("gemm", 20, 2, External_id=42),
        distributedInfo={"rank": rank, "world_size": 2, "pg_config": [DEFAULT]},
    )


GRAPH = json.dumps(
    {
        "workload_graph": [
            {"Id": 1, "Name": "gemm", "NodeType": 4, "data_deps": [], "runtime": 30, "is_cpu_op": False},
            {
                "Id": 2,
                "NodeType": 7,
                "data_deps": [1],
                "ctrlDeps": [9],
                "comm_type": 0,
                "comm_size": 64,
                "is_cpu_op": False,
            },
        ]
    }
).encode()
PRINTED = "\n".join(
    json.dumps(one)
    for one in (
        {"version": "1.0.0"},
        {"id": "1", "name": "gemm", "type": "COMP_NODE", "durationMicros": "7"},
        {
            "id": "2",
            "type": "COMM_COLL_NODE",
            "dataDeps": ["1"],
            "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "64"}],
        },
    )
).encode()
JOB = synthesize(
    SyntheticSpec(1, 2, 1, 1, 1, hidden_size=64, sequence_tokens=64, expert_skew_percent=100),
    random.Random(0),
)
ET = b"".join(encode_trace(JOB.ranks[0]))
GROUPS = json.dumps({key: list(members) for key, members in JOB.groups.items()}).encode()

TARGETS: dict[str, dict[str, bytes]] = {
    "et": {"w.0.et": ET, "w.1.et": b"".join(encode_trace(JOB.ranks[1])), "w.json": GROUPS},
    "host": {"t.0.json": HOST, "t.1.json": HOST},
    "flat host": {"t.0.json": FLAT, "t.1.json": FLAT},
    "linked": {"t.0.json": LINKED, "t.1.json": LINKED},
    "kineto": {"t.0.json": device(0), "t.1.json": device(1)},
    "host and kineto": {"host.0.json": HOST, "device.0.json": device(0)},
    "workload_graph": {"t.0.json": GRAPH, "t.1.json": GRAPH},
    "jsonizer": {"t.0.json": PRINTED, "t.1.json": PRINTED},
}

ODD_VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda chance: None,
    lambda chance: chance.choice([True, False]),
    lambda chance: chance.choice([0, 1, -1, 7, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 64, 10**40, -(10**40)]),
    lambda chance: chance.choice([0.5, 1e308, -1e308, 1e-308]),
    lambda chance: chance.choice(
        [
            "",
            "0",
            "-1",
            "1e400",
            "NaN",
            "\x1b[2J",
            "\ud800",
            "[" * 99,
            "[1, 2",
            "{'ranks': {0: 1}}",
            "x" * 5000,
        ]
    ),
    lambda chance: chance.choice([[], {}, [[]], [None] * 3, {"": {}}, [[[[[[1]]]]]], [1 << 64], ["0"]]),
)


@dataclass(slots=True)
class Mutator:
    """Draws mutations; everything it does follows from its chance."""

    chance: random.Random

    def mutated(self, content: bytes) -> bytes:
        """One to four mutations: of values where it is JSON, else of bytes; sometimes of bytes all the same."""
        if content.startswith(b"{") and self.chance.random() < 0.7:
            return b"\n".join(self._tree(line) for line in content.split(b"\n"))
        mutant = bytearray(content)
        for _ in range(self.chance.randint(1, 4)):
            self._bytes(mutant)
        return bytes(mutant)

    def _tree(self, text: bytes) -> bytes:
        root = json.loads(text)
        for _ in range(self.chance.randint(0, 4)):
            places = list(_places(root))
            if not places:
                break
            holder, key = self.chance.choice(places)
            self._value(holder, key)
        return json.dumps(root, ensure_ascii=True).encode()

    def _value(self, holder: Any, key: Any) -> None:
        match self.chance.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.extend([holder[key]] * self.chance.choice([1, 2, 40]))
            case 2 if isinstance(holder, dict):
                holder[self.chance.choice(["", "id", "ts", "rank", "values", "ZZ"])] = holder.pop(key)
            case _:
                holder[key] = self.chance.choice(ODD_VALUES)(self.chance)

    def _bytes(self, mutant: bytearray) -> None:
        at = self.chance.randrange(len(mutant) + 1)
        match self.chance.randrange(5):
            case 0:
                mutant[at : at + 1] = self.chance.randbytes(1)
            case 1:
                del mutant[at : at + self.chance.randint(1, 40)]
            case 2:
                mutant[at:at] = self.chance.randbytes(self.chance.randint(1, 12))
            case 3:
                mutant[at:at] = mutant[at : at + self.chance.randint(1, 400)] * self.chance.choice([1, 2, 9])
            case _:
                del mutant[at:]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def run_case(target: str, case: int, directory: Path) -> None:
    """One mutated source through everything that takes a trace."""
    chance = random.Random(f"{target} {case}")
    files = TARGETS[target]
    hit = chance.choice(sorted(files))
    for name, content in files.items():
        (directory / name).write_bytes(Mutator(chance).mutated(content) if name == hit else content)
    refused: tuple[Problem, ...] = ()
    try:
        trace = read_trace(directory)
    except TraceError as error:
        refused = error.problems
    if refused:
        assert all(str(problem).isprintable() for problem in refused)
        return
    settings = WorkloadSettings(dependencies=chance.choice(DependencyPolicy.every()))
    report = lint(trace, settings)
    assert all(example.where.isprintable() for one in report.findings for example in one.examples)
    inspect(trace, settings, IdealNetwork())
    fixed = fix(trace, settings)
    assert fix(fixed.trace, settings).repairs == ()
    for rank in fixed.trace.ranks:
        assert b"".join(encode_trace(et_nodes(rank)))


@pytest.mark.timeout(120 + SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_mutants_are_refused_or_accepted(target: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    until = time.monotonic() + SECONDS / len(TARGETS)
    case = 0
    while case < CASES or time.monotonic() < until:
        number = case if case < CASES else SEED + case
        try:
            run_case(target, number, tmp_path)
        except Exception as error:
            raise AssertionError(f"target {target!r} case {number}: {error!r}") from error
        case += 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_LIMIT_KIB


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_mutated_can_be_read(target: str, tmp_path: Path) -> None:
    for name, content in TARGETS[target].items():
        (tmp_path / name).write_bytes(content)
    assert sum(map(len, read_trace(tmp_path).ranks)) > 1
