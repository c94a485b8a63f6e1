"""A lab while it is up: its namespaces, its switch, its agents, and a Unix socket that answers requests.

The socket takes a request of `contract.protocol.lab` per line and answers each with one line. A line without an end gets no
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, ProtocolError, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import SwitchEnd, Topology
from etloop.contract.protocol.lab import (
    FROM_LAB,
    MAX_REQUEST_BYTES,
    TO_LAB,
    CountersRequest,
    Done,
    DownRequest,
    GnmiStatus,
    LabAnswer,
    LabCounters,
    LabDescription,
    LabRefused,
    LabStatus,
    LinkRequest,
    StatusRequest,
    WatchRequest,
)
from etloop.dut_profiles.device_topology import parse_modelled_topology
from etloop.lab.capacity import measure_capacity, open_in
from etloop.lab.client import process_descriptor
from etloop.lab.plan import LabPlan, check_capacity, peer_networks, plan_lab
from etloop.lab.relay import endpoint_of, relay_from
from etloop.lab.request import (
    GNMI_LOG_FILE,
    GNMI_READY,
    LEAST_INTERVAL_MS,
    ORDER_FILE,
    LabOrder,
    read_order,
)
from etloop.lab.setup import lab_place
from etloop.lab.status import counters_of, description_of
from etloop.runtime.lab_directory import SOCKET_FILE
from etloop.runtime.own_module import own_module
from etloop.runtime.sockets.unix_socket import listening
from etloop.runtime.stop_signals import event_set_by_stop
from etloop.traffic.soft_switch import SoftSwitch

MOST_CONVERSATIONS: Final = 64
"""Connections to the lab's socket at once; further ones are closed."""
REQUEST_TIMEOUT_S: Final = 10.0
"""From the connection until its first request is complete."""
AGENT_END_S: Final = 5
GNMI_UP_S: Final = 40
GLANCE_S: Final = 0.5
"""Interval of the check whether the switch still runs."""


def serve_lab(directory: Path, report: Callable[[LabStatus], None]) -> bool:
    """Make the lab that the directory's order describes, report its status, and serve it until it is asked to end.

    Return whether the directory is left for others to remove: False if the lab ended with its owner. Raise `InputError` or
    RuntimeError if it cannot be made, before any report.
    """
    order = read_order((directory / ORDER_FILE).read_bytes())
    topology, plan = plan_order(order)
    endpoint_of(plan.bind)
    description = describe(order, plan)
    with lab_place(plan) as place:
        switch = open_in(place, topology, plan)
        try:
            parts = LabParts(topology, plan, place.agents, switch, switch.failure)
            lab = Lab(order, parts, description)
            if ended_by := asyncio.run(lab.serve(directory, report)):
                print(f"the soft switch ended: {ended_by}", file=sys.stderr, flush=True)
        finally:
            switch.stop()
            (directory / SOCKET_FILE).unlink(missing_ok=True)
    return not (order.owner and _has_ended(order.owner))


def plan_order(order: LabOrder) -> tuple[Topology, LabPlan]:
    """Return the topology and the plan of an order. Raise `InputError` if the order is invalid."""
    topology = parse_modelled_topology(order.topology.encode(), order.source, Path(order.source).parent)
    return topology, plan_lab(topology, mtu_bytes=order.mtu_bytes, addresses=order.addresses, bind=order.bind)


def describe(order: LabOrder, plan: LabPlan) -> LabDescription:
    """Return the description of a lab, with the capacity of this host if the order asks to measure it.

    Raise `PlanError` if the capacity is below what the order needs.
    """
    capacity = measure_capacity(plan.mtu_bytes) if order.measure else None
    if capacity is not None and not order.allow_overcommit:
        check_capacity(plan, capacity)
    return description_of(plan, capacity)


@dataclass(frozen=True, slots=True)
class LabParts:
    """The parts of a running lab."""

    topology: Topology
    plan: LabPlan
    namespaces: dict[str, int]
    """Agent -> descriptor of its namespace in this process; empty where the switch is attached to interfaces."""
    switch: SoftSwitch
    trouble: Callable[[], str]
    """Returns the reason why the lab cannot go on; "" while it can."""


class Lab:
    """One lab that is up."""

    def __init__(self, order: LabOrder, parts: LabParts, described: LabDescription) -> None:
        self._order = order
        self._parts = parts
        self._described = described
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._directory = Path()
        self._gnmi: asyncio.subprocess.Process | None = None
        self._gnmi_at = ""
        self._end = asyncio.Event()
        self._conversations = 0

    async def serve(self, directory: Path, report: Callable[[LabStatus], None]) -> str:
        """Answer until a signal or a request ends the lab ("" is returned), or return the reason why it cannot go on.

        Its agents have ended when this returns.
        """
        self._directory = directory
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(event_set_by_stop(self._end))
            if self._order.owner:
                self._end_with(self._order.owner, stack)
            host, port = endpoint_of(self._parts.plan.bind)
            for namespace in self._parts.namespaces.values():
                stack.push_async_callback(_close, await relay_from(namespace, host, port))
            socket_path = directory / SOCKET_FILE
            server = await asyncio.start_unix_server(
                self._converse, sock=listening(socket_path), limit=MAX_REQUEST_BYTES
            )
            stack.push_async_callback(_close, server)
            stack.callback(self._end_agents)
            if self._order.gnmi:
                stack.push_async_callback(self._end_gnmi)
                await self._start_gnmi(socket_path)
            if self._order.agents:
                self._start_agents()
            report(self.status())
            while not self._end.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GLANCE_S):
                        await self._end.wait()
                if trouble := self._parts.trouble():
                    return trouble
            return ""

    def _end_with(self, owner: int, stack: contextlib.AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        try:
            descriptor = stack.enter_context(process_descriptor(owner))
        except ProcessLookupError:
            self._end.set()
            return
        stack.callback(loop.remove_reader, descriptor)
        loop.add_reader(descriptor, self._end.set)

    # ---- questions

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._conversations >= MOST_CONVERSATIONS:
            writer.close()
            return
        self._conversations += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                line = await reader.readline()
            while line:
                await self._serve(line, reader, writer)
                line = await reader.readline()
        except (OSError, ValueError, asyncio.LimitOverrunError):
            pass  # the client left, sent a line without an end, or asked nothing in time
        except asyncio.CancelledError:
            pass  # the lab ends while a client is connected; before Python 3.12 asyncio would print that as an error
        finally:
            self._conversations -= 1
            writer.close()

    async def _serve(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = TO_LAB.decode(line)
        except ProtocolError as error:
            await _send(writer, LabRefused(str(error), "send a request listed in docs/lab.md"))
            return
        match request:
            case StatusRequest():
                await _send(writer, self.status())
            case CountersRequest(every_ms=0):
                await _send(writer, self._counters())
            case CountersRequest(every_ms):
                await self._stream(reader, writer, max(every_ms, LEAST_INTERVAL_MS))
            case LinkRequest():
                await _send(writer, self._set_link(request))
            case WatchRequest():
                await _send(writer, Done())
                with contextlib.suppress(asyncio.CancelledError):
                    await self._end.wait()
            case DownRequest():
                await _send(writer, Done())
                self._end.set()

    async def _stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, every_ms: int
    ) -> None:
        while not self._end.is_set() and not reader.at_eof():
            await _send(writer, self._counters())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_ms / 1000):
                    await self._end.wait()

    def _set_link(self, request: LinkRequest) -> Done | LabRefused:
        ends = {attachment.rig_port: attachment.end for attachment in self._parts.topology.attachments} | {
            f"{settings.name}/{switch_port.name}": SwitchEnd(number, port)
            for number, settings in enumerate(self._parts.topology.switches)
            for port, switch_port in enumerate(settings.ports)
        }
        if request.port not in ends:
            remedy = f"give a port of a switch or of the rig, such as {', '.join(list(ends)[-8:])}"
            return LabRefused(f'no port "{request.port[:64]}" exists', remedy)
        self._parts.switch.set_link(ends[request.port], up=request.up)
        return Done()

    def _counters(self) -> LabCounters:
        return counters_of(self._parts.topology, self._parts.switch.snapshot())

    def status(self) -> LabStatus:
        """Return the status of the lab, with its counters as of now; the last ones once its switch has stopped."""
        description = {field.name: getattr(self._described, field.name) for field in fields(self._described)}
        return LabStatus(
            **description,
            name=self._order.name,
            pid=os.getpid(),
            namespaces=self._parts.namespaces,
            processes={name: _process_state(process) for name, process in self._agents.items()},
            directory=str(self._directory),
            gnmi=self._gnmi_status(),
            counters=self._counters(),
        )

    # ---- gNMI

    async def _start_gnmi(self, socket_path: Path) -> None:
        """Start the gNMI server's process and return when it serves. Raise `RigError` with its reason if it does not."""
        with (self._directory / GNMI_LOG_FILE).open("wb") as log:
            self._gnmi = await asyncio.create_subprocess_exec(
                *own_module("etloop.lab.gnmi", self._order.name, self._order.gnmi, str(socket_path)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._gnmi.stdout is not None
        line = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GNMI_UP_S):
                first_line = await self._gnmi.stdout.readline()
            line = first_line.decode(errors="replace")
        if not line.startswith(GNMI_READY):
            log_text = (self._directory / GNMI_LOG_FILE).read_text(errors="replace").strip()
            last_line = log_text.splitlines()[-1] if log_text else "no output"
            problem = f"its process did not start: {last_line}"
            raise RigError(Problem("lab up --gnmi", problem, "give another address, or remove --gnmi"))
        self._gnmi_at = line.removeprefix(GNMI_READY).split(",")[0]

    async def _end_gnmi(self) -> None:
        if self._gnmi is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._gnmi.terminate()
        try:
            async with asyncio.timeout(AGENT_END_S):
                await self._gnmi.wait()
        except TimeoutError:
            self._gnmi.kill()
            await self._gnmi.wait()

    def _gnmi_status(self) -> GnmiStatus | None:
        if self._gnmi is None:
            return None
        code = self._gnmi.returncode
        state = f"running, process {self._gnmi.pid}" if code is None else f"ended with {code}"
        return GnmiStatus(self._gnmi_at, state)

    # ---- agents

    def _start_agents(self) -> None:
        # Every address of a lab is a network of its own; only the plan knows to which addresses its agents may send.
        peers = ",".join(peer_networks(self._parts.plan))
        for name, namespace in self._parts.namespaces.items():
            enter_command = (
                "etloop.lab.exec",
                "--net",
                f"/proc/self/fd/{namespace}",
                "--parent",
                str(os.getpid()),
            )
            agent_command = ("etloop.agent.cli", "run", "--controller", self._parts.plan.bind, "--name", name)
            plugins = ("--allow-plugins",) if self._order.allow_plugins else ()
            permissions = ("--allow-peers", peers, "--allow-raw-frames", *plugins)
            with (self._directory / f"agent-{name}.log").open("wb") as log:
                self._agents[name] = subprocess.Popen(
                    own_module(*enter_command, "--", *own_module(*agent_command, *permissions)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(namespace,),
                )

    def _end_agents(self) -> None:
        for process in self._agents.values():
            process.terminate()
        for process in self._agents.values():
            try:
                process.wait(AGENT_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _has_ended(process: int) -> bool:
    try:
        with process_descriptor(process) as descriptor:
            return bool(select.select([descriptor], [], [], 0)[0])
    except ProcessLookupError:
        return True


def _process_state(process: subprocess.Popen[bytes]) -> str:
    code = process.poll()
    return f"running, process {process.pid}" if code is None else f"ended with {code}"


async def _send(writer: asyncio.StreamWriter, answer: LabAnswer) -> None:
    writer.write(FROM_LAB.encode(answer))
    await writer.drain()


async def _close(server: asyncio.Server) -> None:
    server.close()
