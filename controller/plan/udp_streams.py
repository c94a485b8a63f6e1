"""Background of datagrams: entries of a scenario -> the ends that each agent gets. Pure.

Decides addresses and UDP ports of streams. They are sent by kernel sockets of the agents, whatever carries the jobs' packets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import PlannedStream, UdpStream
from etloop.contract.model.records import STREAM_PROBE_BYTES, UUD_HEADER_BYTES, StreamForm
from etloop.contract.model.run import AgentRecords
from etloop.controller.inputs.scenario.multipath import UET_UDP_PORT
from etloop.results.device.reconcile import PlainDatagrams

if TYPE_CHECKING:
    from etloop.contract.model.records import StreamCount
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.jobs import StreamEntry

FIRST_PORT: Final = 47910
"""Streams are received on this UDP port and those above; below the range that Linux hands out by itself."""

WHOLE_BYTES: Final = 1500 - 40 - 8
"""Of a datagram that every Ethernet carries in one frame, by IPv6, too."""


def plan_streams(
    entries: Sequence[StreamEntry], rig: Rig, agents: Collection[str]
) -> tuple[PlannedStream, ...]:
    """Streams from end to end. `agents` are those that take part. Raises `PlanError` with every port that cannot be an end."""
    ports = rig.ports
    problems: list[Problem] = []
    found: list[PlannedStream] = []
    for number, entry in enumerate(entries):
        ends = [entry.from_port, entry.to_port]
        for label in ends:
            if label not in ports:
                what = f'the rig has no port "{label}"'
                problems.append(Problem(entry.where, what, f"its ports are {', '.join(list(ports)[:12])}"))
            elif agent_of(label) not in agents:
                what = f"agent {agent_of(label)} takes no part in the run: no rank is there"
                problems.append(Problem(entry.where, what, "place a rank there, or choose another port"))
        if problems:
            continue
        addresses = [ports[label].addresses[0] for label in ends]
        if (":" in addresses[0]) != (":" in addresses[1]):
            what = f"{addresses[0]} and {addresses[1]} are not of one family"
            problems.append(Problem(entry.where, what, "choose ports of one"))
            continue
        stream = UdpStream(
            name=entry.name,
            sends=True,
            src_ip=addresses[0],
            dst_ip=addresses[1],
            udp_port=UET_UDP_PORT if entry.form is StreamForm.UUD else FIRST_PORT + number,
            src_udp_port=FIRST_PORT + number,
            traffic_class=entry.dscp << 2,
            rate_bps=entry.rate_bps,
            datagram_bytes=entry.datagram_bytes,
            start_ns=entry.start_ns,
            stop_ns=entry.stop_ns,
            form=entry.form,
        )
        taken = next((one for one in found if _meet(one.stream, stream)), None)
        if taken is not None:
            what = f"{taken.stream.name} comes to UDP port {stream.udp_port} of {entry.to_port}, too"
            problems.append(Problem(entry.where, what, "send one of them to another port of the rig"))
            continue
        found.append(PlannedStream(stream, entry.from_port, entry.to_port))
    if problems:
        raise PlanError(*problems)
    return tuple(found)


def _meet(one: UdpStream, other: UdpStream) -> bool:
    return (one.dst_ip, one.udp_port) == (other.dst_ip, other.udp_port)


def refuse_taken_ports(
    streams: Sequence[PlannedStream], entries: Sequence[StreamEntry], uet: Collection[str]
) -> None:
    """Raise `PlanError` with every stream of UUD that comes to one of the ports `uet`, whose jobs listen there."""
    where = {entry.name: entry.where for entry in entries}
    problems = [
        Problem(
            where[one.stream.name],
            f"jobs at {one.to_port} go by UET, and it listens on UDP port {UET_UDP_PORT} itself",
            "send it to another port of the rig, or write uet: {udp_port: 49150} for the jobs",
        )
        for one in streams
        if one.stream.form is StreamForm.UUD and one.to_port in uet
    ]
    if problems:
        raise PlanError(*problems)


def streams_of_agents(streams: Sequence[PlannedStream]) -> dict[str, tuple[UdpStream, ...]]:
    """Per agent its ends."""
    found: dict[str, list[UdpStream]] = {}
    for one in streams:
        found.setdefault(agent_of(one.from_port), []).append(one.stream)
        found.setdefault(agent_of(one.to_port), []).append(replace(one.stream, sends=False))
    return {agent: tuple(ends) for agent, ends in found.items()}


def plain_datagrams(
    entries: Sequence[StreamEntry], agents: Sequence[AgentRecords], path_mtu_bytes: int
) -> dict[str, PlainDatagrams]:
    """What streams put on the cable of every port that is an end of one, and took from it.

    Longer datagrams than the job's packets may be cut on the way, into no one knows how many frames.
    """
    counts = {(agent.agent, one.name, one.sends): one for agent in agents for one in agent.streams}
    found: dict[str, PlainDatagrams] = {}
    for entry in entries:
        for port, sends in ((entry.from_port, True), (entry.to_port, False)):
            before = found.get(port, PlainDatagrams())
            count = counts.get((agent_of(port), entry.name, sends))
            if count is None:
                found[port] = replace(before, unknown=f"its agent did not tell what {entry.name} counted")
            elif entry.datagram_bytes > max(path_mtu_bytes, WHOLE_BYTES):
                why = f"datagrams of {entry.name} are longer than the job's packets and may have been cut on the way"
                found[port] = replace(before, unknown=why)
            else:
                found[port] = _with_stream(before, count)
    return found


def _with_stream(before: PlainDatagrams, count: StreamCount) -> PlainDatagrams:
    """What a port sent and received with an end of a stream more; probes are as much on its cable as the stream is."""
    probe_bytes = STREAM_PROBE_BYTES + (UUD_HEADER_BYTES if count.form is StreamForm.UUD else 0)
    sent, received = (count.datagrams, 0) if count.sends else (0, count.datagrams)
    sent_bytes, received_bytes = (count.payload_bytes, 0) if count.sends else (0, count.payload_bytes)
    return replace(
        before,
        tx_datagrams=before.tx_datagrams + sent + count.probes_sent,
        tx_bytes=before.tx_bytes + sent_bytes + count.probes_sent * probe_bytes,
        rx_datagrams=before.rx_datagrams + received + count.probes_received,
        rx_bytes=before.rx_bytes + received_bytes + count.probes_received * probe_bytes,
    )


def agent_of(port: str) -> str:
    """The agent of a port as "agent/port"."""
    return port.partition("/")[0]
