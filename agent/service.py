"""Runs an agent: a ZeroMQ DEALER, the clock, the process's signals and an engine around `AgentLife`.

One loop receives messages, polls the engine, and carries out the actions of the life. Calls that may take long (building an
engine, joining its threads) run one after another on a single worker thread, so that heartbeats go on. Decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from etloop.agent.engine_protocol import Engine
from etloop.agent.engine_work import ENGINE_ERRORS, EngineWork, engine_problem
from etloop.agent.guard import Guard, forbidden_parts
from etloop.agent.host_facts import versions
from etloop.agent.host_fit import absent_addresses, misfits
from etloop.agent.host_reading import read_capabilities
from etloop.agent.lifecycle import AgentLife
from etloop.agent.lifecycle_actions import (
    Action,
    CloseEngine,
    HandOver,
    JoinEnds,
    Leave,
    Log,
    OpenEngine,
    PostOps,
    QueryEngineWaits,
    Reconnect,
    SendMessage,
    StartEngine,
    StartProbe,
)
from etloop.agent.own_prefixes import own_prefixes
from etloop.agent.slots import Slots
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode, InputError, Problem, ProtocolError, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.capabilities import Capabilities
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.frame_streams import FrameWork
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.messages import (
    MAX_TO_AGENT_BYTES,
    AgentMessage,
    Hello,
    Ping,
    Pong,
)
from etloop.contract.protocol.wire import decode_from_controller, encode
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.curve_keys import ClientKeys, read_client_keys, secure_client
from etloop.runtime.service_manager import ServiceManager
from etloop.runtime.sockets.event_descriptor import EventDescriptor
from etloop.runtime.sockets.loop_socket import LoopSocket
from etloop.runtime.stop_signals import reload_calls, stop_reasons
from etloop.traffic.capture import CaptureTarget
from etloop.traffic.send_limits import UNLIMITED, SendLimits
from etloop.traffic.threads.loop_threads import ORDINARY, LoopThreads

_TICK_MS: Final = 20
_IDLE_TICK_MS: Final = 200
"""Poll interval with a controller and no run: no work is urgent then, and a message ends the wait at once."""
_LOOK_AT_HOST_NS: Final = 2 * NS_PER_S
_RECEIVE_BURST: Final = 64
_QUEUED_MESSAGES: Final = 16
"""Length of ZeroMQ's send queue; when it is full, records stay in the engine and pongs are dropped."""
_LINGER_MS: Final = 1000
_LASTING_FAILURES: Final = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
"""Events after which ZeroMQ does not reconnect; after a plain disconnection it reconnects by itself."""
_WATCHED: Final = _LASTING_FAILURES | zmq.EVENT_DISCONNECTED
_MISMATCH: Final = (
    "one side of the connection has keys and the other has none, or the peer is not a controller; give "
    "--controller-key and --key "
    "if the controller's rig has keys, and neither otherwise"
)
_CLOSE_S: Final = 5
"""Longest wait of an ending agent for its engine's threads."""

_log = logging.getLogger("etloop.agent")

OpenEngineCall = Callable[[Assignment], Engine]


@dataclass(frozen=True, slots=True)
class CurveClient:
    """Keys of an encrypted control connection, as files (`runtime.curve_keys`)."""

    controller_key_file: Path
    """The controller's public certificate (`.key`)."""
    secret_key_file: Path
    """The agent's own certificate (`.key_secret`)."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of an agent: its controller, its keys and its limits."""

    controller: str
    """ZeroMQ endpoint, such as "tcp://10.0.0.1:5555"."""
    name: str
    once: bool = False
    """End after one run, or when the controller vanishes."""
    curve: CurveClient | None = None
    insecure: bool = False
    """Follow a controller on another machine without knowing who it is."""
    allow_plugins: bool = False
    """Compile and run congestion control that the controller sends."""
    cores: tuple[int, ...] = ()
    """Cores reserved for the engine's threads by `--cores`; (): none."""
    guard: Guard = field(default_factory=Guard)
    """Limits on the agent's traffic, whatever the controller asks for."""


def open_native_engine(
    assignment: Assignment,
    capture: CaptureTarget | None = None,
    threads: LoopThreads = ORDINARY,
    limits: SendLimits = UNLIMITED,
) -> Engine:
    """Open the engine that sends real packets, and captures them as `capture` gives. Raises `RigError` or `PlanError`."""
    if problems := misfits(assignment, read_capabilities(), socket.gethostname()):
        raise RigError(*problems)
    # Late, so that preflight and key generation work where the native module cannot be loaded.
    from etloop.traffic.engine import Engine as NativeEngine

    return NativeEngine.open(assignment, capture, threads, limits)


def open_allowed(settings: AgentSettings, open_engine: OpenEngineCall, assignment: Assignment) -> Engine:
    """Open an engine for the assignment by `open_engine`, and raise what it raises.

    Raises `RigError` if the host lacks an address of a port, and `ConfigError` if the assignment brings a plugin without
    `--allow-plugins`, or asks for traffic that the guard forbids.
    """
    plugins = (transport.congestion.plugin_name for transport in assignment.transports)
    plugin = next(filter(None, plugins), "")
    if plugin and not settings.allow_plugins:
        problem = "is code sent by the controller, and this agent was started without --allow-plugins"
        remedy = (
            "start the agent with --allow-plugins if you trust everybody who can reach it as a controller"
        )
        raise ConfigError(Problem(f"congestion control {plugin}", problem, remedy))
    host, name = read_capabilities(), socket.gethostname()
    # First: without the port's own address, the guard would find its peers in no network of the port.
    if problems := absent_addresses(assignment, host, name):
        raise RigError(*problems)
    if problems := forbidden_parts(assignment, settings.guard, host, own_prefixes(), name):
        raise ConfigError(*problems)
    return open_engine(with_interfaces(assignment, host))


def with_interfaces(assignment: Assignment, host: Capabilities) -> Assignment:
    """Return an assignment whose ports have the names of their interfaces, if it has streams of frames."""
    if assignment.frames == FrameWork():
        return assignment
    interfaces = [host.interface_of(port.addresses[0]) for port in assignment.ports]
    ports = tuple(
        replace(port, interface=interface.name) if interface is not None else port
        for port, interface in zip(assignment.ports, interfaces, strict=True)
    )
    return replace(assignment, ports=ports)


async def serve(settings: AgentSettings, open_engine: OpenEngineCall = open_native_engine) -> ExitCode:
    """Join the controller, run what it assigns, and return when the controller or the user ends it.

    Raises `ConfigError` for an endpoint or keys that cannot be used.
    """
    if "://" not in settings.controller:
        remedy = "write the controller's address as tcp://HOST:PORT"
        raise ConfigError(
            Problem(settings.controller, "is not an endpoint: it has no transport such as tcp://", remedy)
        )
    if not is_loopback(settings.controller) and settings.curve is None and not settings.insecure:
        remedy = "give --controller-key and --key, or --insecure if everybody on this network may control this host"
        problem = "is on another machine, but neither keys nor --insecure are given"
        raise ConfigError(Problem(settings.controller, problem, remedy))
    keys = AgentKeys(settings.curve)
    process = secrets.token_hex(8)
    context = zmq.Context()
    service_manager = ServiceManager()
    service_manager.ready()
    # The handlers stay until the end, so that a second Ctrl-C does not cut off the Bye message.
    with stop_reasons() as stops, reload_calls(keys.read_again):
        try:
            return await Slots(
                lambda slot: _Agent(settings, open_engine, context, keys, _Place(slot, process)),
                settings.once,
                lambda: service_manager.turn(monotonic_ns()),
            ).live(stops)
        finally:
            service_manager.stopping()
            await asyncio.to_thread(context.term)


class AgentKeys:
    """Current keys of an agent's connections, and how often they were read. Raises `ConfigError` if they cannot be read."""

    def __init__(self, curve: CurveClient | None) -> None:
        self._curve = curve
        self.reads = 0
        self.current = self._read()

    def read_again(self) -> None:
        """Read the files again; if they cannot be used, keep the present keys and log a warning."""
        try:
            self.current = self._read()
        except ConfigError as error:
            _log.warning("SIGHUP: keeping the current keys: %s", error)
            return
        self.reads += 1
        _log.info("SIGHUP: %s", "keys reloaded" if self._curve else "no keys to reload")

    def _read(self) -> ClientKeys | None:
        curve = self._curve
        return None if curve is None else read_client_keys(curve.controller_key_file, curve.secret_key_file)


@dataclass(frozen=True, slots=True)
class _Place:
    """Slot number and process identifier of a connection."""

    slot: int
    process: str


def _capabilities(settings: AgentSettings) -> Capabilities:
    """Return what this host can do, with the cores that this agent reserves."""
    capabilities = read_capabilities()
    return (
        replace(capabilities, core_ids=settings.cores, cores_named=True) if settings.cores else capabilities
    )


class _Agent:
    """One slot: a connection to the controller, and the run it carries if there is one."""

    def __init__(
        self,
        settings: AgentSettings,
        open_engine: OpenEngineCall,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: AgentKeys,
        place: _Place,
    ) -> None:
        hello = Hello(
            settings.name,
            socket.gethostname(),
            os.getpid(),
            versions(),
            place.slot,
            _capabilities(settings),
            place.process,
        )
        self._hello = hello
        self._settings = settings
        self._open_engine = open_engine
        self._context = context
        self._keys = keys
        self._key_reads = keys.reads
        self._life = AgentLife(hello, settings.controller, once=settings.once, now_ns=monotonic_ns())
        self._dealer = self._connect()
        self._outbox: deque[AgentMessage] = deque()
        """Messages that ZeroMQ's queue had no room for; while there are any, the engine's records stay in the engine."""
        self._work = EngineWork()
        self._completions = EventDescriptor(self._on_completions)
        self._waits_queried = False
        self._next_report_ns = 0
        self._exit_code: ExitCode | None = None
        self._next_look_ns = monotonic_ns() + _LOOK_AT_HOST_NS
        self._look: Future[Capabilities] | None = None

    @property
    def slots(self) -> int:
        """See `AgentLife.slots`."""
        return self._life.slots

    @property
    def in_run(self) -> bool:
        """See `AgentLife.in_run`."""
        return self._life.in_run

    async def live(self, stops: list[str]) -> ExitCode:
        """Loop until the life orders to leave; return its exit code."""
        while True:
            await self._perform(self._life.on_tick(monotonic_ns()))
            await self._look_at_connection()
            await self._look_at_work()
            await self._look_at_engine()
            await self._look_at_host()
            while stops and self._exit_code is None:
                await self._perform(self._life.on_stop(stops.pop()))
            self._flush()
            if self._exit_code is not None:
                return self._exit_code
            if await self._dealer.wait(
                _IDLE_TICK_MS if self._life.settled and not self._work.is_closing else _TICK_MS
            ):
                await self._receive_burst()

    async def end(self) -> None:
        """Close the engine, then the connection."""
        await self._work.end(_CLOSE_S)
        self._completions.close()
        self._disconnect(_LINGER_MS)

    # ---- the controller

    def _connect(self) -> LoopSocket:
        dealer = self._context.socket(zmq.DEALER)
        try:
            dealer.setsockopt(zmq.LINGER, _LINGER_MS)
            # Queue messages only for a connected controller.
            dealer.setsockopt(zmq.IMMEDIATE, 1)
            dealer.setsockopt(zmq.SNDHWM, _QUEUED_MESSAGES)
            dealer.setsockopt(zmq.MAXMSGSIZE, MAX_TO_AGENT_BYTES)
            dealer.setsockopt(zmq.IPV6, 1)
            # With a fixed identity, a connection that recovers within the heartbeat timeout counts as the same agent.
            dealer.setsockopt(zmq.IDENTITY, b"\x01" + os.urandom(16))
            if self._keys.current is not None:
                secure_client(dealer, self._keys.current)
            failures = dealer.get_monitor_socket(_WATCHED)
            dealer.connect(self._settings.controller)
        except zmq.ZMQError as error:
            dealer.disable_monitor()
            dealer.close(linger=0)
            remedy = "write the controller's address as tcp://HOST:PORT"
            raise ConfigError(
                Problem(self._settings.controller, f"cannot be connected to: {error.strerror}", remedy)
            ) from None
        self._failures = LoopSocket(failures)
        return LoopSocket(dealer)

    def _disconnect(self, linger_ms: int) -> None:
        self._dealer.socket.disable_monitor()
        self._failures.close(0)
        self._dealer.close(linger_ms)

    async def _look_at_connection(self) -> None:
        """Report handshakes that ZeroMQ has given up for good, connections that ended, and keys that were read again."""
        if self._key_reads != self._keys.reads:
            self._key_reads = self._keys.reads
            await self._perform(self._life.on_keys_changed(monotonic_ns()))
        if (frames := self._failures.receive()) is None:
            return
        event = parse_monitor_message([frame.bytes for frame in frames])["event"]
        if event == zmq.EVENT_DISCONNECTED:
            self._life.on_closed(monotonic_ns())
            return
        why = self._refused_key() if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH else _MISMATCH
        await self._perform(self._life.on_turned_away(why, monotonic_ns()))

    def _refused_key(self) -> str:
        keys, name = self._keys.current, self._settings.name
        key = keys.public.decode("ascii") if keys is not None else "-"
        remedy = f"on the controller's host: etloop keys allow {name} --dir KEYS, with the file of that key"
        return f"this agent's key {key} is not on its list of agents' keys; {remedy}"

    async def _receive_burst(self) -> None:
        dealer = self._dealer
        for _ in range(_RECEIVE_BURST):
            if (frames := dealer.receive()) is None:
                return
            now_ns = monotonic_ns()
            try:
                message = decode_from_controller(b"".join(frame.bytes for frame in frames))
                if not isinstance(message, Ping):
                    _log.debug("slot %d received %s", self._hello.slot, type(message).__name__)
                actions = self._life.on_message(message, now_ns)
            except ProtocolError as error:
                actions = self._life.on_malformed(error, now_ns)
            await self._perform(actions)
            if self._exit_code is not None or dealer is not self._dealer:
                return

    def _send(self, message: AgentMessage) -> None:
        if isinstance(message, Hello | Pong):
            # Both are repeated soon; a Pong queued behind records would distort the clock comparison.
            is_sent = not self._outbox and self._try_send(message)
            if not is_sent and isinstance(message, Hello):
                self._life.on_hello_unsent()
            return
        self._outbox.append(message)
        self._flush()

    def _flush(self) -> None:
        while self._outbox and self._try_send(self._outbox[0]):
            self._outbox.popleft()

    def _try_send(self, message: AgentMessage) -> bool:
        # Check first: encoding a message that cannot be sent, 50 times a second without a controller, costs 5 % of a core.
        if not self._dealer.has_room():
            return False
        if isinstance(message, Pong):
            message = replace(message, send_ns=monotonic_ns())
        try:
            self._dealer.send(encode(message))
        except zmq.Again:
            return False
        return True

    # ---- the engine

    async def _look_at_work(self) -> None:
        if self._work.is_opened:
            await self._perform(self._report_opened())
        if self._work.is_handed_over:
            await self._perform(self._life.on_handed_over(self._work.take_handed_over()))

    def _report_opened(self) -> tuple[Action, ...]:
        try:
            engine = self._work.take_opened()
        except InputError as error:
            self._next_look_ns = 0  # The host may have changed since it was reported.
            return self._life.on_open_failed(error.problems)
        except ENGINE_ERRORS as error:
            # The controller must learn of any failure; the traceback is kept only in this agent's log.
            _log.exception("cannot open the engine")
            return self._life.on_open_failed((engine_problem(error),))
        self._waits_queried = False
        return self._life.on_opened(engine.degraded, engine.ends, engine.capabilities)

    async def _look_at_engine(self) -> None:
        if not self._work.has_engine or self._outbox:
            return
        engine, now_ns = self._work.engine, monotonic_ns()
        try:
            if self._life.pairing and engine.joined:
                await self._perform(self._life.on_paired())
            outcomes = engine.probe_outcomes() if self._life.probing else None
            if outcomes is not None:
                await self._perform(self._life.on_probed(outcomes))
            waits = engine.take_waits() if self._waits_queried else None
            if waits is not None:
                self._waits_queried = False
                await self._perform(self._life.on_waits(waits))
            if now_ns >= self._next_report_ns and self._life.watches_engine:
                self._next_report_ns = now_ns + self._life.report_ns
                status = engine.status()
                ops = self._work.take_records()
                await self._perform(self._life.on_status(status, ops, monotonic_ns()))
        except ENGINE_ERRORS as error:
            # As above: an unforeseen failure of the engine fails the run, not this process.
            _log.exception("the engine failed")
            await self._perform(self._life.on_engine_error(str(error)))

    def _on_completions(self) -> None:
        """Report completed ops of a posted run at once, without a turn of the loop: there may be thousands a second."""
        if not self._reports_completions():
            self._next_report_ns = 0
            self._dealer.wake()

    def _reports_completions(self) -> bool:
        """Send the records of a running engine; return False if the loop has to look at it."""
        if not self._work.has_engine or self._outbox or not self._life.watches_engine:
            return False
        engine = self._work.engine
        try:
            status = engine.status()
            if status.phase is not EnginePhase.RUNNING:
                return False
            ops = self._work.take_records()
        except ENGINE_ERRORS:
            return False  # the loop finds the same failure and reports it
        for action in self._life.on_status(status, ops, monotonic_ns()):
            assert isinstance(action, SendMessage)
            self._send(action.message)
        return True

    async def _look_at_host(self) -> None:
        """Read the host's addresses and links again from time to time, outside of runs, and report changes to the
        controller.
        """
        now_ns = monotonic_ns()
        if self._look is None and now_ns >= self._next_look_ns and not self.in_run:
            self._look = self._work.run(partial(_capabilities, self._settings))
        if self._look is None or not self._look.done():
            return
        self._next_look_ns = now_ns + _LOOK_AT_HOST_NS
        capabilities, self._look = self._look.result(), None
        if capabilities != self._hello.capabilities:
            self._hello = replace(self._hello, capabilities=capabilities)
            await self._perform(self._life.on_hello_changed(self._hello))

    # ---- actions

    async def _perform(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case SendMessage(message):
                    self._send(message)
                case Log(text):
                    _log.info("%s", text)
                case Leave(code):
                    self._exit_code = code
                case Reconnect(linger):
                    # Close the engine first: a controller that learns that this agent is free may use its ports.
                    await self._work.wait_closed(_CLOSE_S)
                    self._disconnect(_LINGER_MS if linger else 0)
                    self._outbox.clear()
                    self._dealer = self._connect()
                case _:
                    await self._perform_on_engine(action)

    async def _perform_on_engine(
        self,
        action: OpenEngine
        | JoinEnds
        | StartProbe
        | StartEngine
        | PostOps
        | QueryEngineWaits
        | HandOver
        | CloseEngine,
    ) -> None:
        match action:
            case OpenEngine(assignment):
                self._work.open(partial(open_allowed, self._settings, self._open_engine, assignment))
            case HandOver():
                self._work.hand_over()
            case CloseEngine():
                self._work.close()
            case JoinEnds() | StartProbe() | StartEngine() | PostOps() | QueryEngineWaits():
                try:
                    self._order_engine(action)
                except ENGINE_ERRORS as error:
                    # As in `_look_at_engine`.
                    _log.exception("the engine failed")
                    await self._perform(self._life.on_engine_error(str(error)))

    def _order_engine(self, action: JoinEnds | StartProbe | StartEngine | PostOps | QueryEngineWaits) -> None:
        engine = self._work.engine
        match action:
            case JoinEnds(peers):
                if peers or engine.ends:
                    engine.join(peers)
            case StartProbe():
                engine.start_probe()
            case StartEngine(start_ns, posted):
                self._work.start(start_ns, self._completions.descriptor if posted else None)
                self._next_report_ns = 0
            case PostOps(posts, last):
                engine.post(posts, last=last)
            case QueryEngineWaits():
                engine.request_waits()
                self._waits_queried = True
