"""The `collectives` section: what it may say, its defaults, and every mistake at its line."""

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.scenario.collectives import Collectives, ScheduleFile
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.traffic.collectives.choice import Settings, Shaping, choose, with_splits
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl.constants import NcclVersion
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, Hardware, Layout, ScaleUp
from etloop.traffic.collectives.pins import Pin


def section(text: str) -> Collectives:
    lines = f"workload: {{trace: j}}\n{text}"
    return parse_scenario(lines.encode(), "s.yaml", Path("lab")).collectives


def test_a_scenario_without_the_section_is_nccl_on_h100() -> None:
    assert section("") == Collectives(Settings(Shaping.NCCL, hardware=Hardware()))
    assert section("collectives:") == section("")


def test_everything_can_be_said() -> None:
    printed = section(
        """
collectives:
  shaping: nccl
  nccl: 2.30
  algorithm: ring
  protocol: simple
  channels: 2
  all_reduce: {algorithm: tree, protocol: ll128, channels: 4}
  send_recv: {channels: 1}
  all_gather: {schedule: [mine/ring.xml, other.py], protocol: ll}
  all_to_all: {schedule: job.et, recorded: 1MiB}
  hardware: {gpu: ampere, cpu: amd, nic: 200Gbps, nics_per_host: 8, scale_up: pci, network_latency: 3us}
"""
    )
    assert printed.settings == Settings(
        Shaping.NCCL,
        Pin("ring", Protocol.SIMPLE, 2),
        (
            ("all-reduce", Pin("tree", Protocol.LL128, 4)),
            ("all-gather", Pin(protocol=Protocol.LL)),
            ("point-to-point", Pin(channels=1)),
        ),
        Hardware(Gpu.AMPERE, Cpu.AMD, 200_000_000_000, 8, ScaleUp.PCI, 3000),
        nccl=NcclVersion.V2_30,
    )
    assert printed.files == (
        ScheduleFile("all-gather", Path("lab/mine/ring.xml"), "s.yaml:11: collectives.all_gather.schedule"),
        ScheduleFile("all-gather", Path("lab/other.py"), "s.yaml:11: collectives.all_gather.schedule"),
        ScheduleFile("all-to-all", Path("lab/job.et"), "s.yaml:12: collectives.all_to_all.schedule", 1 << 20),
    )


def test_cards_of_a_host_are_those_of_the_mapping_unless_said() -> None:
    mapping = "mapping: {ranks_per_host: 8, nics_per_host: 4}\n"
    assert section(mapping).settings.hardware.nics_per_host == 4
    own = mapping + "collectives: {hardware: {nics_per_host: 2}}"
    assert section(own).settings.hardware.nics_per_host == 2


MISTAKES = {
    "{shaping: ncll}": 'collectives.shaping: "ncll" is not one of the choices; write nccl or gloo or mpi or plain',
    "{algorihm: ring}": "collectives.algorihm: unknown key; did you mean algorithm?",
    "{al_reduce: {}}": "collectives.al_reduce: unknown key; did you mean all_reduce?",
    "{algorithm: rign}": 'collectives.algorithm: unknown algorithm "rign"; write one of',
    "{channels: 65}": "collectives.channels: 65 channels; NCCL has at most 64; write 1 to 64",
    "{channels: 0}": "collectives.channels: 0 is out of range",
    "{all_reduce: {channels: 100}}": "collectives.all_reduce.channels: 100 channels; NCCL has at most 64",
    "{protocol: ll64}": 'collectives.protocol: "ll64" is not one of the choices; write simple or ll or ll128',
    "{shaping: mpi, protocol: ll}": "collectives.protocol: mpi has no protocols; remove protocol",
    "{shaping: gloo, channels: 2}": "collectives.channels: gloo has no channels",
    "{all_to_all: {protocol: ll}}": "collectives.all_to_all.protocol: sends over a network use the Simple protocol",
    "{send_recv: {protocol: ll128}}": "collectives.send_recv.protocol: sends over a network use the Simple protocol",
    "{all_gather: {algorithm: pat, protocol: ll}}": "collectives.all_gather.protocol: PAT has the Simple protocol only",
    "{all_reduce: {algorithm: bruck}}": "collectives.all_reduce.algorithm: bruck does not implement all-reduce; write one of",
    "{all_reduce: {schedule: ../x.py}}": 'collectives.all_reduce.schedule: "../x.py" is outside the scenario\'s directory',
    "{all_reduce: {schedule: /x.py}}": 'collectives.all_reduce.schedule: "/x.py" is outside the scenario\'s directory',
    "{all_reduce: {schedule: x.txt}}": 'collectives.all_reduce.schedule: "x.txt" does not end with .xml, .py, .et',
    "{all_reduce: {schedule: x.et}}": "collectives.all_reduce.schedule: custom traces are recorded for one buffer size",
    "{all_reduce: {recorded: 1MiB}}": "collectives.all_reduce.recorded: only custom traces have a recorded size",
    "{all_reduce: {schedule: x.py, channels: 2}}": "collectives.all_reduce.channels: the schedule's file defines it",
    "{all_reduce: {schedule: x.py, algorithm: ring}}": "collectives.all_reduce.algorithm: the schedule's file defines it",
    "{barrier: {schedule: x.py}}": "collectives.barrier.schedule: a barrier cannot have a custom schedule",
    "{hardware: {gpu: h100}}": 'collectives.hardware.gpu: "h100" is not one of the choices; write volta or ampere',
    "{hardware: {nic: 400}}": "collectives.hardware.nic: ",
    "{hardware: {nics_per_host: 65}}": "collectives.hardware.nics_per_host: 65 is out of range",
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        section(f"collectives: {text}")
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"s.yaml:2: {MISTAKES[text]}")


def test_all_mistakes_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        section("collectives:\n  shaping: x\n  all_reduce: {algorithm: y, zzz: 1}\n  hardware: {gpu: z}\n")
    assert [problem.where for problem in caught.value.problems] == [
        "s.yaml:3: collectives.shaping",
        "s.yaml:4: collectives.all_reduce.algorithm",
        "s.yaml:4: collectives.all_reduce.zzz",
        "s.yaml:5: collectives.hardware.gpu",
    ]


def test_deepep_writes_the_token_that_is_said() -> None:
    printed = section(
        "collectives: {all_to_all: {algorithm: deepep}, token: {hidden: 4096, values: bf16}}"
    ).settings
    schedule = choose("all-to-all", Layout(8, 1), 1 << 20, printed).schedule()
    assert schedule.chunk_bytes == 16 + 2 * 4096
    usual = section("collectives: {all_to_all: {algorithm: deepep}}").settings
    assert choose("all-to-all", Layout(8, 1), 1 << 20, usual).schedule().chunk_bytes == 7408
    splits = tuple(tuple(0 if i == j else 50_000 for j in range(4)) for i in range(4))
    uneven = with_splits(choose("uneven all-to-all", Layout(4, 1), 150_000, printed), splits).schedule()
    assert uneven.chunk_bytes == 16 + 2 * 4096


def test_a_token_is_whole_groups_of_values() -> None:
    with pytest.raises(ConfigError) as refused:
        section("collectives: {token: {hidden: 5000, values: fp16}}")
    text = str(refused.value)
    assert "collectives.token.hidden: got 5000 values; DeepEP sends them in groups of 128" in text
    assert "collectives.token.values" in text


def test_data_may_be_split_over_queue_pairs() -> None:
    text = b"workload: {trace: j}\ntransport: {qps_per_connection: 4, split_data_on_qps: true}\n"
    transport = parse_scenario(text, "s.yaml", Path()).transport
    assert (transport.qps_per_connection, transport.split_data_on_qps) == (4, True)
    assert not parse_scenario(b"workload: {trace: j}", "s.yaml", Path()).transport.split_data_on_qps
