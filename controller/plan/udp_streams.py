"""Background datagrams: entries of a scenario -> the stream ends of each agent. Pure.

Decides addresses and UDP ports of streams. Kernel sockets of the agents send them, whatever backend the jobs' packets use.
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
"""First UDP port that streams are received on; below the ephemeral range of Linux."""

WHOLE_BYTES: Final = 1500 - 40 - 8
"""Largest datagram payload that fits one frame of standard Ethernet (MTU 1500), with IPv6 as well."""


def plan_streams(
    entries: Sequence[StreamEntry], rig: Rig, agents: Collection[str]
) -> tuple[PlannedStream, ...]:
    """Return the planned streams. Raises `PlanError` with every port that cannot be an end.

    `agents` are those that take part in the run.
    """
    ports = rig.ports
    problems: list[Problem] = []
    planned_streams: list[PlannedStream] = []
    for number, entry in enumerate(entries):
        ends = [entry.from_port, entry.to_port]
        for label in ends:
            if label not in ports:
                problem = f'the rig has no port "{label}"'
                problems.append(Problem(entry.where, problem, f"its ports are {', '.join(list(ports)[:12])}"))
            elif agent_of(label) not in agents:
                problem = f"agent {agent_of(label)} has no rank and takes no part in the run"
                problems.append(Problem(entry.where, problem, "place a rank on it, or choose another port"))
        if problems:
            continue
        addresses = [ports[label].addresses[0] for label in ends]
        if (":" in addresses[0]) != (":" in addresses[1]):
            problem = f"{addresses[0]} and {addresses[1]} are not of one family"
            problems.append(Problem(entry.where, problem, "choose ports of one family"))
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
        conflict = next((other for other in planned_streams if _same_destination(other.stream, stream)), None)
        if conflict is not None:
            problem = f"{conflict.stream.name} also sends to UDP port {stream.udp_port} of {entry.to_port}"
            problems.append(Problem(entry.where, problem, "send one of them to another port of the rig"))
            continue
        planned_streams.append(PlannedStream(stream, entry.from_port, entry.to_port))
    if problems:
        raise PlanError(*problems)
    return tuple(planned_streams)


def _same_destination(first: UdpStream, second: UdpStream) -> bool:
    return (first.dst_ip, first.udp_port) == (second.dst_ip, second.udp_port)


def refuse_taken_ports(
    streams: Sequence[PlannedStream], entries: Sequence[StreamEntry], uet: Collection[str]
) -> None:
    """Raise `PlanError` with every UUD stream to one of the ports `uet`, whose jobs use its UDP port for UET."""
    where = {entry.name: entry.where for entry in entries}
    problems = [
        Problem(
            where[planned_stream.stream.name],
            f"jobs at {planned_stream.to_port} use UET, which listens on UDP port {UET_UDP_PORT}",
            "send it to another port of the rig, or write uet: {udp_port: 49150} for the jobs",
        )
        for planned_stream in streams
        if planned_stream.stream.form is StreamForm.UUD and planned_stream.to_port in uet
    ]
    if problems:
        raise PlanError(*problems)


def streams_of_agents(streams: Sequence[PlannedStream]) -> dict[str, tuple[UdpStream, ...]]:
    """Return by agent the ends of its streams."""
    ends_by_agent: dict[str, list[UdpStream]] = {}
    for planned_stream in streams:
        ends_by_agent.setdefault(agent_of(planned_stream.from_port), []).append(planned_stream.stream)
        ends_by_agent.setdefault(agent_of(planned_stream.to_port), []).append(
            replace(planned_stream.stream, sends=False)
        )
    return {agent: tuple(ends) for agent, ends in ends_by_agent.items()}


def plain_datagrams(
    entries: Sequence[StreamEntry], agents: Sequence[AgentRecords], path_mtu_bytes: int
) -> dict[str, PlainDatagrams]:
    """Return the datagrams that streams put on and took off the link of every port that is an end of one.

    Datagrams longer than the job's packets may be fragmented on the way into an unknown number of frames; such ports get
    `unknown` with the reason.
    """
    counts = {(agent.agent, end.name, end.sends): end for agent in agents for end in agent.streams}
    totals: dict[str, PlainDatagrams] = {}
    for entry in entries:
        for port, sends in ((entry.from_port, True), (entry.to_port, False)):
            total = totals.get(port, PlainDatagrams())
            count = counts.get((agent_of(port), entry.name, sends))
            if count is None:
                totals[port] = replace(
                    total, unknown=f"its agent did not report the counters of {entry.name}"
                )
            elif entry.datagram_bytes > max(path_mtu_bytes, WHOLE_BYTES):
                reason = f"datagrams of {entry.name} are longer than the job's packets and may have been cut on the way"
                totals[port] = replace(total, unknown=reason)
            else:
                totals[port] = _add_stream(total, count)
    return totals


def _add_stream(before: PlainDatagrams, count: StreamCount) -> PlainDatagrams:
    """Add the counts of one stream end to those of its port, including its probes, which cross the same link."""
    probe_bytes = STREAM_PROBE_BYTES + (UUD_HEADER_BYTES if count.form is StreamForm.UUD else 0)
    tx_datagrams, rx_datagrams = (count.datagrams, 0) if count.sends else (0, count.datagrams)
    tx_bytes, rx_bytes = (count.payload_bytes, 0) if count.sends else (0, count.payload_bytes)
    return replace(
        before,
        tx_datagrams=before.tx_datagrams + tx_datagrams + count.probes_sent,
        tx_bytes=before.tx_bytes + tx_bytes + count.probes_sent * probe_bytes,
        rx_datagrams=before.rx_datagrams + rx_datagrams + count.probes_received,
        rx_bytes=before.rx_bytes + rx_bytes + count.probes_received * probe_bytes,
    )


def agent_of(port: str) -> str:
    """Return the agent of a port label "agent/port"."""
    return port.partition("/")[0]
