"""`transport.cc` of a scenario: what it may say, and every mistake told with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.scenario.congestion import Plugin
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.traffic.congestion import built_in
from tests.support.runs.plan_by_hand import scenario_of


def mistakes(cc: str) -> list[str]:
    """What is said about a `cc:` section."""
    with pytest.raises(ConfigError) as caught:
        scenario_of(f"transport:\n  cc: {cc}\n")
    return [str(each) for each in caught.value.problems]


def test_a_nic_s_algorithm_is_the_default() -> None:
    congestion = scenario_of().transport.congestion
    assert (congestion.algorithm, congestion.profile) == ("dcqcn", "connectx")
    assert congestion.parameters == ()
    assert congestion.series.interval_ns == 0


def test_parameters_have_units() -> None:
    text = (
        "{preset: paper, alpha_g: 1/512, time_reset: 0.1ms, ai_rate: 50Mbps, byte_reset: 1MB, threshold: 3}"
    )
    congestion = scenario_of(
        f"transport: {{cc: {text}, pacing: {{burst: 8KiB, catch_up: 5ms}}}}"
    ).transport.congestion
    assert {each.name: each.value for each in congestion.parameters} == {
        "alpha_g": 1 / 512,
        "time_reset": 100_000.0,
        "ai_rate": 50e6,
        "byte_reset": 1e6,
        "threshold": 3.0,
    }
    assert congestion.pacing.burst_bytes == 8192
    assert congestion.pacing.catch_up_ns == 5_000_000


@pytest.mark.parametrize(("catch_up", "expected_ns"), [("0", 0), ("250us", 250_000), ("1s", 1_000_000_000)])
def test_how_much_lateness_is_made_up_for_may_be_none(catch_up: str, expected_ns: int) -> None:
    congestion = scenario_of(f"transport: {{pacing: {{catch_up: {catch_up}}}}}").transport.congestion
    assert congestion.pacing.catch_up_ns == expected_ns


def test_more_than_a_second_of_it_would_be_no_pacing() -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_of("transport: {pacing: {catch_up: 2s}}")
    (problem,) = caught.value.problems
    assert (problem.what, problem.remedy) == ('"2s" is out of range', "write a value from 0ns to 1s")


def test_a_series_is_asked_for() -> None:
    text = "transport: {cc: {series: {interval: 1ms, queue_pairs: 4}}}"
    congestion = scenario_of(text).transport.congestion
    assert (congestion.series.interval_ns, congestion.series.queue_pairs) == (1_000_000, 4)


@pytest.mark.parametrize(
    ("cc", "ack_every", "expected", "notes"),
    [
        ("dcqcn", "", 256, 0),
        ("none", "", 256, 0),
        ("swift", "", 1, 0),
        ("dctcp", "ack_every: 4, ", 4, 0),
        ("timely", "ack_every: 256, ", 256, 1),
    ],
)
def test_algorithms_that_live_on_acknowledgements_get_them(
    cc: str, ack_every: str, expected: int, notes: int
) -> None:
    transport = scenario_of(f"transport: {{{ack_every}cc: {{algorithm: {cc}}}}}").transport
    assert transport.ack_every_packets == expected
    assert len(transport.notes) == notes
    if notes:
        assert (
            "timely needs acknowledgements, but ack_every requests one for 256 packets" in transport.notes[0]
        )


REFUSED = {
    "{algorithm: dcqn}": ("transport.cc.algorithm", "did you mean dcqcn?"),
    "{preset: connectX}": ("transport.cc.preset", "did you mean connectx?"),
    "{ai_rate: 5}": ("transport.cc.ai_rate", "with its unit"),
    "{threshold: 32}": ("transport.cc.threshold", "write a value from 1 to 31"),
    "{time_reset: 1ns}": ("transport.cc.time_reset", "write a value from 1us to 1s"),
    "{ai_rates: 5Mbps}": ("transport.cc.ai_rates", "did you mean ai_rate?"),
    "{algorithm: none, ai_rate: 5Mbps}": ("transport.cc.ai_rate", "unknown key"),
    "{algorithm: timely, t_low: 1ms}": ("transport.cc.algorithm", "t_low must be below t_high"),
    "{algorithm: hpcc}": ("transport.cc.algorithm", "which no port of an agent receives"),
    "{series: {queue_pairs: 2}}": ("transport.cc.series.queue_pairs", "write interval"),
    "{plugin: x.cpp}": ("transport.cc.plugin", "this command does not load"),
}


@pytest.mark.parametrize(("cc", "expected"), REFUSED.items())
def test_a_mistake_is_told_at_its_key(cc: str, expected: tuple[str, str]) -> None:
    printed = mistakes(cc)
    assert len(printed) == 1
    assert all(part in printed[0] for part in expected), printed


def test_all_mistakes_are_told_together() -> None:
    assert len(mistakes("{algorithm: swift, beta: 7, ai: x, hops: 65}")) == 3


def with_plugin(cc: str, plugin: Plugin | ConfigError) -> Scenario:
    def read(path: Path) -> Plugin:
        assert path == Path("lab/my.cpp"), "relative to the scenario"
        if isinstance(plugin, ConfigError):
            raise plugin
        return plugin

    text = f"workload: {{trace: job}}\ntransport: {{cc: {cc}}}\n"
    return parse_scenario(text.encode(), "s.yaml", Path("lab"), read)


def test_a_plugin_brings_its_own_parameters() -> None:
    timely = next(each for each in built_in() if each.name == "timely")
    plugin = Plugin(timely, "my.cpp", b"source", "")
    congestion = with_plugin("{plugin: my.cpp, t_low: 60us}", plugin).transport.congestion
    assert (congestion.plugin_name, congestion.plugin.tobytes()) == ("my.cpp", b"source")
    assert [(each.name, each.value) for each in congestion.parameters] == [("t_low", 60_000.0)]
    with pytest.raises(ConfigError, match="both an algorithm and a plugin are set"):
        with_plugin("{plugin: my.cpp, algorithm: timely}", plugin)
    with pytest.raises(ConfigError, match=r"cc.plugin: my.cpp: no compiler; install one"):
        with_plugin("{plugin: my.cpp}", ConfigError(Problem("my.cpp", "no compiler", "install one")))
