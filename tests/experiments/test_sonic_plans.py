"""The kit of sonic-mgmt's plans (examples/sonic/kit): its cases pass on switches as the plans have them, and with one setting
broken the case for that setting fails and names it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT

KIT: Final = ROOT / "examples/sonic/kit"
DUT: Final = os.environ.get("ETLOOP_KIT_DUT", "twin")
PFC: Final = "PORT_QOS_MAP|Ethernet*|pfc_enable"
MAPS: Final = "DSCP_TO_TC_MAP"
WRED: Final = "WRED_PROFILE"
SPEED: Final = "PORT|Ethernet*|speed"
LOSS: Final = "show interfaces counters errors"
BROKEN: Final = {
    "RoCEv2-1-": ("switch: {maps: {dscp_to_class: {3: 0}}}", MAPS),
    "RoCEv2-2-": ("switch: {pfc: {enabled: false}}", PFC),
    "RoCEv2-3-": ("switch: {queues: {3: {ecn: {enabled: false}}}}", WRED),
    "RoCEv2-4a": ("switch: {groups: {3: {headroom: 0B}}}", "BUFFER_PG"),
    "RoCEv2-4b": ("switch: {queues: {3: {ecn: {kmin: 3MiB, kmax: 4MiB}}}}", WRED),
    "RoCEv2-5-": ("switch: {pfc: {enabled: false}}", PFC),
    "RoCEv2-6-": ("attach: {c/p0: {rate: 15Mbps}}", SPEED),
    "RoCEv2-7-": ("switch: {hash: [dst_ip]}", "SWITCH_HASH"),
    "RoCEv2-8-": ("switch: {balancing: ecmp}", "packet spray"),
    "RoCEv2-9-": ("switch: {queues: {0: {weight: 60}}}", "SCHEDULER"),
    "RoCEv2-10-": ("routing: {detection: 10s}", "ECMP group"),
    "RoCEv2-11-": ("switch: {maps: {dscp_to_class: {48: 0}}}", MAPS),
    "CCL-1-": ("attach: {b/p0: {rate: 40Mbps}}", SPEED),
    "CCL-2-": ("switch: {faults: [{chance: 1%}]}", LOSS),
    "CCL-3-": ("attach: {b/p0: {rate: 40Mbps}}", SPEED),
    "CCL-4-": ("switch: {queues: {3: {ecn: {enabled: false}}}}", WRED),
    "CCL-5-": ("attach: {a/p0: {rate: 20Mbps}}", SPEED),
    "CCL-6-": ("attach: {a/p0: {rate: 20Mbps}}", SPEED),
    "CCL-7-": ("switch: {faults: [{chance: 1%}]}", LOSS),
    "CCL-8-": ("switch: {balancing: ecmp}", "packet spray"),
    "CCL-9-": ("switch: {balancing: ecmp}", "packet spray"),
    "CCL-10-": ("switch: {faults: [{chance: 1%}]}", LOSS),
    "CCL-11-": ("switch: {faults: [{chance: 1%}]}", LOSS),
}
"""By the beginning of a case's name: what is broken, and what its failure has to name."""
QUICK: Final = ("RoCEv2-2-", "RoCEv2-3-")
"""Run everywhere; the others with ETLOOP_FULL=1, in a lab with ETLOOP_KIT_DUT=lab."""
cases = pytest.mark.parametrize(
    "case",
    [
        case
        if case in QUICK
        else pytest.param(
            case,
            marks=pytest.mark.skipif(
                os.environ.get("ETLOOP_FULL") != "1", reason="slow; ETLOOP_FULL=1 runs it"
            ),
        )
        for case in BROKEN
    ],
)


def run_kit(case: str, directory: Path, *options: str) -> str:
    """Run one case of the kit as its users do; return what it printed."""
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(KIT),
        str(KIT),
    )
    finished = subprocess.run(
        (
            *command,
            "-k",
            case,
            "-q",
            "-rA",
            "--tb=short",
            "--dut",
            DUT,
            "--basetemp",
            str(directory / "runs"),
            *options,
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode in (0, 1), finished.stdout + finished.stderr
    return finished.stdout


@cases
def test_a_case_passes_on_a_switch_as_the_plan_has_it(case: str, tmp_path: Path) -> None:
    printed = run_kit(case, tmp_path)
    assert "1 passed" in printed, printed
    assert "[Check 1][PASS]" in printed


@cases
def test_a_case_fails_and_names_the_setting_that_is_broken(case: str, tmp_path: Path) -> None:
    change, named = BROKEN[case]
    (tmp_path / "change.yaml").write_text(change)
    printed = run_kit(case, tmp_path, "--change", str(tmp_path / "change.yaml"))
    assert "1 failed" in printed, printed
    failures = [line for line in printed.splitlines() if line.startswith("[Check ") and "look at" in line]
    assert any(named in line for line in failures), printed


def test_every_case_of_the_kit_has_a_setting_that_breaks_it() -> None:
    listed = subprocess.run(
        (
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir",
            str(KIT),
            str(KIT),
            "--collect-only",
            "-q",
        ),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [line.partition("[")[2] for line in listed.splitlines() if "[" in line]
    assert len(names) == len(BROKEN) == 23
    assert all(sum(name.startswith(case) for name in names) == 1 for case in BROKEN), names
