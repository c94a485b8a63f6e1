"""Five flows over uplinks of 400 and 100 Gb/s: recycled entropy values take the faster one."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.prepare import InputFile, PrepareOptions, RunInputs, prepare
from tests.measure.simulators import twin_times

SWITCH = "preset: lossy, trimming: {size: 84B, dscp: 50}, maps: {dscp_to_class: {50: 6}}"
FLOW_BYTES = 4_000_000
IDEAL_US = 5 * FLOW_BYTES * 8 / 500e3
"""All flows over both uplinks."""


def completion_us(place: Path, kind: str, entropy: str) -> float:
    hosts = [f"{{port: a{host}/p, to: l{host // 5}, rate: 100Gbps, delay: 1us}}" for host in range(10)]
    links = [
        f"{{from: l{leaf}/u{spine}, to: s{spine}/d{leaf}, rate: {rate}Gbps, delay: 1us}}"
        for spine, rate in ((0, 400), (1, 100))
        for leaf in (0, 1)
    ]
    switches = [f"{{name: {name}, {SWITCH}}}" for name in ("l0", "l1", "s0", "s1")]
    topology = InputFile(
        place / "t.yaml",
        f"switches: [{', '.join(switches)}]\nlinks: [{', '.join(links)}]\nattach: [{', '.join(hosts)}]\n".encode(),
    )
    rows = [f"{host},{host + 5},{FLOW_BYTES},0" for host in range(5)]
    (place / "flows.csv").write_text("\n".join(["from,to,bytes,start_ns", *rows]) + "\n")
    scenario = InputFile(
        place / "s.yaml",
        (
            "workload: {flows: {file: flows.csv, hosts: 10, processes: 1}}\ncollectives: {shaping: plain}\n"
            f"transport: {{kind: {kind}, cc: {{algorithm: nscc}}, ack: {{dscp: 48}}, "
            f"trimming: {{dscp: 50}}, {kind}: {{entropy: {entropy}}}}}\n"
        ).encode(),
    )
    inputs = RunInputs(scenario, derived_rig(topology), topology, TWIN_ID)
    return twin_times(prepare(inputs, PrepareOptions(keeps_case=False)))["last"]


@pytest.mark.parametrize("kind", ["mrc", "uet"])
def test_recycled_values_take_the_faster_uplink(kind: str, tmp_path: Path) -> None:
    assert completion_us(tmp_path, kind, "recycled") < 1.6 * IDEAL_US
    assert completion_us(tmp_path, kind, "rotation") > 2 * IDEAL_US
