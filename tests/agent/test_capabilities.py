"""What hosts say they can do, how it is read, and which runs are refused because of it."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.agent.host_fit import misfits
from etloop.agent.host_reading import read_capabilities
from etloop.agent.own_prefixes import own_prefixes
from etloop.agent.service import open_native_engine
from etloop.contract.base.errors import RigError
from etloop.contract.model.assignment import PortBackend, PortSettings, SegmentSettings
from etloop.contract.model.capabilities import UNKNOWN, Capabilities, Interface, RoceDevice
from etloop.contract.model.transport import CreditSettings, MultipathSettings, UetSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.contract.protocol.messages import Hello, Welcome
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.mqtt.statuses import agent_status
from etloop.controller.session.roster import Roster
from tests.support.control_plane.control_plane_by_hand import ring_assignments

ADDRESS = "10.9.8.7"
ETH1 = Interface("eth1", (ADDRESS,), 100_000_000_000, 9000, "mlx5_core", up=True)
HOST = Capabilities(interfaces=(ETH1,), local_networks=("127.0.0.0/8",), complete=True)


# ---- what is read


def tree(root: Path, **files: str) -> Path:
    """Files below `root`; "__" stands for a slash, "DOT" for a dot, "COLON" for a colon."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".").replace("COLON", ":")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_host_is_read_from_its_files(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:3a/0000:3b:00.0"
    device.mkdir(parents=True)
    (tmp_path / "sys/drivers/mlx5_core").mkdir(parents=True)
    (device / "driver").symlink_to(tmp_path / "sys/drivers/mlx5_core")
    tree(
        tmp_path,
        sys__class__net__eth1__mtu="9000\n",
        sys__class__net__eth1__speed="100000\n",
        sys__class__net__eth1__flags="0x1003\n",
        sys__class__net__eth2__mtu="1500\n",
        sys__class__net__eth2__speed="-1\n",
        sys__class__net__eth2__flags="0x1002\n",
        sys__class__infiniband__mlx5_0__ports__1__gid_attrs__types__0="IB/RoCE v1\n",
        sys__class__infiniband__mlx5_0__ports__1__gid_attrs__types__1="RoCE v2\n",
        sys__class__infiniband__mlx5_0__ports__1__gid_attrs__ndevs__0="eth1\n",
        sys__class__infiniband__mlx5_0__ports__1__gids__1="0000:0000:0000:0000:0000:ffff:0a09:0807\n",
        sys__class__infiniband__mlx5_0__ports__1__state="4: ACTIVE\n",
        sys__class__infiniband__mlx5_0__fw_ver="28.41.1000\n",
        sys__class__infiniband__mlx5_1__ports__1__gid_attrs__ndevs__0="eth2\n",
        sys__class__ptp__ptp0__clock_name="mlx5_ptp\n",
        sys__devices__system__clocksource__clocksource0__current_clocksource="tsc\n",
        sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="powersave\n",
        proc__sys__net__core__rmem_max="212992\n",
        proc__self__status="Name:\tx\nCapEff:\t0000000000802000\n",
        proc__net__fib_trie="Local:\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 10.9.8.7\n        /32 host LOCAL\n",
        proc__net__if_inet6="fd000000000000000000000000000002 02 40 00 80     eth1\n",
    )
    for name in ("eth1", "eth2"):
        (tmp_path / f"sys/class/net/{name}/device").symlink_to(device)
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to(device)
    found = read_capabilities(tmp_path)
    assert found.interfaces == (
        Interface("eth1", ("fd00::2",), 100_000_000_000, 9000, "mlx5_core", up=True),
        Interface("eth2", (), 0, 1500, "mlx5_core", up=False),
    )
    # The second card has its RoCE switched off, and so no RoCE address.
    assert found.roce_devices == (
        RoceDevice("mlx5_0", "eth1", "mlx5_core", "0000:3b:00.0", "ACTIVE", 1, "28.41.1000"),
    )
    assert found.ptp_clocks == ("ptp0 mlx5_ptp",)
    assert (found.clock_source, found.governor) == ("tsc", "powersave")
    assert found.privileges == ("CAP_NET_RAW", "CAP_SYS_NICE")
    assert (found.receive_buffer_bytes, found.local_networks) == (212992, ("127.0.0.0/8",))
    assert found.complete


ALL_PRIVILEGES = "CapEff: 0000008000203000\n"  # CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, CAP_BPF
PROTOCOLS = "protocol  size sockets\nXDP       1088      0\nUDP       1344      1\n"


@pytest.mark.parametrize(
    ("sentence", "status", "release", "protocols", "expected"),
    [
        ("all of it is there", ALL_PRIVILEGES, "6.18.5-x", PROTOCOLS, ("udp", "packet", "xdp")),
        ("nobody gave privileges", "CapEff: 0\n", "6.18.5", PROTOCOLS, ("udp",)),
        ("frames, but no programs", "CapEff: 2000\n", "6.18.5", PROTOCOLS, ("udp", "packet")),
        ("a kernel before multi-buffer", ALL_PRIVILEGES, "6.5.0", PROTOCOLS, ("udp", "packet")),
        ("a kernel with a later number", ALL_PRIVILEGES, "10.0", PROTOCOLS, ("udp", "packet", "xdp")),
        ("a kernel without AF_XDP", ALL_PRIVILEGES, "6.18.5", "UDP 1344\n", ("udp", "packet")),
        ("a kernel that does not say", ALL_PRIVILEGES, "", "", ("udp", "packet")),
    ],
)
def test_a_host_says_which_ports_it_can_have(
    tmp_path: Path, sentence: str, status: str, release: str, protocols: str, expected: tuple[str, ...]
) -> None:
    root = tree(
        tmp_path,
        proc__self__status=status,
        proc__sys__kernel__osrelease=release,
        proc__net__protocols=protocols,
    )
    assert read_capabilities(root).backends == expected, sentence


CARD = {
    "sys__class__infiniband__mlx5_0__ports__1__gid_attrs__types__1": "RoCE v2\n",
    "sys__class__infiniband__mlx5_0__ports__1__gid_attrs__ndevs__1": "eth1\n",
    "sys__class__infiniband__mlx5_0__ports__1__gids__1": "0000:0000:0000:0000:0000:ffff:0a09:0807\n",
}
DOWN = {"sys__class__infiniband__mlx5_0__ports__1__state": "1: DOWN\n"}
NO_ADDRESS = {
    "sys__class__infiniband__mlx5_0__ports__1__gids__1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
}


@pytest.mark.parametrize(
    ("sentence", "files", "expected"),
    [
        ("Debian's place", CARD | {"usr__lib__x86_64-linux-gnu__libibverbsDOTsoDOT1": ""}, True),
        ("its port is down", CARD | DOWN | {"usr__lib64__libibverbsDOTsoDOT1": ""}, False),
        ("it has no address", CARD | NO_ADDRESS | {"usr__lib64__libibverbsDOTsoDOT1": ""}, False),
        ("Fedora's place", CARD | {"usr__lib64__libibverbsDOTsoDOT1": ""}, True),
        ("a card and no library", CARD, False),
        ("a library and no card", {"usr__lib64__libibverbsDOTsoDOT1": ""}, False),
    ],
)
def test_a_card_and_its_library_make_a_verbs_port(
    tmp_path: Path, sentence: str, files: dict[str, str], expected: bool
) -> None:
    assert ("verbs" in read_capabilities(tree(tmp_path, **files)).backends) == expected, sentence


ODD = {
    "nothing at all": {},
    "an interface that says nothing": {"sys__class__net__eth1__x": ""},
    "words for numbers": {
        "sys__class__net__eth1__mtu": "big",
        "sys__class__net__eth1__flags": "0xzz",
        "proc__sys__net__core__rmem_max": "²",
        "proc__self__status": "CapEff: none",
        "proc__net__fib_trie": "|-- 1.2.3.4.5\n /99 host LOCAL\n|-- 300.1.1.1\n /8 host LOCAL\n",
        "proc__net__if_inet6": "zz\n",
    },
}


@pytest.mark.parametrize("files", ODD.values(), ids=ODD.keys())
def test_a_host_that_does_not_tell_is_not_known_and_never_complete(
    tmp_path: Path, files: dict[str, str]
) -> None:
    found = read_capabilities(tree(tmp_path, **files))
    assert not found.complete
    assert found.has_address(ADDRESS)
    assert {each.mtu_bytes for each in found.interfaces} <= {0}


def test_this_host_has_the_addresses_it_can_bind() -> None:
    found = read_capabilities()
    for address, there in (("127.0.0.1", True), ("127.200.1.1", True), ("192.0.2.77", False)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
                bound = True
            except OSError:
                bound = False
        assert bound is there
        assert found.has_address(address) is (there or not found.complete)
    loopback = found.interface_of("127.0.0.1")
    assert loopback is not None
    assert loopback.mtu_bytes >= 1500


# ---- what is refused

PORT = replace(ring_assignments("a")["a"].ports[0], udp_port=4791)
MLX5 = RoceDevice("mlx5_0", "eth1", "mlx5_core", "0000:3b:00.0")


def reported(
    host: Capabilities,
    path_mtu_bytes: int = 4096,
    port: PortSettings = PORT,
    addresses: tuple[str, ...] = (ADDRESS,),
) -> list[str]:
    assignment = ring_assignments("a")["a"]
    assignment = replace(
        assignment,
        ports=(replace(port, name="p0", addresses=addresses),),
        transport=replace(assignment.transport, path_mtu_bytes=path_mtu_bytes),
    )
    return [str(problem) for problem in misfits(assignment, host, "box")]


FITS = {
    "a host that fits": HOST,
    "just large enough frames": replace(HOST, interfaces=(replace(ETH1, mtu_bytes=4160),)),
    "a host that does not say what it has": UNKNOWN,
    "a host that does not say all it has": replace(HOST, interfaces=(), complete=False),
    "an address that is local without an interface": replace(
        HOST, interfaces=(), local_networks=("10.0.0.0/8",)
    ),
    "an RDMA device on another interface": replace(HOST, roce_devices=(replace(MLX5, interface="eth2"),)),
    "an RDMA device of software, whose socket is less particular than ours": replace(
        HOST, roce_devices=(RoceDevice("rxe0", "eth1", "", ""),)
    ),
}


@pytest.mark.parametrize("host", FITS.values(), ids=FITS.keys())
def test_a_host_that_fits_is_not_refused(host: Capabilities) -> None:
    assert reported(host) == []


MISFITS = {
    "an address that is elsewhere": (
        replace(HOST, interfaces=(replace(ETH1, addresses=("10.0.0.1",)),)),
        (
            "port p0: address 10.9.8.7 is not on box, which has 10.0.0.1 on eth1; "
            "on box: ip address add 10.9.8.7/24 dev INTERFACE; or correct the port's addresses in the rig"
        ),
    ),
    "frames that are too small": (
        replace(HOST, interfaces=(replace(ETH1, mtu_bytes=4159),)),
        (
            "port p0: interface eth1 has an MTU of 4159; a path MTU of 4096 needs 4160; "
            "on box: ip link set dev eth1 mtu 4160; or lower transport.path_mtu"
        ),
    ),
    "an interface that is switched off": (
        replace(HOST, interfaces=(replace(ETH1, up=False),)),
        "port p0: interface eth1 is down; on box: ip link set dev eth1 up",
    ),
    "a network card that takes RoCEv2 for itself": (
        replace(HOST, roce_devices=(MLX5,)),
        (
            "port p0: mlx5_0 receives UDP port 4791 of eth1 in hardware, so the port would receive no packets; "
            "on box: devlink dev param set pci/0000:3b:00.0 name enable_roce value false cmode driverinit && "
            "devlink dev reload pci/0000:3b:00.0, or give the port another udp_port in the rig; "
            "or `backend: verbs`, which uses it"
        ),
    ),
}


@pytest.mark.parametrize(("host", "expected"), MISFITS.values(), ids=MISFITS.keys())
def test_a_host_that_does_not_fit_is_refused_with_the_remedy(host: Capabilities, expected: str) -> None:
    assert reported(host) == [expected]


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (2, "addresses 10.9.8.0, 10.9.8.1 are"),
        (8, f"addresses {', '.join(f'10.9.8.{i}' for i in range(8))} are"),
        (200, f"addresses {', '.join(f'10.9.8.{i}' for i in range(8))} and 192 more are"),
    ],
)
def test_addresses_of_a_port_that_are_elsewhere_are_one_line(count: int, named: str) -> None:
    """With a wrong interface hundreds are wrong for one reason, and what the host has is the same for all."""
    elsewhere = replace(HOST, interfaces=(replace(ETH1, addresses=("10.0.0.1",)),))
    assert reported(elsewhere, addresses=tuple(f"10.9.8.{i}" for i in range(count))) == [
        (
            f"port p0: {named} not on box, which has 10.0.0.1 on eth1; "
            "on box: ip address add 10.9.8.0/24 dev INTERFACE, and so on; "
            "or correct the port's addresses in the rig"
        )
    ]


@pytest.mark.parametrize("port", [replace(PORT, udp_port=4792), replace(PORT, backend=PortBackend.VERBS)])
def test_a_port_that_does_not_want_what_the_network_card_takes_is_not_refused(port: PortSettings) -> None:
    assert reported(replace(HOST, roce_devices=(MLX5,)), port=port) == []


def test_longer_headers_need_larger_frames() -> None:
    """IPv6 has 40 bytes where IPv4 has 20."""
    six = "fd00::7"
    port = replace(PORT, name="p0", addresses=(ADDRESS, six))
    assignment = replace(ring_assignments("a")["a"], ports=(port,))
    assignment = replace(assignment, transport=replace(assignment.transport, path_mtu_bytes=4096))
    for mtu_bytes, fits in ((4179, False), (4180, True)):
        interface = replace(ETH1, addresses=(ADDRESS, six), mtu_bytes=mtu_bytes)
        found = misfits(assignment, replace(HOST, interfaces=(interface,)), "box")
        assert (not found) is fits
        assert all("a path MTU of 4096 needs 4180" in each.what for each in found)


LONGER = {
    "MRC has a header of four bytes more": (TransportKind.MRC, False, 4164),
    "UET has one of twenty more": (TransportKind.UET, False, 4180),
    "and four more where it asks for credit": (TransportKind.UET, True, 4184),
}


@pytest.mark.parametrize(("kind", "credit", "needed_bytes"), LONGER.values(), ids=LONGER.keys())
def test_transports_have_headers_of_their_own(kind: TransportKind, credit: bool, needed_bytes: int) -> None:
    assignment = replace(ring_assignments("a")["a"], ports=(replace(PORT, name="p0", addresses=(ADDRESS,)),))
    multipath = MultipathSettings(uet=UetSettings(credit=CreditSettings(granted=credit)))
    transport = replace(assignment.transport, path_mtu_bytes=4096, kind=kind, multipath=multipath)
    assignment = replace(assignment, transport=transport)
    for mtu_bytes in (needed_bytes - 1, needed_bytes):
        host = replace(HOST, interfaces=(replace(ETH1, mtu_bytes=mtu_bytes),))
        found = misfits(assignment, host, "box")
        assert [f"a path MTU of 4096 needs {needed_bytes}" in each.what for each in found] == [True] * (
            needed_bytes - mtu_bytes
        )


def test_packets_that_srv6_leads_have_a_header_more() -> None:
    six = "fd00::7"
    port = replace(PORT, name="p0", addresses=(six,), segments=SegmentSettings(0xFC000001, 0xD001, ()))
    assignment = replace(ring_assignments("a")["a"], ports=(port,))
    transport = replace(assignment.transport, path_mtu_bytes=4096, kind=TransportKind.MRC)
    assignment = replace(assignment, transport=transport)
    for mtu_bytes, fits in ((4223, False), (4224, True)):
        interface = replace(ETH1, addresses=(six,), mtu_bytes=mtu_bytes)
        found = misfits(assignment, replace(HOST, interfaces=(interface,)), "box")
        assert (not found) is fits
        assert all("a path MTU of 4096 needs 4224" in each.what for each in found)


def test_smaller_packets_fit_smaller_frames() -> None:
    assert reported(replace(HOST, interfaces=(replace(ETH1, mtu_bytes=1500),)), 1024) == []


def test_an_agent_looks_at_its_host_in_the_moment_in_which_it_is_given_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it told when it joined is long ago."""
    elsewhere = replace(HOST, interfaces=(replace(ETH1, up=False),))
    monkeypatch.setattr("etloop.agent.service.read_capabilities", lambda: elsewhere)
    assignment = ring_assignments("a")["a"]
    with pytest.raises(RigError, match="interface eth1 is down"):
        open_native_engine(replace(assignment, ports=(replace(PORT, addresses=(ADDRESS,)),)))


# ---- what is told


def test_what_changes_while_an_agent_waits_counts() -> None:
    roster = Roster(["a"], Welcome(1, 10))
    hello = Hello("a", "box", 1, {})
    roster.join(b"1", hello, 0)
    roster.join(b"1", replace(hello, capabilities=HOST), 5)
    member = roster.member("a")
    assert member is not None
    assert member.hello.capabilities == HOST


def test_the_inventory_says_what_a_host_can_do() -> None:
    hello = Hello("a", "box", 1, {}, 0, replace(HOST, roce_devices=(RoceDevice("rxe0", "eth1", "", ""),)))
    answer = agent_status(AgentPresence("a", hello, 1, 0, 5, None))
    assert answer.capabilities is not None
    assert answer.capabilities.roce_devices == ("rxe0/eth1",)
    assert answer.capabilities.interfaces[0].mtu_bytes == 9000
    assert agent_status(AgentPresence("a", Hello("a", "box", 1, {}), 1, 0, 5, None)).capabilities is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_an_exhausted_host_is_an_error_and_not_a_host_without_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tree(tmp_path, proc__net__fib_trie="", sys__class__net__eth1__mtu="9000")

    def fail(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(RigError, match="addresses and devices of this host: cannot be read"):
        read_capabilities(tmp_path)
    with pytest.raises(RigError, match="prefixes of this host's addresses: cannot be read"):
        own_prefixes()


def test_only_a_table_of_the_kernel_must_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, proc__net__if_inet6="", sys__class__net__eth1__speed="1000")
    bad, read_text = ["speed"], Path.read_text

    def read_or_fail(path: Path, **options: str) -> str:
        if path.name in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_text(path, **options)

    monkeypatch.setattr(Path, "read_text", read_or_fail)
    assert [interface.link_bps for interface in read_capabilities(tmp_path).interfaces] == [0]
    bad[0] = "if_inet6"
    with pytest.raises(RigError, match="cannot be read: Input/output error"):
        read_capabilities(tmp_path)
