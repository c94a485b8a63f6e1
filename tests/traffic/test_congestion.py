"""Congestion control through the whole engine in virtual time: who gets how much of one bottleneck, and what queue it costs.

Set-points and tolerances are those that docs/congestion_control.md states. Sizes grow with ETLOOP_FULL=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import pytest

from etloop.agent.service import AgentSettings, open_allowed
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.congestion import CongestionParameter, CongestionSettings, SeriesSettings
from etloop.traffic.cc_library import library_for, library_of, read_plugin
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.congestion import Need, Unit, built_in, mistakes, of_library
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.places import ROOT
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.incast import Incast, run_incast, steady

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
GBPS: Final = 1_000_000_000
US: Final = 1_000
MS: Final = 1_000_000
EXAMPLE: Final = ROOT / "examples" / "cc_plugin" / "aimd.cpp"


def connectx(senders: int) -> Incast:
    """Marking as the HPCC authors' runs have it, per 25 Gbps (facts in docs/congestion_control.md)."""
    return Incast(
        senders,
        "dcqcn",
        "connectx",
        link_bps=25 * GBPS,
        last_ns=2000 * MS if FULL else 1000 * MS,
        stagger_ns=100 * MS,
        mark_from_bytes=100_000,
        mark_all_bytes=400_000,
        mark_per_million=200_000,
    )


def paper(senders: int) -> Incast:
    """Active increase of 40 Mbps every 55 us needs a faster link where more share it: 64 times that is 1.3 % of 200 Gbps."""
    speed = {2: 1, 4: 1, 16: 4, 64: 8}[senders]
    return Incast(
        senders,
        "dcqcn",
        "paper",
        link_bps=speed * 25 * GBPS,
        last_ns=400 * MS,
        stagger_ns=10 * MS,
        window_packets=32 if senders == 64 else 64,
        cnp_interval_ns=50 * US,
        mark_from_bytes=min(8, speed) * 100_000,
        mark_all_bytes=min(8, speed) * 400_000,
        mark_per_million=200_000,
    )


SIZES: Final = (2, 4, 16, 64)


@pytest.mark.parametrize("senders", SIZES if FULL else SIZES[:3])
@pytest.mark.parametrize("profile", [connectx, paper], ids=["connectx", "paper"])
def test_dcqcn_shares_a_bottleneck(profile: Callable[[int], Incast], senders: int) -> None:
    setup = profile(senders)
    outcome = run_incast(setup)
    found = steady(setup, outcome)
    assert 0.9 <= found.least <= found.most <= 1.1
    assert found.utilisation > 0.95
    assert found.queue_mean_bytes < setup.mark_all_bytes
    assert outcome.queue_dropped == 0
    assert outcome.flows["retransmitted_packets"].sum() == 0
    assert outcome.flows["rp_cnp_handled"].sum() == outcome.flows["np_cnp_sent"].sum() > 0


@pytest.mark.parametrize("senders", [2, 8, 16])
def test_dctcp_holds_its_threshold(senders: int) -> None:
    """A step at K: the queue peaks at K and a packet of every sender (Alizadeh 2010, 3.3), and is never long empty."""
    threshold, packet = 65_000, 4178
    setup = Incast(
        senders,
        "dctcp",
        link_bps=10 * GBPS,
        window_packets=256,
        mark_from_bytes=threshold,
        mark_all_bytes=threshold + 1,
        mark_per_million=1_000_000,
    )
    found = steady(setup, run_incast(setup))
    assert found.queue_max_bytes <= threshold + (senders + 2) * packet
    assert 0.8 * threshold < found.queue_mean_bytes < threshold + senders * packet
    assert found.utilisation > 0.95
    assert 0.9 <= found.least <= found.most <= 1.1


def swift_target_ns(window_packets: float) -> float:
    """Base 20 us, one hop of 3.053 us, and flow scaling over 100 us between 0.1 and 100 packets."""
    slope = 100_000 / (1 / 0.1**0.5 - 1 / 100**0.5)
    scaled: float = slope / window_packets**0.5 - slope / 100**0.5
    return 20_000 + 3_053 + min(max(scaled, 0), 100_000)


@pytest.mark.parametrize("senders", [2, 8, 16])
def test_swift_holds_its_target_delay(senders: int) -> None:
    setup = Incast(senders, "swift", link_bps=10 * GBPS, window_packets=256)
    found = steady(setup, run_incast(setup))
    window = found.rtt_mean_ns * 10 / 8 / 4178 / senders
    assert found.rtt_mean_ns == pytest.approx(swift_target_ns(window), rel=0.1)
    assert found.utilisation > 0.95
    assert 0.9 <= found.least <= found.most <= 1.1


@pytest.mark.parametrize("senders", [2, 8])
def test_timely_keeps_the_delay_in_its_band(senders: int) -> None:
    """The sawtooth rises above T_low, where the gradient counts, and never reaches T_high."""
    setup = Incast(
        senders,
        "timely",
        parameters={"hai_after": 1000.0},
        link_bps=100 * GBPS,
        window_packets=256,
        last_ns=100 * MS,
    )
    found = steady(setup, run_incast(setup))
    longest_ns = 16_000 + found.queue_max_bytes * 8 // 100
    assert 50_000 < longest_ns < 500_000
    assert found.utilisation > 0.85
    assert 0.85 <= found.least <= found.most <= 1.15


@pytest.mark.parametrize("senders", [2, 8])
def test_nscc_holds_its_target_delay(senders: int) -> None:
    """The target is one base round trip of queueing, of 16.3 us here."""
    setup = Incast(
        senders,
        "nscc",
        link_bps=100 * GBPS,
        last_ns=60 * MS,
        window_packets=256,
        mark_from_bytes=40_000,
        mark_all_bytes=200_000,
        mark_per_million=200_000,
    )
    found = steady(setup, run_incast(setup))
    assert found.rtt_mean_ns == pytest.approx(2 * 16_300, rel=0.2)
    assert found.utilisation > 0.95


@pytest.mark.parametrize(
    ("senders", "used", "queue_bytes"),
    [(2, 0.942, 4_400), (8, 0.935, 7_600), (16, 0.933, 9_800), (32, 0.894, 48_000)],
)
def test_hpcc_uses_the_fullest_hop_to_eta(senders: int, used: float, queue_bytes: int) -> None:
    """The figures of docs/congestion_control.md: near eta with few flows; with many it needs more queue and uses less."""
    setup = Incast(senders, "hpcc", link_bps=100 * GBPS, last_ns=60 * MS, window_packets=256, telemetry=True)
    found = steady(setup, run_incast(setup))
    assert found.utilisation == pytest.approx(used, abs=0.01)
    assert found.queue_mean_bytes == pytest.approx(queue_bytes, rel=0.1)


def test_without_control_the_window_fills_the_queue() -> None:
    outcome = run_incast(Incast(4, "none", last_ns=20 * MS))
    assert outcome.failure == ""
    assert not outcome.rates["acked_bytes"].any(), (
        "nothing is controlled, so nothing is counted as controlled"
    )
    assert outcome.queue["queued_bytes"].max() > 3 * 64 * 4096
    assert outcome.flows["rp_cnp_handled"].sum() == 0


def test_same_seed_same_rates() -> None:
    setup = replace(connectx(4), last_ns=20 * MS, stagger_ns=0)
    first, second = run_incast(setup), run_incast(setup)
    assert first.rates.tobytes() == second.rates.tobytes()
    assert first.rates.tobytes() != run_incast(replace(setup, seed=2)).rates.tobytes()


@pytest.mark.parametrize("algorithm", [each.name for each in built_in() if Need.INT not in each.needs])
def test_every_algorithm_survives_a_bad_network(algorithm: str) -> None:
    """Loss, reordering and duplicates close no window for good."""
    ops = (HandOp(CollectiveName.ALL_REDUCE, 3 << 20), HandOp(CollectiveName.ALL_TO_ALL, 1 << 20, (0,)))
    congestion = CongestionSettings(algorithm=algorithm, series=SeriesSettings(50 * US, queue_pairs=1))
    job = assignment(tuple(ops for _ in range(4)), transport=replace(TRANSPORT, congestion=congestion))
    bad = SimulationSettings(
        seed=5,
        loss_per_million=10_000,
        duplicate_per_million=5_000,
        reorder_per_million=10_000,
        queue_capacity_bytes=200_000,
        mark_from_bytes=20_000,
        mark_all_bytes=100_000,
        mark_per_million=200_000,
    )
    outcome = simulate(job, bad)
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == 2 * 3 * (3 << 20) + 3 * (1 << 20)
    rates = outcome.rates
    assert len(np.unique(rates["local_qpn"])) == 4, "the first sending queue pair of every port"
    for number in np.unique(rates["local_qpn"]):
        times = rates["time_ns"][rates["local_qpn"] == number]
        assert (np.diff(times) == 50 * US).all()


def test_the_tables_are_readable() -> None:
    by_name = {each.name: each for each in built_in()}
    assert list(by_name) == ["none", "dcqcn", "dctcp", "timely", "swift", "hpcc", "nscc", "rccc"]
    assert [each.name for each in by_name["dcqcn"].presets] == ["connectx", "paper", "ns3"]
    units = {each.name: each.unit for each in by_name["dcqcn"].parameters}
    assert units["time_reset"] is Unit.NANOSECONDS
    assert units["ai_rate"] is Unit.BITS_PER_SECOND
    for algorithm in built_in():
        assert len({each.name for each in algorithm.parameters}) == len(algorithm.parameters)
        assert all(each.least <= each.initial <= each.most and each.meaning for each in algorithm.parameters)


def test_every_wrong_parameter_is_named() -> None:
    given = (("beta", 7.0), ("nonsense", 1.0))
    assert mistakes("timely", "", "", given) == [
        "beta is out of its limits",
        "timely has no parameter nonsense",
    ]
    job = assignment(
        tuple((HandOp(CollectiveName.ALL_REDUCE, 1024),) for _ in range(2)),
        transport=replace(
            TRANSPORT,
            congestion=CongestionSettings(
                algorithm="timely", parameters=tuple(CongestionParameter(*each) for each in given)
            ),
        ),
    )
    with pytest.raises(ValueError, match=r"beta is out of its limits, timely has no parameter nonsense"):
        simulate(job, SimulationSettings())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of compiled plugins that starts empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "etloop" / "cc"


def test_the_example_plugin_controls_a_run(cache: Path) -> None:
    source = read_plugin(EXAMPLE)
    library = library_of(EXAMPLE.name, source)
    assert library.parent == cache
    algorithm = of_library(str(library))
    assert algorithm.name == "aimd"
    assert [each.name for each in algorithm.parameters] == ["increase", "cut", "initial_window"]
    stamp = library.stat().st_mtime_ns
    assert library_of("another name.cpp", source) == library, "the content decides"
    assert library.stat().st_mtime_ns == stamp
    setup = Incast(
        4,
        "aimd",
        parameters={"cut": 0.25},
        link_bps=10 * GBPS,
        window_packets=256,
        mark_from_bytes=65_000,
        mark_all_bytes=65_001,
        mark_per_million=1_000_000,
        library=str(library),
    )
    found = steady(setup, run_incast(setup))
    assert found.utilisation > 0.95
    assert 0.9 <= found.least <= found.most <= 1.1
    # The library itself is a plugin as well, kept by its content.
    settings = CongestionSettings(
        plugin_name="aimd.so", plugin=np.frombuffer(library.read_bytes(), np.uint8).copy()
    )
    assert of_library(library_for(settings)) == algorithm


@pytest.mark.parametrize(
    ("sentence", "source", "words"),
    [
        (
            "the compiler's words are told, with the user's file name",
            b"int x = y;\n",
            ("mine.cpp:1:9", "error"),
        ),
        (
            "a source that exports nothing",
            b"int x = 1;\n",
            ("does not export the function etloop_cc_plugin",),
        ),
        (
            "a table of another version",
            (
                b'#include "etloop_cc.h"\nstatic etloop_cc_algorithm t = {7};\n'
                b'extern "C" const etloop_cc_algorithm *etloop_cc_plugin(void) { return &t; }\n'
            ),
            ("made for version 7",),
        ),
        (
            "no table at all",
            (
                b'#include "etloop_cc.h"\n'
                b'extern "C" const etloop_cc_algorithm *etloop_cc_plugin(void) { return 0; }\n'
            ),
            ("returned no table",),
        ),
    ],
)
def test_a_bad_plugin_is_refused(sentence: str, source: bytes, words: tuple[str, ...], cache: Path) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        of_library(str(library_of("mine.cpp", source)))
    for word in words:
        assert word in str(caught.value), sentence


@pytest.mark.parametrize("ack_every", [7, 256])
@pytest.mark.parametrize("algorithm", ["dctcp", "swift", "nscc"])
def test_a_window_smaller_than_what_is_acknowledged_at_once_does_not_wait_for_a_timeout(
    algorithm: str, ack_every: int
) -> None:
    """Eight windows of a few packets each, of which `ack_every` alone would ask for none."""
    setup = Incast(
        8,
        algorithm,
        link_bps=10 * GBPS,
        last_ns=20 * MS,
        window_packets=256,
        ack_every=ack_every,
        mark_from_bytes=65_000,
        mark_all_bytes=65_001,
        mark_per_million=1_000_000,
    )
    outcome = run_incast(setup)
    assert outcome.flows["local_ack_timeout_err"].sum() == 0
    assert steady(setup, outcome).utilisation > 0.95


def test_what_is_no_plugin_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1\n")
    (tmp_path / "empty.cpp").write_text("")
    for name, words in (
        ("x.py", "is not a congestion"),
        ("empty.cpp", "is empty"),
        ("absent.so", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_plugin(tmp_path / name)


def test_an_agent_runs_sent_code_only_if_it_was_started_so() -> None:
    opened = []

    def open_engine(job: Assignment) -> NoReturn:
        opened.append(job)
        raise RuntimeError("opened")

    plugin = CongestionSettings(plugin_name="x.cpp", plugin=np.frombuffer(b"code", np.uint8))
    job = assignment(
        tuple((HandOp(CollectiveName.ALL_REDUCE, 1024),) for _ in range(2)),
        transport=replace(TRANSPORT, congestion=plugin),
    )
    settings = AgentSettings("tcp://127.0.0.1:1", "a")
    with pytest.raises(ConfigError, match=r"x.cpp: is code .*--allow-plugins"):
        open_allowed(settings, open_engine, job)
    assert opened == []
    with pytest.raises(RuntimeError, match="opened"):
        open_allowed(replace(settings, allow_plugins=True), open_engine, job)


@pytest.mark.parametrize("rate_bps", [100_000_000, 1_000_000_000, 5_000_000_000, 50_000_000_000])
def test_a_set_rate_is_kept_over_ten_milliseconds(rate_bps: int) -> None:
    """Up to half of the line rate; beside 1 %, one packet may fall to either side of a window's edge."""
    congestion = CongestionSettings(
        algorithm="dcqcn",
        parameters=(CongestionParameter("max_rate", float(rate_bps)),),
        series=SeriesSettings(10 * MS),
    )
    size = rate_bps // 8 * 3 // 10
    transport = replace(TRANSPORT, window_packets=256, ack_every_packets=8, congestion=congestion)
    job = assignment(
        ((HandOp("send", size, peer=1),), (HandOp("recv", size, peer=0),)),
        transport=transport,
        link_bps=100 * GBPS,
    )
    outcome = simulate(job, SimulationSettings())
    assert outcome.failure == ""
    rows = outcome.rates[outcome.rates["local_qpn"] == outcome.rates["local_qpn"][0]]
    whole = rows[rows["tx_packets"] < rows["tx_packets"][-1]]
    sent_bits = np.diff(whole["tx_packets"])[1:] * 4178 * 8
    assert len(sent_bits) >= 20
    window_bits = rate_bps // 100
    assert np.abs(sent_bits - window_bits).max() <= window_bits // 100 + 4178 * 8
