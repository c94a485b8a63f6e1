"""Counters of Linux interfaces against the kernel's own: a veth pair in a namespace of the test's, with frames of the test's."""

from __future__ import annotations

import asyncio
import errno
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from etloop.contract.model.counters import CounterBatch, CounterFailure, CounterObject, FailureKind
from etloop.counters.readers import linux_process
from etloop.counters.readers.linux import LinuxCounters
from etloop.counters.readers.linux_process import read_links
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT

FRAMES: Final = 7
FRAME_BYTES: Final = 100
INSIDE: Final = """\
import socket, sys
sys.path.insert(0, sys.argv.pop(1))
from pyroute2 import IPRoute
from etloop.counters.readers.linux_process import main
with IPRoute() as route:
    route.link("add", ifname="v0", kind="veth", peer="v1")
    for name in ("v0", "v1"):
        # Neighbour discovery would be counted, too.
        open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w").write("1")
        route.link("set", index=route.link_lookup(ifname=name)[0], state="up")
    # The kernel lets frames out only when it has looked at both ends.
    while {route.link("get", ifname=name)[0].get_attr("IFLA_OPERSTATE") for name in ("v0", "v1")} != {"UP"}:
        pass
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as line:
    line.bind(("v0", 0))
    for _ in range(7):
        line.send(b"\\xff" * 6 + bytes(6) + b"\\x88\\xb5" + bytes(86))
open(sys.argv.pop(1), "w").write(open("/proc/net/dev").read())
sys.exit(main(sys.argv[1:]))
"""
"""Arguments: where the code is, where to put what the kernel says, interfaces. /proc/net/dev is of the namespace itself."""


async def once(reader: LinuxCounters) -> CounterBatch | CounterFailure:
    """One reading."""
    failure = await reader.open()
    try:
        return failure or await reader.read()
    finally:
        await reader.close()


@pytest.mark.e2e
@pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)
def test_a_veth_pair_counts_what_crossed_it(tmp_path: Path) -> None:
    printed = tmp_path / "dev"
    command = ("unshare", "--net", sys.executable, "-c", INSIDE, str(ROOT), str(printed))
    result = asyncio.run(once(LinuxCounters(command, ("v0", "v1", "nope"))))
    assert isinstance(result, CounterBatch), result
    found = {(one.object.name, one.counter): one.value for one in result.readings}
    assert {one.object.kind for one in result.readings} == {CounterObject.PORT}
    assert found["v0", "tx_packets"] == found["v1", "rx_packets"] == FRAMES
    assert found["v0", "tx_bytes_without_fcs"] == found["v1", "rx_bytes_without_fcs"] == FRAMES * FRAME_BYTES
    for line in printed.read_text().splitlines()[2:]:
        name, _, columns = line.partition(":")
        kernel = [int(column) for column in columns.split()]
        for counter, column in (
            ("rx_bytes_without_fcs", 0),
            ("rx_packets", 1),
            ("tx_bytes_without_fcs", 8),
            ("tx_packets", 9),
        ):
            assert name.strip() == "lo" or found[name.strip(), counter] == kernel[column], (name, counter)
    assert found["v0", "rx_packets"] == found["v1", "tx_packets"] == 0
    assert ("v0", "tx_bytes") not in found, "the kernel counts no check sequences"
    assert result.complaints == ("no interface nope on this host",)


def test_this_hosts_interfaces_are_read_without_rights_or_names() -> None:
    result = asyncio.run(once(LinuxCounters((), ())))
    assert isinstance(result, CounterBatch), result
    assert all(one.object.name != "lo" for one in result.readings)


@pytest.mark.parametrize(
    ("what", "command", "kind", "words"),
    [
        ("no such command", ("/nonexistent/ssh",), FailureKind.UNREACHABLE, "cannot start /nonexistent/ssh: No such file"),
        ("ends at once", ("false",), FailureKind.ENDED, "false ended without a message"),
        ("ends with a word", ("sh", "-c", "echo Permission denied >&2"), FailureKind.ENDED, "sh ended: Permission denied"),
        ("writes something else", ("sh", "-c", "read x; echo hello"), FailureKind.NONSENSE, "sh wrote Expecting value"),
        ("of another version", ("sh", "-c", "read x; echo '{}'"), FailureKind.NONSENSE, "not the output of version 1"),
        ("half a line", ("sh", "-c", "read x; printf '{'"), FailureKind.ENDED, "sh ended without a message"),
    ],
)  # fmt: skip
def test_a_command_that_does_not_read_is_told(
    what: str, command: tuple[str, ...], kind: FailureKind, words: str
) -> None:
    result = asyncio.run(once(LinuxCounters(command, ())))
    assert isinstance(result, CounterFailure), what
    assert result.kind is kind, what
    assert words in result.text


class _FailingRoute:
    """A netlink socket whose every request fails with one code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def link(self, *_: object, **__: object) -> Any:
        raise NetlinkError(self._code)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (errno.ENODEV, "no interface eth0 on this host"),
        (errno.ENOBUFS, "cannot read interface eth0: No buffer space available"),
        (errno.EPERM, "cannot read interface eth0: Operation not permitted"),
    ],
    ids=["ENODEV", "ENOBUFS", "EPERM"],
)
def test_an_interface_that_cannot_be_read_is_not_absent(code: int, complaint: str) -> None:
    complaints: list[str] = []
    assert read_links(_FailingRoute(code), ["eth0"], complaints) == {}
    assert complaints == [complaint]


def test_a_counter_unread_at_one_rdma_port_is_left_out_of_the_sum(tmp_path: Path) -> None:
    for number in (1, 2):
        port = tmp_path / "infiniband" / "mlx5_0" / "ports" / str(number)
        for name, text in (
            ("gid_attrs/ndevs/0", "eth0"),
            ("counters/port_xmit_data", "5"),
            ("hw_counters/lifespan", "10"),
        ):
            (port / name).parent.mkdir(parents=True, exist_ok=True)
            (port / name).write_text(text)
        (port / "hw_counters" / "np_cnp_sent").write_text("3")
    (port / "hw_counters" / "np_cnp_sent").write_text("not a number")
    assert linux_process.rdma_counters(tmp_path, "eth0") == {"port_xmit_data": 10}


def test_counters_that_a_driver_does_not_give_are_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    complaints: list[str] = []
    monkeypatch.setattr(linux_process, "IoctlEthtool", fail)
    assert linux_process.driver_counters("eth0", complaints) == {}
    assert complaints == ["cannot read the driver's counters of eth0: [Errno 24] Too many open files"]
