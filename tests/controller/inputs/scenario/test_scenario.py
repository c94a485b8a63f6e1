"""scenario.yaml: what it may say, its defaults, and every mistake told with its place and remedy."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.scenario.mapping import PlacementRule
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit
from tests.support.places import ROOT
from tests.support.runs.plan_by_hand import scenario_of

EXAMPLES = ROOT / "examples"


def mistakes(text: str | bytes) -> list[str]:
    """What is said about a file."""
    raw = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        parse_scenario(raw, "s.yaml", Path())
    return str(caught.value).splitlines()


def test_defaults_are_those_of_the_field() -> None:
    scenario = scenario_of()
    assert scenario.jobs[0].source.trace == Path("lab/job")
    assert scenario.jobs[0].source.groups is None
    assert scenario.iterations == 1
    assert scenario.transport.path_mtu_bytes == 4096
    assert scenario.transport.traffic_class == 0x6A, "DSCP 26 and ECT(0)"
    assert scenario.transport.retry_limit == 7
    assert scenario.mapping.rule is PlacementRule.BLOCKED
    assert scenario.mapping.ranks_per_host == 1
    assert scenario.jobs[0].source.settings.dependencies is DependencyPolicy.DATA_COMMUNICATOR
    assert scenario.loss.drop_per_million == 0
    assert scenario.limits.stall_timeout_ns == 5_000_000_000
    assert scenario.limits.lost_after_ns == 60_000_000_000


def test_everything_that_can_be_said_is_read() -> None:
    scenario = parse_scenario(
        b"""
workload:
  trace: /abs/job
  groups: g.json
  size_unit: elements
  element_bytes: 4
  dependencies: recorded+ctrl
  replicate_ranks: 4
  kernels: k.yaml
  uneven: skew=1.5,seed=3
  logical_topology: [2, 3]
  compute: {flops: 312TFLOPS, memory_bandwidth: 2TB/s, storage_bandwidth: 5GB/s}
iterations: 3
scale: {bytes: 1/1000, time: 0.25}
mapping: {ranks_per_host: 2, placement: explicit, explicit: {0-1: a/p0, 2: b/p1}}
transport:
  {path_mtu: 1KiB, dscp: 3, ecn: ect1, qps_per_connection: 4, window_packets: 256, ack_every: 8, timeout: 4ms, retries: 3}
scale_up: {bandwidth: 900Gbps, latency: 2us}
faults: {drop: 1%, seed: 9}
limits: {stall_timeout: 10s, gather_timeout: 2min, lost_after: 20s}
seed: 5
twin: device.yaml
""",
        "s.yaml",
        Path("lab"),
    )
    assert scenario.jobs[0].source.trace == Path("/abs/job")
    assert scenario.jobs[0].source.groups == Path("lab/g.json")
    assert scenario.twin == Path("lab/device.yaml")
    assert scenario.jobs[0].source.settings.size_unit is SizeUnit.ELEMENTS
    assert str(scenario.jobs[0].source.settings.dependencies) == "data+ctrl+stream+communicator+recorded", (
        "NCCL adds its own"
    )
    assert scenario.jobs[0].source.settings.replicate_ranks == 4
    assert str(scenario.jobs[0].source.settings.uneven) == "skew=1.5,seed=3"
    assert scenario.jobs[0].source.settings.logical_topology == (2, 3)
    assert scenario.jobs[0].source.kernels == Path("lab/k.yaml")
    assert scenario.jobs[0].source.settings.flops == 312 * 10**12
    assert scenario.jobs[0].source.settings.memory_bandwidth_bytes_per_s == 2 * 10**12
    assert scenario.jobs[0].source.settings.storage_bandwidth_bytes_per_s == 5 * 10**9
    assert scenario.jobs[0].source.settings.bytes_scale == Fraction(1, 1000)
    assert (scenario.bytes_scale_text, scenario.time_scale_text) == ("1/1000", "0.25")
    assert scenario.mapping.explicit == ((0, "a/p0"), (1, "a/p0"), (2, "b/p1"))
    assert scenario.transport.path_mtu_bytes == 1024
    assert scenario.transport.traffic_class == 3 << 2 | 1
    assert scenario.transport.timeout_ns == 4_000_000
    assert scenario.loss.drop_per_million == 10_000
    assert (scenario.loss.seed, scenario.seed) == (9, 5)
    assert scenario.limits.lost_after_ns == 20_000_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "iterations: 1",
            "s.yaml: workload.trace: is missing; name the directory, prefix or archive of the .et files, or write a load",
        ),
        ("workload: {trace: j}\ntransprot: {}", "s.yaml:2: transprot: unknown key; did you mean transport?"),
        (
            "workload: {trace: j}\nzzz: 1",
            ("s.yaml:2: zzz: unknown key; the keys here are seed, iterations, twin, allow_local, scale, scale_up, limits, "
            "faults, mapping, collectives, transport, rounds, jobs, workload, background, verdict, timeline"),
        ),
        (
            "workload: {trace: j}\ntransport: {path_mtu: 1500}",
            's.yaml:2: transport.path_mtu: "1500" is not a path MTU; write one of 256, 512, 1024, 2048, 4096',
        ),
        (
            "workload: {trace: j}\nscale_up: {bandwidth: 400}",
            's.yaml:2: scale_up.bandwidth: "400" has no unit; write a rate with its unit, such as "400Gbps"',
        ),
        (
            "workload: {trace: j}\niterations: 0",
            "s.yaml:2: iterations: 0 is out of range; write a whole number from 1 to 1000000",
        ),
        (
            "workload: {trace: j}\niterations: 1\niterations: 2",
            "s.yaml:3: iterations: the key is already set in line 2; keep one of them",
        ),
        (
            "workload: {trace: j}\nmapping: {placement: explicit}",
            's.yaml:2: mapping.explicit: placement is explicit but no rank is placed; write lines such as 0-3: "a/p0"',
        ),
        (
            "workload: {trace: j}\nmapping: {explicit: {0: a/p0}}",
            "s.yaml:2: mapping.explicit: ranks are placed although placement is blocked; write placement: explicit",
        ),
        (
            "workload: {trace: j}\nmapping: {placement: explicit, explicit: {0-3: a/p0, 3: b/p0}}",
            "s.yaml:2: mapping.explicit.3: rank 3 is placed twice; place every rank once",
        ),
        (
            "workload: {trace: j}\nfaults: {drop: 0.01}",
            ('s.yaml:2: faults.drop: "0.01" is not a share; write a share between "0%" and "100%" in steps of 0.0001%, '
            'such as "1%"'),
        ),
        (
            "workload: {trace: j, size_unit: byte}",
            ('s.yaml:1: workload.size_unit: "byte" is not one of the choices; write auto or bytes or elements '
            "(did you mean bytes?)"),
        ),
        (
            "workload: {trace: j}\ntransport: {ack_every: 0}",
            "s.yaml:2: transport.ack_every: 0 is out of range; write a whole number from 1 to 65536",
        ),
        (
            "workload: {trace: j, dependencies: data+streams}",
            ('s.yaml:1: workload.dependencies: "streams" is not a kind of dependency; write data, ctrl, stream, '
            "communicator, recorded, joined by +, such as data+stream+communicator"),
        ),
        (
            "workload: {trace: j, replicate_ranks: 1}",
            "s.yaml:1: workload.replicate_ranks: 1 is out of range; write a whole number from 2 to 65536",
        ),
        ("workload: j", 's.yaml:1: workload: expected a mapping, found "j"; write keys and values below it'),
        ("workload: {trace: [a]}", "s.yaml:1: workload.trace: expected one value, found a list; write a single value"),
        (
            "workload: {trace: !!python/none x}",
            ("s.yaml:1: workload.trace: the tag tag:yaml.org,2002:python/none is not supported; "
         "write the plain value")),
        ("workload: {trace: &a j}", "s.yaml: line 1: anchors and aliases (& and *) are not supported; write the value itself"),
        ("- a", "s.yaml: the file holds a list; write a mapping of keys to values"),
        ("", "s.yaml: the file is empty; write a mapping of keys to values"),
        ("a: [", ("s.yaml: line 1: not valid YAML: while parsing a flow node expected the node content, but found "
         "'<stream end>'; correct the YAML at this place")),
        ("[" * 40, "s.yaml: line 1: nested deeper than 16 levels; write it flatter"),
        ("a: [" + "0," * 70_000, "s.yaml: line 1: more than 65536 keys and values; write less into one file"),
        (b"\xff\xfe\xfa", "s.yaml: byte 0 is not UTF-8; save the file as UTF-8 text"),
        (b"#" * (1 << 20) + b"\n", "s.yaml: the file has 1048577 bytes; keep it under 1048576 bytes"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_place_and_remedy(text: str | bytes, message: str) -> None:
    assert message in mistakes(text)


def test_all_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    text = "workload: {size_unit: x}\ntransport: {dscp: 64, nope: 1}\nfaults: {drop: 5}\nseed: -1"
    printed = mistakes(text)
    assert [line.split(": ")[1] for line in printed] == [
        "workload.trace",
        "workload.size_unit",
        "transport.dscp",
        "transport.nope",
        "faults.drop",
        "seed",
    ]


def test_a_flood_of_mistakes_is_cut_short_and_says_so() -> None:
    printed = mistakes("workload: {trace: j}\n" + "\n".join(f"k{number}: 1" for number in range(80)))
    assert len(printed) == 51
    assert printed[-1] == "s.yaml: 30 more mistakes; fix those above first"


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_text_is_a_scenario_or_a_config_error(text: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_scenario(text, "s.yaml", Path())


@given(
    st.recursive(
        st.text("ab: -{}[]&*!'\"\n0", max_size=8), lambda inner: st.lists(inner, max_size=4).map("\n".join)
    )
)
def test_yaml_like_text_is_a_scenario_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_scenario(f"workload: {{trace: j}}\nmapping: {text}".encode(), "s.yaml", Path())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/scenario.yaml")), ids=lambda path: path.parent.name)
def test_the_examples_are_scenarios(path: Path) -> None:
    parse_scenario(path.read_bytes(), path.name, path.parent)
