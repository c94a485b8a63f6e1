"""A lab from the command line: up, asked, used, down; nothing is left of it, however it ends; and a whole job through it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import RigError
from etloop.contract.protocol.lab import (
    FROM_LAB,
    TO_LAB,
    CountersRequest,
    LabCounters,
    LabRefused,
    LabStatus,
    SwitchPortStatus,
)
from etloop.lab.client import lab_down, lab_exec, lab_status, lab_up, set_link
from etloop.lab.plan import DEFAULT_BIND
from etloop.lab.request import LOG_FILE, LabOrder
from etloop.lab.status import status_text
from etloop.runtime.lab_directory import SOCKET_FILE
from etloop.runtime.sockets.unix_socket import connect
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

PATIENCE_S: Final = 100
TOPOLOGY: Final = """\
single:
  rate: 100Mbps
  ports: [a/p0, b/p0]
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


@dataclass(frozen=True, slots=True)
class Desk:
    """A directory of the test's own, also for what labs keep, so that they are nobody else's."""

    directory: Path

    def up(self, *, agents: bool = False, bind: str = DEFAULT_BIND) -> LabStatus:
        return lab_up(LabOrder("lab", TOPOLOGY, "topology.yaml", measure=False, agents=agents, bind=bind))

    def status(self) -> LabStatus:
        return lab_status("lab")

    def ports(self) -> tuple[SwitchPortStatus, ...]:
        return self.status().counters.switches[0].ports

    def etloop(self, *words: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "etloop.cli.main", *words],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield Desk(tmp_path)
    if (tmp_path / f"etloop-{os.getuid()}" / "lab-lab").exists():
        lab_down("lab")


def network_namespaces() -> set[int]:
    """Of every process of this machine, by inode."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(entry.stat().st_ino)
        except OSError:
            continue
    return found


def namespaces_of(status: LabStatus) -> set[int]:
    lab = Path("/proc", str(status.pid), "fd")
    return {(lab / str(descriptor)).stat().st_ino for descriptor in status.namespaces.values()}


@contextmanager
def watched(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def has_ended(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PATIENCE_S)[0])


def test_a_lab_comes_up_answers_runs_commands_and_goes(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    status = desk.up()
    assert [agent.name for agent in status.agents] == ["a", "b"]
    assert not status.within_capacity
    assert "not measured, so it is unknown whether it sustains its rates" in status_text(status)
    inside = "import socket; print(sorted(name for _, name in socket.if_nameindex()))"
    assert lab_exec("lab", "a", (sys.executable, "-c", inside)) == 0
    seen = capfd.readouterr().out
    assert "'p0'" in seen
    assert "sw0" not in seen
    assert lab_exec("lab", "b", ("sh", "-c", "exit 7")) == 7
    assert lab_exec("lab", "b", ("no-such-command",)) == 127
    with pytest.raises(RigError, match='the lab has no agent "z"; choose one of a, b'):
        lab_exec("lab", "z", ("true",))
    with pytest.raises(RigError, match='a lab named "lab" is already up; take it down'):
        desk.up()
    with watched(status.pid) as lab:
        assert lab_down("lab")
        assert has_ended(lab)
    assert not Path(status.directory).exists()
    with pytest.raises(RigError, match='no lab named "lab" is up; start one'):
        desk.status()


def test_agents_of_two_labs_do_not_look_for_one_controller_by_one_name(desk: Desk) -> None:
    """The controller would take an agent of each, and a run would go through both switches, or neither."""
    (desk.directory / "t.yaml").write_text(TOPOLOGY)
    (desk.directory / "other.yaml").write_text(TOPOLOGY.replace("a/p0, b/p0", "c/p0, d/p0"))
    desk.up(agents=True)
    second = ("lab", "up", "t.yaml", "--agents", "--unmeasured", "--name", "second")
    refused = desk.etloop(*second, expected=65)
    assert refused.stderr.startswith(
        f'etloop: lab: lab "lab" is up, and its agents a, b also connect to a controller at {DEFAULT_BIND}; '
        "take it down (etloop lab down --name lab), or give this one another --bind"
    )
    for words in ((*second, "--bind", "tcp://127.0.0.1:7421"), (*second[:2], "other.yaml", *second[3:])):
        desk.etloop(*words)
        assert lab_down("second")


def test_a_run_through_a_lab_that_is_down_waits_for_nobody(desk: Desk) -> None:
    (desk.directory / "t.yaml").write_text(TOPOLOGY)
    (desk.directory / "s.yaml").write_text("workload: {trace: job}\n")
    desk.etloop("synth", "job", "--tp", "2", "--dp", "1", "--pp", "1", "--no-experts")
    desk.etloop("lab", "up", "t.yaml", "--unmeasured", "--rig-out", "rig.yaml")
    assert lab_down("lab")
    refused = desk.etloop("run", "s.yaml", "--rig", "rig.yaml", "--out", "run", expected=65)
    assert refused.stderr.startswith(
        'etloop: lab: no lab named "lab" is up; bring it up with its agents: etloop lab up TOPOLOGY --agents --name lab'
    )


def test_frames_cross_the_switch_and_its_links_obey(desk: Desk) -> None:
    desk.up()
    send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('198.18.2.1', 9))"
    lab_exec("lab", "a", (sys.executable, "-c", send))
    ports = desk.ports()
    assert ports[0].counters["rx_packets"] == 1
    assert ports[1].counters["tx_packets"] == 1
    set_link("lab", "switch/1", up=False)
    lab_exec("lab", "a", (sys.executable, "-c", send))
    assert desk.ports()[0].counters["no_route_packets"] == 1
    printed = desk.status()
    assert [port.up for port in printed.counters.switches[0].ports] == [True, False]
    assert "\ndown: switch/1\n" in status_text(printed)
    set_link("lab", "b/p0", up=True)
    assert "down:" not in status_text(desk.status())
    known = "give a port of a switch or of the rig, such as a/p0, b/p0, switch/0, switch/1"
    with pytest.raises(RigError, match=f'no port "switch/9" exists; {known}'):
        set_link("lab", "switch/9", up=False)


IPV6: Final = """\
switches: [{name: switch}]
attach:
  - {port: a/p0, to: switch, rate: 100Mbps, addresses: "fd00:1::1-fd00:1::2"}
  - {port: b/p0, to: switch, rate: 100Mbps, addresses: "fd00:2::1"}
"""


def test_ipv6_addresses_are_at_work_at_once_and_hosts_say_nothing_of_themselves(
    desk: Desk, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither do they look for others of their address, nor for routers, nor give themselves one more."""
    lab_up(LabOrder("lab", IPV6, "topology.yaml", measure=False))
    send = "import socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('fd00:1::2', 0))"
    assert lab_exec("lab", "a", (sys.executable, "-c", f"{send}; s.sendto(b'x', ('fd00:2::1', 9))")) == 0
    reported = "Neighbor|Router|Redirect"
    script = (
        f"cat /proc/net/if_inet6 /proc/net/snmp6 | grep -E 'p0$|Icmp6Out({reported})[SA].*[^0\t ]0*$' || true"
    )
    for agent, own in (("a", 2), ("b", 1)):
        lab_exec("lab", agent, ("sh", "-c", script))
        printed = capfd.readouterr().out.split("\n")[:-1]
        assert len(printed) == own, printed
        assert not any(line.startswith("fe80") for line in printed)


def test_a_lab_that_hangs_is_taken_down_like_any_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    status = desk.up(agents=True)
    monkeypatch.setattr("etloop.lab.client.RESPONSE_TIMEOUT_S", 1)
    os.kill(status.pid, signal.SIGSTOP)
    with pytest.raises(RigError, match="it has not answered for 1 s; take it down"):
        desk.status()
    with watched(status.pid) as lab:
        assert lab_down("lab")
        assert has_ended(lab)
    assert not Path(status.directory).exists()


def test_a_lab_that_ends_while_somebody_is_connected_says_nothing_of_it(desk: Desk) -> None:
    status = desk.up()
    directory = Path(status.directory)
    with watched(status.pid) as lab, connect(directory / SOCKET_FILE, PATIENCE_S) as line:
        line.sendall(TO_LAB.encode(CountersRequest()))
        assert line.recv(1 << 16)
        os.kill(status.pid, signal.SIGTERM)
        assert has_ended(lab)
    assert (directory / LOG_FILE).read_text() == ""


def test_a_killed_lab_leaves_no_process_and_no_namespace(desk: Desk) -> None:
    status = desk.up(agents=True)
    agents = [int(printed.removeprefix("running, process ")) for printed in status.processes.values()]
    namespaces = namespaces_of(status)
    assert len(namespaces) == 2
    use = "from etloop.lab.client import lab_exec; lab_exec('lab', 'a', ('sleep', '1000'))"
    used = subprocess.Popen([sys.executable, "-c", use], env={**os.environ, "PYTHONPATH": str(ROOT)})
    with watched(agents[0]) as first, watched(agents[1]) as second, watched(status.pid) as lab:
        os.kill(status.pid, signal.SIGKILL)
        assert has_ended(lab)
        assert has_ended(first)
        assert has_ended(second)
    used.wait(PATIENCE_S)
    assert not namespaces & network_namespaces()
    with pytest.raises(RigError, match="its process was killed"):
        desk.status()
    assert not lab_down("lab"), "it was not up any more"
    assert not Path(status.directory).exists()


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_lab_with_an_owner_ends_with_it_and_leaves_nothing(desk: Desk) -> None:
    order = f"LabOrder('lab', {TOPOLOGY!r}, 'topology.yaml', measure=False, agents=True, owner=os.getpid())"
    make = (
        "import os, signal\nfrom etloop.lab.client import lab_up\nfrom etloop.lab.request import LabOrder\n"
        f"print(lab_up({order}).pid, flush=True)\nsignal.pause()"
    )
    with started(make) as owner:
        assert owner.stdout is not None
        with watched(int(owner.stdout.readline())) as lab:
            namespaces = namespaces_of(desk.status())
            owner.kill()
            assert has_ended(lab)
    assert not namespaces & network_namespaces()
    assert not list(desk.directory.glob("etloop-*/*"))


def lab_processes(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"etloop.lab.process" in words and str(directory).encode() in words:
                found.append(int(entry.parent.name))
    return found


def test_a_lab_whose_maker_is_killed_meanwhile_does_not_stay(desk: Desk) -> None:
    order = f"LabOrder('lab', {TOPOLOGY!r}, 'topology.yaml')"
    make = (
        "from etloop.lab.client import lab_up\nfrom etloop.lab.request import LabOrder\n"
        f"lab_up({order})\nraise SystemExit('too late')"
    )
    directory = desk.directory / f"etloop-{os.getuid()}" / "lab-lab"
    with started(make) as maker:
        while not lab_processes(directory) and maker.poll() is None:
            pass
        maker.kill()
    assert maker.returncode == -signal.SIGKILL
    while processes := lab_processes(directory):  # it forks once
        with suppress(ProcessLookupError), watched(processes[0]) as lab:
            assert has_ended(lab)
    assert not directory.exists()


STRANGE: Final = {
    "nonsense": "not a message: ",
    "{}": "not a message: expected a list of version, name and fields",
    '[1, "StatusRequest", {}]': "the peer speaks protocol 1, this side 3; take the lab down (etloop lab down)",
    '[3, "RiddleRequest", {}]': 'a lab\'s client does not send "RiddleRequest"',
    '[3, "LinkRequest", {"port": 3}]': "LinkRequest.port: expected text, got 3; LinkRequest.up: is missing",
    '[3, "CountersRequest", {"every_ms": "x"}]': 'CountersRequest.every_ms: expected an integer, got "x"',
    '[3, "CountersRequest", {"every_ms": -1}]': "expected an integer of 0 to 86400000, got -1",
    "[" * 4000: "not a message: ",
}


def test_questions_that_are_none_are_answered_as_such(desk: Desk) -> None:
    status = desk.up()
    path = str(Path(status.directory, "lab.sock"))
    with socket.socket(socket.AF_UNIX) as line, line.makefile("rb") as answers:
        line.settimeout(PATIENCE_S)
        line.connect(path)
        for asked, expected in STRANGE.items():
            line.sendall(asked.encode() + b"\n")
            refused = FROM_LAB.decode(answers.readline())
            assert isinstance(refused, LabRefused), asked
            assert expected in refused.what
        line.sendall(TO_LAB.encode(CountersRequest(every_ms=10)))
        times = []
        for _ in range(3):
            counters = FROM_LAB.decode(answers.readline())
            assert isinstance(counters, LabCounters)
            times.append(counters.at_ns)
        assert times[0] < times[1] < times[2]
    with socket.socket(socket.AF_UNIX) as flood:
        flood.connect(path)
        with suppress(OSError):
            flood.sendall(b"x" * 100_000)
    assert desk.status().pid == status.pid, "a line without end harms nobody else"


@pytest.mark.parametrize(
    ("what", "text", "words", "error"),
    [
        ("no network", "single: {}\n", (), "list the rig's ports on the switch"),
        ("a controller elsewhere", TOPOLOGY, ("--bind", "tcp://10.0.0.1:1"), "loopback address of this host"),
        ("no file", "", (), "cannot be read"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is(
    desk: Desk, what: str, text: str, words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = desk.directory / "topology.yaml"
    if text:
        path.write_text(text)
    assert main(["lab", "up", str(path), "--unmeasured", *words]) == 65
    assert error in capsys.readouterr().err
    assert not list(desk.directory.glob("etloop-*/lab-*"))


def test_a_job_runs_through_a_lab_and_its_switch_carries_every_byte(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    bind = free_endpoint()
    (desk.directory / "topology.yaml").write_text(TOPOLOGY)
    up = ("lab", "up", str(desk.directory / "topology.yaml"), "--unmeasured", "--agents", "--bind", bind)
    assert main([*up, "--rig-out", str(desk.directory / "rig.yaml")]) == 0
    assert "agent a: running" in capsys.readouterr().out
    scenario = "workload: {trace: none}\ntransport: {timeout_floor: 500ms}\nlimits: {gather_timeout: 60s}\n"
    (desk.directory / "scenario.yaml").write_text(scenario)
    done = desk.etloop(
        *("collective", "all_reduce", "--rig", "rig.yaml", "--scenario", "scenario.yaml", "--ranks", "2"),
        *("-b", "256K", "-e", "256K", "-n", "1", "-w", "0", "--json", "-"),
    )
    (test,) = json.loads(done.stdout)["tests"]
    assert test["errors"] == []
    (row,) = test["results"]
    counters = desk.status().counters
    carried = sum(port.counters["rx_bytes"] for port in counters.switches[0].ports)
    assert carried > row["etloop"]["fabric_bytes"] > 0
    assert counters.soft_switch.overload_frames == 0
