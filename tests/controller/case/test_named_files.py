"""The list of keys that name files is complete, and names are put in their place without touching the rest of a text."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.case.named_files import NAMES, named_files, of_ports, with_names, with_topology
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.results.schema.case import CaseRole

SCENARIO = b"""\
# why: the new firmware
workload: {trace: "../job", groups: g.json}   # of March
jobs:
  - {name: a, workload: {trace: /tmp/x, groups: h.json}, collectives: {all_reduce: {schedule: d.py}}}
  - {name: b, workload: {flows: {file: f.csv}}}
  - {name: c, workload: {flows: {sizes: hadoop}}}
  - {name: d, workload: {serving: {model: m.yaml, requests: {trace: r.jsonl}}}}
  - {name: e, workload: {serving: {model: deepseek-v3, requests: {rate: 8}}}}
collectives:
  all_reduce: {schedule: [a.xml, "b.py"]}
  all_gather:
    schedule: >
      c.xml
transport: {cc: {plugin: 'my cc.cpp', preset: x}}
twin: t.yaml
seed: 1
"""
RIG = b"""\
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}, {name: p1, addresses: 10.0.0.2, link: 1Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.0.3, link: 1Gbps}]}
topology: t.yaml
security: {curve: {server_key: k, authorised_keys: keys}}
dut:
  profile: mine.yaml
  counters:
    - {reader: snmp, address: 10.1.1.1, credentials: c.yaml, ports: {a/p1: e1, b/p0: e2}}
"""


def test_every_key_that_names_a_file_is_found() -> None:
    found = [
        (each.role, ".".join(each.key), each.value.strip())
        for each in named_files(SCENARIO, "s", CaseRole.SCENARIO)
    ]
    assert found == [
        (CaseRole.TRACE, "workload.trace", "../job"),
        (CaseRole.GROUPS, "workload.groups", "g.json"),
        (CaseRole.TRACE, "jobs.0.workload.trace", "/tmp/x"),
        (CaseRole.GROUPS, "jobs.0.workload.groups", "h.json"),
        (CaseRole.SCHEDULE, "jobs.0.collectives.all_reduce.schedule", "d.py"),
        (CaseRole.FLOWS, "jobs.1.workload.flows.file", "f.csv"),
        (CaseRole.LOAD, "jobs.3.workload.serving.model", "m.yaml"),
        (CaseRole.LOAD, "jobs.3.workload.serving.requests.trace", "r.jsonl"),
        (CaseRole.SCHEDULE, "collectives.all_reduce.schedule.0", "a.xml"),
        (CaseRole.SCHEDULE, "collectives.all_reduce.schedule.1", "b.py"),
        (CaseRole.SCHEDULE, "collectives.all_gather.schedule", "c.xml"),
        (CaseRole.PLUGIN, "transport.cc.plugin", "my cc.cpp"),
        (CaseRole.TOPOLOGY, "twin", "t.yaml"),
    ]
    found = [(each.role, each.value, "") for each in named_files(RIG, "r", CaseRole.RIG)]
    assert [role for role, _, _ in found] == [
        CaseRole.TOPOLOGY,
        *[CaseRole.PRIVATE] * 2,
        CaseRole.PROFILE,
        CaseRole.PRIVATE,
    ]


@pytest.mark.parametrize(
    ("sentence", "text", "names"),
    [
        ("a file of all switches", b"device: ./a.yaml\nsingle: {ports: [a/p0], rate: 1Gbps}\n", ["./a.yaml"]),
        ("of one switch", b"single: {switch: {device: b.yml}}\n", ["b.yml"]),
        ("of a tier", b"leaf_spine: {spine: {device: d/c}, leaf: {device: d/e}}\n", ["d/c", "d/e"]),
        ("of a list", b"switches: [{name: x, device: f.yaml}]\n", ["f.yaml"]),
        ("a shipped profile is no file", b"device: sonic-tomahawk5\n", []),
        ("nothing is named by nothing", b"device:\n", []),
    ],
)
def test_topologies_name_profiles(sentence: str, text: bytes, names: list[str]) -> None:
    assert [each.value for each in named_files(text, "t", CaseRole.TOPOLOGY)] == names, sentence


def paths_in(kind: Any, at: tuple[str, ...] = (), seen: tuple[Any, ...] = ()) -> set[tuple[str, ...]]:
    """Every field below a type of values that is, or may be, a `Path`."""
    if kind is Path:
        return {at}
    if dataclasses.is_dataclass(kind):
        if kind in seen:
            return set()
        hints = typing.get_type_hints(kind, localns={"Path": Path})
        return {
            path
            for field in dataclasses.fields(kind)
            for path in paths_in(hints[field.name], (*at, field.name), (*seen, kind))
        }
    if typing.get_origin(kind) in (tuple, typing.Union, types.UnionType):
        return {path for each in typing.get_args(kind) for path in paths_in(each, at, seen)}
    return set()


def test_the_list_has_every_path_that_scenarios_and_rigs_are_read_to() -> None:
    """A new field that names a file is missing here until `NAMES` has its key."""
    assert paths_in(Scenario) == {
        ("jobs", "source", "trace"),
        ("jobs", "source", "groups"),
        ("jobs", "source", "kernels"),
        ("jobs", "source", "load", "file"),
        ("jobs", "source", "load", "source"),
        ("jobs", "source", "load", "source", "sizes"),
        ("jobs", "source", "load", "directory"),
        ("jobs", "collectives", "files", "path"),
        ("collectives", "files", "path"),
        ("twin",),
    }
    assert paths_in(Rig) == {
        ("security", "curve", "server_key"),
        ("security", "curve", "authorised_keys"),
        ("topology",),
        ("dut", "stated_profile"),
        ("dut", "counters", "reader_settings", "credentials"),
        *(
            ("dut", "counters", "reader_settings", "tls", name)
            for name in ("authority", "certificate", "key")
        ),
    }
    # In addition: plugins, which are read with the scenario. Profiles are names or paths.
    assert sum(map(len, NAMES.values())) == 31


def test_other_names_are_put_in_and_nothing_else_changes() -> None:
    named = named_files(SCENARIO, "s", CaseRole.SCENARIO)
    text = with_names(SCENARIO, [(each, f"inputs/{number} é") for number, each in enumerate(named)]).decode()
    assert text.startswith(
        '# why: the new firmware\nworkload: {trace: "inputs/0 é", groups: "inputs/1 é"}   # of March\n'
    )
    assert 'all_reduce: {schedule: ["inputs/8 é", "inputs/9 é"]}' in text
    assert 'schedule: "inputs/10 é"\ntransport: {cc: {plugin: "inputs/11 é", preset: x}}\n' in text
    again = named_files(text.encode(), "s", CaseRole.SCENARIO)
    assert [each.value for each in again] == [f"inputs/{number} é" for number in range(13)]
    assert with_names(SCENARIO, [(each, each.value) for each in named]) == SCENARIO


@pytest.mark.parametrize(
    ("sentence", "text", "made"),
    [
        ("before the first key", b"# a\nseed: 1 # b\n", '# a\ntwin: "t.yaml"\nseed: 1 # b\n'),
        ("into braces", b"{seed: 1}\n", "{seed: 1, twin: t.yaml}\n"),
        ("in the place of nothing", b"twin:\nseed: 1\n", "twin: t.yaml\nseed: 1\n"),
    ],
)
def test_a_topology_is_named(sentence: str, text: bytes, made: str) -> None:
    assert with_topology(text, "s", "t.yaml").decode() == made, sentence


def test_a_rig_of_some_ports_is_read_and_has_no_others() -> None:
    rig = parse_rig(of_ports(RIG, "r", ("a/p1",)), "r", Path())
    assert list(rig.ports) == ["a/p1"]
    assert rig.dut is not None
    assert rig.dut.counters[0].ports == {"a/p1": "e1"}
    assert list(parse_rig(of_ports(RIG, "r", ("a/p0", "a/p1", "b/p0")), "r", Path()).ports) == [
        "a/p0",
        "a/p1",
        "b/p0",
    ]


def test_what_is_no_yaml_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match="here: line 1: not valid YAML"):
        named_files(b"{", "here", CaseRole.RIG)
    assert parse_scenario(b"workload: {trace: x}\n", "s", Path()).twin is None
