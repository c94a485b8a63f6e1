"""Known truths of switches, on real frames through a lab: shares, pauses, drops, marks, weights, and whatever is lost counted.

Hosts hand their whole load over in one burst, while the receiver holds the switch with a pause; the cards of the lab send it
at the rate of their links. What a switch does then follows from the model and the kernel's arrival stamps, not from how busy
this machine is.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pytest

from etloop.contract.base.errors import RigError
from etloop.contract.base.ip_address import ip_bytes
from etloop.contract.model.switch_presets import CNP_DSCP, ROCE_CLASS, ROCE_DSCP, preset
from etloop.contract.model.topology import (
    FOREVER_NS,
    Attachment,
    Marking,
    Routing,
    SwitchEnd,
    SwitchLink,
    SwitchPort,
    SwitchSettings,
    Topology,
)
from etloop.lab.capacity import open_in
from etloop.lab.namespaces import inside, new_namespace
from etloop.lab.plan import LabPlan, plan_lab
from etloop.lab.setup import LabPlace, lab_place
from etloop.traffic import _native
from etloop.traffic.soft_switch import SoftSnapshot, SoftSwitch

RATE_BPS: Final = 20_000_000
DELAY_NS: Final = 500
PORT: Final = 4791
PAYLOAD_BYTES: Final = 4096
FRAME_BYTES: Final = PAYLOAD_BYTES + 28 + 14 + 4
JOINED: Final = 15
UDP_SEGMENT: Final = 103
SO_RCVBUFFORCE: Final = 33
ECT: Final = 2
CE: Final = 3
MASK: Final = (1 << 64) - 1
PATIENCE_S: Final = 60
SMALL_BUFFER_BYTES: Final = 300_000
BURSTS: Final = 100 if os.environ.get("ETLOOP_FULL") == "1" else 8


NO_NAMESPACES: Final = (
    "this kernel gives no network namespaces" if os.geteuid() == 0 else "needs root and network namespaces"
)


def namespaces_are_allowed() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        os.close(new_namespace())
    except RigError:
        return False
    return True


pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)


@dataclass(frozen=True, slots=True)
class Bench:
    """A lab in this process."""

    place: LabPlace
    plan: LabPlan
    switch: SoftSwitch

    def sink(self, host: int) -> socket.socket:
        """What takes everything that comes to a host, with its traffic classes."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            made.bind((self.plan.ports[host].addresses[0], PORT))
            return made

        return inside(self.place.agents[f"h{host}"], make)

    def frames(self, host: int) -> socket.socket:
        """What sees every frame that comes to a host, as a capture does."""

        def make() -> socket.socket:
            made = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(0x0003)
            )
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            made.bind(("p0", 0x0003))
            return made

        return inside(self.place.agents[f"h{host}"], make)

    def burst(
        self,
        source: int,
        target: int,
        frames: int,
        *,
        dscp: int = ROCE_DSCP,
        ecn: int = ECT,
        from_port: int = 0,
        to_port: int = PORT,
    ) -> None:
        """Hands `frames` datagrams to a host's card at once."""

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2 | ecn)
                sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD_BYTES)
                sender.bind((self.plan.ports[source].addresses[0], from_port))
                left = frames
                while left > 0:
                    now = min(left, JOINED)
                    sender.sendto(
                        bytes([source]) * (now * PAYLOAD_BYTES),
                        (self.plan.ports[target].addresses[0], to_port),
                    )
                    left -= now

        inside(self.place.agents[f"h{source}"], send)

    def hold(self, host: int, quanta: int = 65_535) -> None:
        """The host pauses all priorities of the switch's port to it: at this rate for 1.7 s. 0: it lets go."""

        def send() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind(("p0", 0))
                header = bytes.fromhex("0180c2000001") + bytes.fromhex("02e700000000") + b"\x88\x08"
                raw.send((header + struct.pack(">HH8H", 0x0101, 0xFF, *[quanta] * 8)).ljust(60, b"\0"))

        inside(self.place.agents[f"h{host}"], send)

    def incast(self, senders: int, frames: int) -> int:
        """Bursts of the hosts from 1 on to host 0, which holds them back until all are there; how many were queued then."""
        for sender in range(1, senders + 1):
            self.hold(0)
            self.burst(sender, 0, frames)
        queued_bytes = self.switch.snapshot().pools[0][0]
        self.hold(0, 0)
        return queued_bytes // FRAME_BYTES

    def queued(self, pool_bytes: int) -> None:
        """Returns once the first switch holds so much."""
        clock = threading.Event()
        for _ in range(PATIENCE_S * 50):
            if self.switch.snapshot().pools[0][0] == pool_bytes:
                return
            clock.wait(0.02)
        raise AssertionError("the switch never held the burst")

    def settled(self, frames: int) -> SoftSnapshot:
        """The counters once so many frames were handed over by hosts and nothing is inside any more."""
        clock = threading.Event()
        for _ in range(PATIENCE_S * 50):
            snapshot = self.switch.snapshot()
            if int(snapshot.ports["rx_frames"].sum()) >= frames and snapshot.frames_inside == 0:
                sent = int((snapshot.ports["tx_frames"] + snapshot.ports["send_failed_frames"]).sum())
                if sent >= int(snapshot.cards["delivered_frames"].sum()):
                    return snapshot
            clock.wait(0.02)
        raise AssertionError(f"never settled: {snapshot}")


def received(sink: socket.socket) -> list[tuple[int, int]]:
    """(source, ECN) of everything that came, in order."""
    out: list[tuple[int, int]] = []
    while True:
        try:
            content, control, _, _ = sink.recvmsg(PAYLOAD_BYTES, 64)
        except BlockingIOError:
            return out
        (traffic_class,) = (value[0] for level, kind, value in control if (level, kind) == (0, socket.IP_TOS))
        out.append((content[0], traffic_class & 3))


def star(hosts: int, *, lossless: bool, rate_bps: int = RATE_BPS) -> SwitchSettings:
    return preset(
        "s0", tuple(SwitchPort(str(n), rate_bps, DELAY_NS) for n in range(hosts)), lossless=lossless
    )


def small(settings: SwitchSettings) -> SwitchSettings:
    """With so little shared buffer that a burst fills it."""
    return replace(settings, buffer_bytes=settings.set_aside_bytes + SMALL_BUFFER_BYTES)


def with_group(settings: SwitchSettings, **changes: int) -> SwitchSettings:
    groups = list(settings.groups)
    groups[ROCE_CLASS] = replace(groups[ROCE_CLASS], **changes)  # type: ignore[arg-type]
    return replace(settings, groups=tuple(groups))


@contextmanager
def bench(topology: Topology) -> Iterator[Bench]:
    plan = plan_lab(topology, addresses=1)
    with lab_place(plan) as place:
        switch = open_in(place, topology, plan)
        try:
            yield Bench(place, plan, switch)
        finally:
            switch.stop()


def around(settings: SwitchSettings) -> Topology:
    attachments = tuple(Attachment(f"h{n}/p0", SwitchEnd(0, n)) for n in range(len(settings.ports)))
    return Topology((settings,), (), attachments)


def drops_of(snapshot: SoftSnapshot) -> int:
    """Frames that the model dropped for want of buffer."""
    return sum(
        int(rows["queues"]["dropped_packets"].sum() + rows["groups"]["dropped_packets"].sum())
        for rows in snapshot.switch_ports
    )


@pytest.mark.parametrize("senders", [2, 4, 8])
def test_incast_shares_the_link_evenly_and_loses_nothing_with_pauses(senders: int) -> None:
    frames = 120
    # A small share of the buffer each, so that those who come first do not get it all.
    settings = with_group(small(star(senders + 1, lossless=True)), alpha_log2=-4)
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        queued = lab.incast(senders, frames)
        snapshot = lab.settled(senders * frames)
        came = received(sink)
    assert snapshot.overload_frames == 0
    assert drops_of(snapshot) == 0
    assert len(came) == senders * frames
    (rows,) = snapshot.switch_ports
    assert all(rows["pfc_tx"][sender, ROCE_CLASS] > 0 for sender in range(1, senders + 1))
    assert all(snapshot.cards["paused_ns"][sender] > 0 for sender in range(1, senders + 1))
    # Behind what was queued while the receiver held everything, as long as all senders have something left.
    sources = [source for source, _ in came]
    end = min(len(sources) - sources[::-1].index(sender) for sender in range(1, senders + 1))
    shared = sources[queued:end]
    assert len(shared) > 0.5 * len(sources)
    for sender in range(1, senders + 1):
        assert shared.count(sender) / len(shared) == pytest.approx(1 / senders, rel=0.05)


def test_pauses_leave_at_their_threshold_and_are_honoured_within_the_headroom() -> None:
    settings = with_group(small(star(3, lossless=True)), alpha_log2=-2, reserved_bytes=0)
    settings = replace(settings, buffer_bytes=settings.set_aside_bytes + SMALL_BUFFER_BYTES)
    with bench(around(settings)) as lab, lab.sink(0):
        lab.incast(2, 150)
        snapshot = lab.settled(300)
    (rows,) = snapshot.switch_ports
    headroom_bytes = settings.groups[ROCE_CLASS].headroom_bytes
    for sender in (1, 2):
        group = rows["groups"][sender, ROCE_CLASS]
        # Both groups fill alike; each stops at x with x = (shared - 2x) / 4.
        assert group["shared_watermark_bytes"] == pytest.approx(SMALL_BUFFER_BYTES / 6, abs=2 * FRAME_BYTES)
        # What came after the pause: it waits for a frame on the line, the card finishes the one it sends.
        on_the_way_bytes = 2 * DELAY_NS * RATE_BPS // 8_000_000_000 + 3 * FRAME_BYTES
        assert 0 < group["headroom_watermark_bytes"] <= min(on_the_way_bytes, headroom_bytes)
    assert drops_of(snapshot) == snapshot.overload_frames == 0


def test_too_little_headroom_loses_and_says_where() -> None:
    settings = with_group(small(star(4, lossless=True)), headroom_bytes=FRAME_BYTES // 2)
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        lab.incast(3, 100)
        snapshot = lab.settled(300)
        came = received(sink)
    (rows,) = snapshot.switch_ports
    lost = int(rows["groups"]["dropped_packets"][:, ROCE_CLASS].sum())
    assert lost > 0
    assert len(came) + lost == 300
    assert snapshot.overload_frames == 0


def test_without_pauses_a_full_buffer_drops_and_every_frame_is_accounted_for() -> None:
    settings = star(4, lossless=False)
    fast = tuple(replace(port, rate_bps=10 * RATE_BPS) for port in settings.ports[1:])
    settings = small(replace(settings, ports=(settings.ports[0], *fast)))
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        for sender in (1, 2, 3):
            lab.burst(sender, 0, 200)
        snapshot = lab.settled(600)
        came = received(sink)
    (rows,) = snapshot.switch_ports
    assert rows["pfc_tx"].sum() == 0
    assert drops_of(snapshot) > 0
    assert len(came) + drops_of(snapshot) == 600
    assert snapshot.overload_frames == 0


def marking(settings: SwitchSettings, kmin_bytes: int, kmax_bytes: int) -> SwitchSettings:
    queues = list(settings.queues)
    queues[ROCE_CLASS] = replace(queues[ROCE_CLASS], marking=Marking(kmin_bytes, kmax_bytes, 1_000_000))
    return replace(settings, queues=tuple(queues))


def test_marks_are_those_that_the_queue_earns_and_receivers_see_them() -> None:
    settings = marking(star(3, lossless=True), 10 * FRAME_BYTES, 10 * FRAME_BYTES)
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        lab.burst(1, 0, 60)  # alone, at the rate of the link: no queue
        alone = lab.settled(60)
        assert {ecn for _, ecn in received(sink)} == {ECT}
        lab.incast(2, 60)
        both = lab.settled(180)
        seen = [ecn for _, ecn in received(sink)]
        lab.hold(0)
        lab.burst(1, 0, 30, ecn=0)
        lab.hold(0, 0)
        deaf = lab.settled(210)
        assert {ecn for _, ecn in received(sink)} == {0}
    marked = [int(one.switch_ports[0]["queues"]["ecn_marked_packets"].sum()) for one in (alone, both, deaf)]
    assert marked == [0, seen.count(CE), seen.count(CE)]
    assert seen[-9:] == [ECT] * 9, "below ten frames nothing is marked"
    assert seen[-19:-9] == [CE] * 10, "from ten frames on everything is"


def test_marks_follow_the_line_between_the_thresholds() -> None:
    """A burst of 110 frames drains, so every depth is seen once; chi-square with ten degrees of freedom, 0.1 %."""
    depths, kmin, bursts = 110, 10, BURSTS
    settings = marking(star(2, lossless=True), kmin * FRAME_BYTES, depths * FRAME_BYTES)
    settings = with_group(replace(settings, buffer_bytes=16 << 20), alpha_log2=3)
    found = np.zeros(depths, np.int64)
    with bench(around(settings)) as lab, lab.sink(0) as sink:
        for burst in range(bursts):
            lab.hold(0)
            lab.burst(1, 0, depths)
            lab.queued(depths * FRAME_BYTES)
            lab.hold(0, 0)
            snapshot = lab.settled(depths * (burst + 1))
            seen = [ecn for _, ecn in received(sink)]
            assert len(seen) == depths
            found += np.array(seen[::-1]) == CE
    assert snapshot.overload_frames == drops_of(snapshot) == 0
    depth = np.arange(1, depths + 1)
    chance = np.clip((depth - kmin) / (depths - kmin), 0, 1)
    assert found[depth <= kmin].sum() == 0, "none below Kmin"
    assert found[-1] == bursts, "all from Kmax on"
    between = (depth > kmin) & (depth < depths)
    bins = (depth - kmin - 1) // 10
    chi_square = sum(
        (found[here].sum() - bursts * chance[here].sum()) ** 2
        / (bursts * (chance[here] * (1 - chance[here])).sum())
        for here in (between & (bins == number) for number in range(10))
    )
    assert chi_square < 29.59, chi_square


def test_weights_share_a_port() -> None:
    settings = star(3, lossless=True)
    queues = list(settings.queues)
    queues[0] = replace(queues[0], weight=1)
    queues[ROCE_CLASS] = replace(queues[ROCE_CLASS], weight=3, marking=None)
    with bench(around(replace(settings, queues=tuple(queues)))) as lab, lab.sink(0) as sink:
        lab.hold(0)
        lab.burst(1, 0, 240)
        lab.hold(0)
        lab.burst(2, 0, 240, dscp=0)
        lab.hold(0, 0)
        snapshot = lab.settled(480)
        sources = [source for source, _ in received(sink)]
    assert snapshot.overload_frames == drops_of(snapshot) == 0
    begin = max(sources.index(1), sources.index(2)) + 4
    shared = sources[begin : begin + 200]
    assert shared.count(1) / len(shared) == pytest.approx(0.75, rel=0.02)


def test_strict_traffic_overtakes() -> None:
    with bench(around(star(3, lossless=True))) as lab, lab.sink(0) as sink:
        lab.hold(0)
        lab.burst(1, 0, 100)
        lab.burst(2, 0, 1, dscp=CNP_DSCP)
        lab.hold(0, 0)
        lab.settled(101)
        sources = [source for source, _ in received(sink)]
    assert len(sources) == 101
    assert sources.index(2) <= 1, "it goes before all but what is on the line already"


def two_spines() -> Topology:
    """Hosts 0 and 1 on a leaf, 2 on the other, two spines between them."""
    leaves = [replace(star(4, lossless=False), name=f"leaf{n}", seed=7 + n) for n in range(2)]
    spines = [replace(star(2, lossless=False), name=f"spine{n}") for n in range(2)]
    links = tuple(
        SwitchLink(SwitchEnd(leaf, 2 + spine), SwitchEnd(2 + spine, leaf))
        for leaf in range(2)
        for spine in range(2)
    )
    attachments = (
        Attachment("h0/p0", SwitchEnd(0, 0)),
        Attachment("h1/p0", SwitchEnd(0, 1)),
        Attachment("h2/p0", SwitchEnd(1, 0)),
    )
    return Topology((*leaves, *spines), links, attachments)


def flow_key(source: str, target: str, from_port: int) -> int:
    """The switches' key of a UDP flow, worked out again: SplitMix64's finaliser over both addresses and the ports."""

    def mixed(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    key = 0x9E3779B97F4A7C15
    for a, b in zip(ip_bytes(source), ip_bytes(target), strict=True):
        key = mixed(key + (a << 8 | b) + 1 & MASK)
    return mixed(key + (from_port << 24 | PORT << 8 | socket.IPPROTO_UDP) & MASK)


def test_flows_go_as_the_hash_predicts_and_the_same_seed_chooses_the_same() -> None:
    splits = []
    for _ in range(2):
        with bench(two_spines()) as lab, lab.sink(2) as sink:
            taken = []
            for flow in range(12):
                before = lab.switch.snapshot()
                lab.burst(0, 2, 3, from_port=50_000 + flow)
                after = lab.settled(3 * (flow + 1))
                taken.append(
                    tuple(
                        int(
                            after.switch_ports[spine]["rx_packets"].sum()
                            - before.switch_ports[spine]["rx_packets"].sum()
                        )
                        for spine in (2, 3)
                    )
                )
            assert len(received(sink)) == 36
            source, target = (lab.plan.ports[host].addresses[0] for host in (0, 2))
        keys = np.array([flow_key(source, target, 50_000 + flow) for flow in range(12)], np.uint64)
        predicted = np.frombuffer(_native.ecmp_choices(keys, two_spines().switches[0].seed, 2), np.int32)
        assert taken == [(0, 3) if way else (3, 0) for way in predicted]
        assert set(taken) == {(3, 0), (0, 3)}, "a flow keeps its way, and both ways are used"
        splits.append(taken)
    assert splits[0] == splits[1]


@pytest.mark.parametrize("convergence_ns", [FOREVER_NS, 0])
def test_a_link_that_goes_down_leaves_the_other_way(convergence_ns: int) -> None:
    topology = replace(two_spines(), routing=Routing(0, convergence_ns))
    with bench(topology) as lab, lab.sink(2) as sink:
        lab.switch.set_link(SwitchEnd(2, 1), up=False)
        lab.switch.snapshot()
        for flow in range(12):
            lab.burst(0, 2, 2, from_port=50_000 + flow)
        after = lab.settled(24)
        lost = int(after.switch_ports[2]["no_route_packets"].sum())
        assert (lost > 0) == (convergence_ns > 0), "whether the leaf hears of the spine's other link"
        assert len(received(sink)) == 24 - lost
        lab.switch.set_link(SwitchEnd(2, 0), up=False)
        lab.switch.snapshot()
        for flow in range(12):
            lab.burst(0, 2, 2, from_port=50_000 + flow)
        lab.settled(48)
        assert len(received(sink)) == 24, "its own link it knows"


def test_pause_frames_of_hosts_stop_the_switch_and_those_of_the_switch_reach_hosts() -> None:
    with bench(around(small(star(3, lossless=True)))) as lab, lab.sink(0) as sink:

        def open_raw(interface: str) -> socket.socket:
            raw = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(0x8808)
            )
            raw.bind((interface, 0x8808))
            return raw

        with (
            inside(lab.place.agents["h0"], partial(open_raw, "p0")) as paused_by,
            inside(lab.place.agents["h1"], partial(open_raw, "p0")) as hears,
        ):
            quanta = 40_000  # at 20 Mb/s a second
            header = bytes.fromhex("0180c2000001") + bytes.fromhex("02e700000000") + b"\x88\x08"
            body = struct.pack(">HH8H", 0x0101, 1 << 3, *(quanta if n == 3 else 0 for n in range(8)))
            paused_by.send((header + body).ljust(60, b"\0"))
            for sender in (1, 2):
                lab.burst(sender, 0, 80)
            snapshot = lab.settled(160)
            reported = hears.recv(64)
        assert len(received(sink)) == 160
    (rows,) = snapshot.switch_ports
    assert rows["pfc_rx"][0, 3] == 1
    assert snapshot.ports["rx_pause_frames"][0] == 1
    assert rows["queues"]["paused_ns"][0, 3] == pytest.approx(quanta * 512 * 1e9 / RATE_BPS, rel=0.01)
    assert reported[14:18] == struct.pack(">HH", 0x0101, 1 << 3)
