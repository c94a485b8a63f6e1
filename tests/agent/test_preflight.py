"""What preflight says of hosts good and bad, and what the agent's command line refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etloop.agent.cli import main
from etloop.agent.preflight import HostFacts, check_host, text
from etloop.contract.base.errors import ExitCode, Severity
from etloop.contract.model.capabilities import Capabilities, Interface, RoceDevice

GOOD = HostFacts(
    Capabilities(
        cores=8,
        receive_buffer_bytes=64 << 20,
        udp_segmentation=True,
        udp_coalescing=True,
        clock_source="tsc",
        interfaces=(Interface("eth1", ("10.0.0.1",), 100_000_000_000, 9000, "mlx5_core", up=True),),
        governor="performance",
        ptp_clocks=("ptp0 mlx5_ptp",),
        privileges=("CAP_NET_RAW",),
        backends=("udp", "packet", "xdp", "verbs"),
    ),
    open_files=1 << 20,
    locked_bytes=-1,
    realtime=True,
)
NARROW = replace(GOOD.host.interfaces[0], mtu_bytes=1500)


def good_but(facts: HostFacts = GOOD, **changes: Any) -> HostFacts:
    return replace(facts, host=replace(facts.host, **changes))


POOR = {
    "one core": (good_but(cores=1), "cores", "give the agent two cores or more"),
    "small buffers": (
        good_but(receive_buffer_bytes=212_992),
        "receive buffer limit",
        "sysctl -w net.core.rmem_max=67108864, or give the agent CAP_NET_ADMIN",
    ),
    "an unknown limit": (good_but(receive_buffer_bytes=0), "receive buffer limit", "sysctl -w"),
    "no GSO": (good_but(udp_segmentation=False), "UDP segmentation offload (GSO)", "Linux 4.18"),
    "no GRO": (good_but(udp_coalescing=False), "UDP receive offload (GRO)", "Linux 5.0"),
    "few files": (replace(GOOD, open_files=1024), "open files limit", "ulimit -Hn 65536"),
    "a sleepy governor": (
        good_but(governor="powersave"),
        "frequency governor",
        "cpupower frequency-set -g performance",
    ),
    "small frames": (
        good_but(interfaces=(NARROW,)),
        "MTU of eth1",
        "ip link set dev eth1 mtu 4160 and its peer likewise, or transport: {path_mtu: 1024} in scenarios on it",
    ),
    "tiny frames": (
        good_but(interfaces=(replace(NARROW, mtu_bytes=300),)),
        "MTU of eth1",
        "transport: {path_mtu: 256}",
    ),
    "a card that takes RoCE": (
        good_but(roce_devices=(RoceDevice("mlx5_0", "eth1", "mlx5_core", "0000:3b:00.0", "ACTIVE", 2),)),
        "RoCE in hardware",
        "devlink dev param set pci/0000:3b:00.0 name enable_roce value false cmode driverinit",
    ),
    "software that takes RoCE": (
        good_but(roce_devices=(RoceDevice("rxe0", "eth1", "", "", "ACTIVE", 1),)),
        "RoCE in hardware",
        "use it with backend: verbs in the rig; for other backends: rdma link delete rxe0",
    ),
    "no clock that PTP steers": (good_but(ptp_clocks=()), "PTP clocks", "not needed"),
    "no privileges": (good_but(privileges=()), "privileges", "not needed for UDP ports"),
    "no frames of our own": (good_but(backends=("udp", "xdp", "verbs")), "packet ports", "CAP_NET_RAW"),
    "no AF_XDP": (good_but(backends=("udp", "packet", "verbs")), "xdp ports", "Linux 6.6"),
    "no network card to use": (
        good_but(backends=("udp", "packet", "xdp")),
        "verbs ports",
        "libibverbs1",
    ),
    "little memory to lock": (replace(GOOD, locked_bytes=8 << 20), "locked memory limit", "ulimit -l 65536"),
    "no real-time threads": (replace(GOOD, realtime=False), "real-time threads", "LimitRTPRIO=10"),
    "a slow clock": (good_but(clock_source="hpet"), "clock source", "stable TSC"),
}


def test_a_good_host_has_nothing_to_fix() -> None:
    assert {check.severity for check in check_host(GOOD)} == {Severity.OK}
    assert check_host(replace(GOOD, open_files=-1)) == tuple(
        replace(check, found="-1") if check.what == "open files limit" else check
        for check in check_host(GOOD)
    )


@pytest.mark.parametrize(("facts", "what", "remedy"), POOR.values(), ids=POOR.keys())
def test_a_poor_host_is_told_how_to_fix_it(facts: HostFacts, what: str, remedy: str) -> None:
    (poor,) = [check for check in check_host(facts) if check.severity is not Severity.OK]
    assert poor.what == what
    assert remedy in poor.remedy
    assert f"-> {poor.remedy}" in text(check_host(facts))


@pytest.mark.parametrize(
    ("device", "found", "remedy"),
    [
        (RoceDevice("rxe0", "eth0", "", "", "DOWN", 1), "port DOWN, 1 RoCEv2 addresses", "its port is DOWN"),
        (
            RoceDevice("rxe0", "eth0", "", "", "ACTIVE", 0),
            "port ACTIVE, 0 RoCEv2 addresses",
            "has no address",
        ),
    ],
)
def test_a_card_that_cannot_be_used_is_told_what_it_lacks(
    device: RoceDevice, found: str, remedy: str
) -> None:
    facts = good_but(roce_devices=(device,), backends=("udp", "packet", "xdp"))
    poor = {check.what: check for check in check_host(facts) if check.severity is not Severity.OK}
    assert poor["RoCE in hardware"].severity is Severity.ERROR
    assert poor["RDMA device rxe0"].found == found
    assert poor["RDMA device rxe0"].remedy.startswith("ip link set dev eth0 up, and give it an address: ")
    assert remedy in poor["RDMA device rxe0"].remedy


def test_memory_is_for_those_to_lock_who_have_a_card_or_the_right() -> None:
    poor = replace(GOOD, locked_bytes=8 << 20)
    assert "locked memory limit" not in {
        check.what for check in check_host(good_but(poor, backends=("udp",)))
    }
    assert {
        check.severity for check in check_host(good_but(poor, privileges=("CAP_NET_RAW", "CAP_IPC_LOCK")))
    } == {Severity.OK}


def test_preflight_speaks_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--json"]) == ExitCode.PASS
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "etloop-preflight/1"
    of_every_host = {check.what for check in check_host(good_but(interfaces=(), backends=()))}
    assert of_every_host <= {check["what"] for check in report["checks"]}


def test_an_interface_that_is_down_or_has_no_address_needs_no_fixing() -> None:
    idle = (replace(NARROW, up=False), replace(NARROW, addresses=()))
    assert {check.severity for check in check_host(good_but(interfaces=idle))} == {Severity.OK}


def test_keygen_writes_a_pair_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["keygen", "--out", str(tmp_path / "keys"), "--name", "a"]
    assert main(arguments) == ExitCode.PASS
    assert (tmp_path / "keys" / "a.key_secret").stat().st_mode & 0o777 == 0o600
    assert main(arguments) == ExitCode.PREPARATION_FAILED
    assert "a.key: already exists; remove it to make a new pair" in capsys.readouterr().err


REFUSED = {
    "one key of two": (["--key", "x"], "encryption needs both keys, got one"),
    "another host without keys": (
        ["--controller", "tcp://10.0.0.1:5555"],
        "but neither keys nor --insecure are given",
    ),
    "no endpoint": (
        ["--controller", "10.0.0.1", "--insecure"],
        "write the controller's address as tcp://HOST:PORT",
    ),
    "no such key": (["--key", "x", "--controller-key", "y"], "cannot be read"),
}


@pytest.mark.parametrize(("options", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_command_refuses(
    options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--controller", "tcp://127.0.0.1:1", *options]) == ExitCode.PREPARATION_FAILED
    assert expected in capsys.readouterr().err
