"""Ranks on a network card and ranks on our own endpoints in one job: the card is the machine's Soft-RoCE device.

Agent a is beside the machine with kernel UDP sockets, agent b inside it with the device's queue pairs. Ranks alternate
between the two, so every ring crosses in both directions at every step. What is checked is what first light checks: each
operation once, each pair's bytes exactly, in the order of the trace.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.first_light.test_first_light_sets import Load, assert_it_is_the_trace, small
from tests.interop.machine import GUEST_ADDRESSES, HOST_ADDRESSES, ROOT, Machine, Program
from tests.support.first_light import commands
from tests.support.first_light.commands import Left, Place
from tests.support.first_light.trace_oracle import Reading, read_job
from tests.support.traces.shared_traces import known_set, known_sets

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

absent = pytest.mark.skipif(not known_sets(), reason="the real trace sets are not beside the repository")
RANKS_PER_AGENT = 4
PATH_MTU = 4096
GENTLE = "window_packets: 4, adaptive_timeout: false, timeout: 1s"
"""The card is emulated in software on a machine that may be busy: what it cannot take in time is lost, and slow to fix."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A place with its machine, and both agents alive."""

    place: Place
    within: tuple[str, ...]
    card: Program

    def replay(self, load: Load, source: Path, out: str) -> Left:
        """Replays a trace of 8 ranks to its end and holds what was measured to it."""
        load = replace(load, more=f"transport: {{{GENTLE}{load.more}}}")
        job = read_job(source)
        ended = commands.run_to_end(
            self.place, load.scenario(source, len(job.ranks)), out=out, within=self.within
        )
        assert ended.exit_code == 0, f"{ended.err}\n{ended.out}\nagent on the card: {self.card.lines}"
        left = commands.left_by(self.place, out)
        assert {check["name"] for check in left.summary["checks"] if check["result"] != "pass"} == set()
        assert_it_is_the_trace(left, job, load)
        return left


def write_rig(place: Place, device: str = "rxe0") -> str:
    """Both agents; returns where the controller is found."""
    port = place.endpoint.rpartition(":")[2]
    sides = (
        ("a", HOST_ADDRESSES, ""),
        ("b", GUEST_ADDRESSES, f", backend: verbs, device: {device}"),
    )
    agents = "".join(
        f"  - {{name: {name}, ports: [{{name: p0, addresses: {addresses[0]}-{addresses[RANKS_PER_AGENT - 1]}, "
        f"link: 1Gbps{more}}}]}}\n"
        for name, addresses, more in sides
    )
    place.write(
        "rig.yaml", f"controller: {{bind: 'tcp://*:{port}'}}\nsecurity: {{insecure: true}}\nagents:\n{agents}"
    )
    return f"tcp://{HOST_ADDRESSES[0]}:{port}"


def printed_in(machine: Machine, *argv: str) -> list[str]:
    """Every line that a Python program prints in the machine."""
    with machine.running(sys.executable, *argv, env={"PYTHONPATH": str(ROOT)}) as program:
        return program.rest(180)


def card_counter(machine: Machine, name: str) -> int:
    """What the device itself counted."""
    # An interpreter takes seconds to start there.
    with machine.running("/bin/cat", f"/sys/class/infiniband/rxe0/ports/1/hw_counters/{name}") as program:
        (line,) = program.rest(60)
    return int(line)


@pytest.fixture(scope="module")
def lab(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Both agents, which stay from run to run."""
    place = commands.free_place(tmp_path_factory.mktemp("verbs"))
    endpoint = write_rig(place)
    within = ("ip", "netns", "exec", machine.namespace)
    run = ("-P", "-m", "etloop.agent.cli", "run", "--controller", endpoint, "--insecure", "--name", "b")
    with (
        machine.running(sys.executable, *run, env={"PYTHONPATH": str(ROOT)}) as card,
        commands.agent(place, "a", "--insecure", endpoint=endpoint, within=within),
    ):
        while "waiting for a controller" not in (printed := card.line(180) or ""):
            assert card.code is None, card.lines
        assert printed
        yield Lab(place, within, card)


@pytest.fixture(scope="module")
def synthetic(lab: Lab) -> Path:
    """A training step of 8 ranks with every kind of parallelism."""
    made = commands.etloop(lab.place, "synth", "job", "--hidden", "128", "--sequence", "128")
    assert made.exit_code == 0, made.err
    return lab.place.directory / "job" / "w"


def test_a_training_step_crosses_between_card_and_endpoints(lab: Lab, synthetic: Path) -> None:
    """All-reduce, all-gather, all-to-all, barriers and sends; some of the payload both ways, and said to be degraded."""
    left = lab.replay(Load("synthetic", iterations=1), synthetic, "synthetic")
    flows = left.rows("flows")
    assert {row["agent"] for row in flows if row["tx_payload_bytes"] > 0} == {"a", "b"}
    assert any("carries the transport" in each for each in left.summary["degraded"])
    # Every queue pair was probed by a WRITE of its own; what is counted is what messages take, and no packet more.
    for row in (row for row in flows if row["agent"] == "a" and row["tx_messages"] > 0):
        most = row["tx_messages"] + (row["tx_payload_bytes"] - row["tx_messages"]) // PATH_MTU
        assert row["tx_packets"] - row["retransmitted_packets"] <= most, row


@pytest.mark.parametrize(
    ("rule", "injected", "counter"),
    [
        pytest.param("send_nak, every: 30", "injected_naks", "rcvd_seq_err", id="a NAK: sequence error"),
        pytest.param("send_rnr, every: 30", "injected_rnr_naks", "rcvd_rnr_err", id="receiver not ready"),
    ],
)
def test_the_card_takes_provoked_answers_for_its_own_and_sends_again(
    lab: Lab, machine: Machine, synthetic: Path, rule: str, injected: str, counter: str
) -> None:
    """Its queue pairs have numbers that no plan knows: an answer to another number would change nothing."""
    before = card_counter(machine, counter)
    left = lab.replay(Load(injected, more=f", faults: [{{do: {rule}}}]"), synthetic, injected)
    flows = [row for row in left.rows("flows") if row["agent"] == "a"]
    answers = sum(row[injected] for row in left.rows("ports"))
    assert answers > 0
    # Of answers to what was acknowledged since, the card takes and counts none, and sends nothing again for them.
    taken = card_counter(machine, counter) - before
    assert 0 < taken <= answers
    # Answers that arrive while the card waits for the receiver share one retransmission; on a busy machine many do.
    assert sum(row["duplicate_request"] for row in flows) > taken / 4


def test_preflight_says_what_the_card_can_be_used_for(machine: Machine) -> None:
    """A device that takes RoCE's port is what verbs needs, and in the way of ports of other kinds."""
    answer = printed_in(machine, "-P", "-m", "etloop.agent.cli", "preflight")
    rows = dict(re.findall(r"^(\S.*?)  +(\S+ .*)$", "\n".join(answer), re.MULTILINE))
    assert re.fullmatch(r"ok +port ACTIVE, \d+ RoCEv2 addresses", rows["RDMA device rxe0"]), answer
    assert re.fullmatch(
        r"warning  +rxe0 receives UDP port 4791 of eth0 in hardware", rows["RoCE in hardware"]
    ), answer
    assert re.fullmatch(r"ok +available", rows["verbs ports"]), answer


@absent
@pytest.mark.parametrize(
    "load",
    [
        pytest.param(Load("all_reduce_8"), id="an 8-rank all-reduce"),
        pytest.param(
            Load("gpt_8", small(1024, stage=True, always=True), parity=True), id="a Chakra set of 8 ranks"
        ),
        pytest.param(
            Load(
                "all_to_all_8",
                more=", qps_per_connection: 3, path_mtu: 1024, initial_psn: 16777200",
            ),
            id="three queue pairs a connection, sequence numbers that wrap",
        ),
        pytest.param(
            Load("all_reduce_8", more=", qps_per_connection: 3, split_data_on_qps: true"),
            id="every message in three parts, one a queue pair",
        ),
        pytest.param(
            Load(
                "all_to_all_8",
                collectives="all_to_all: {algorithm: deepep}, channels: 2",
                more=", qps_per_connection: 2",
            ),
            id="one-sided writes closed by FETCH_ADD, two channels of two queue pairs",
        ),
    ],
)
def test_a_set_crosses_between_card_and_endpoints(
    lab: Lab, load: Load, request: pytest.FixtureRequest
) -> None:
    """The bytes of every pair of ranks are those of the trace, whichever side of the wire is a card."""
    out = re.sub(r"\W+", "-", request.node.callspec.id)
    left = lab.replay(replace(load, iterations=1), known_set(load.name).source, out)
    if "deepep" in load.collectives:
        assert {row["algorithm"] for row in left.rows("ops") if row["collective"] == "all_to_all"} == {
            "deepep"
        }


def test_a_device_that_is_not_there_is_named(lab: Lab, synthetic: Path) -> None:
    """The run ends before any traffic and says which devices there are."""
    write_rig(lab.place, device="mlx5_0")
    try:
        scenario = Load("synthetic", Reading()).scenario(synthetic, 8)
        ended = commands.run_to_end(lab.place, scenario, out="nowhere", within=lab.within)
    finally:
        write_rig(lab.place)
    assert ended.exit_code != 0
    assert "RDMA device mlx5_0 cannot be opened; this host has: rxe0" in ended.err
