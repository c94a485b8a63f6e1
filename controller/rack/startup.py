"""Opens a rack: rig, store, agent pool and gateways, as controller.yaml configures them. A shell: files, event loop.

All mistakes that can be found before the first agent connects are found here and raised as `ConfigError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.controller.inputs.rig import Rig
from etloop.controller.rack.agent_pool import Hub
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.config import BrokerConfig, GatewaySettings, HttpConfig, OtelConfig, RackConfig
from etloop.controller.rack.daemon import HEARTBEAT_NS, Daemon
from etloop.controller.rack.gateways import Gateway
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.mqtt.embedded_broker import EmbeddedBroker
from etloop.controller.rack.mqtt.gateway import MqttGateway
from etloop.controller.rack.rig.rig_change import rack_ports, slots_of
from etloop.controller.rack.rig.served_rig import ServedRig, read_rig
from etloop.controller.rack.runs.confinement import within
from etloop.controller.rack.runs.named_files import named_file_problems
from etloop.controller.rack.runs.orders import traces_of
from etloop.controller.rack.store import locks
from etloop.controller.rack.store.job_logs import JobLogs
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.telemetry.condition_pages import ConditionPages
from etloop.controller.rack.telemetry.http import HttpGateway
from etloop.controller.rack.telemetry.metrics import RackCollector
from etloop.controller.rack.transfers.admission import HttpAdmission
from etloop.controller.rack.transfers.links import Links
from etloop.controller.rack.transfers.run_pages import RunPages
from etloop.controller.rack.transfers.tokens import token_file
from etloop.controller.rack.transfers.trace_check import trace_problems
from etloop.controller.rack.transfers.trace_pages import TraceDirectory, TracePages
from etloop.controller.rack.transfers.trace_shelf import TraceShelf
from etloop.controller.rack.transfers.transfers import Transfers
from etloop.controller.rack.users.people import People
from etloop.controller.rack.users.users import parse_users
from etloop.controller.session.settings import (
    LOST_AFTER_NS,
    CurveServer,
    SessionSettings,
    check_exposure,
)
from etloop.runtime.broker_connection import tls_context
from etloop.runtime.descriptors import raise_descriptor_limit
from etloop.runtime.garbage_collection import freeze_startup_objects
from etloop.runtime.malloc_tuning import give_memory_back
from etloop.runtime.secret_file import read_secret
from etloop.runtime.watched_file import WatchedFile


def open_daemon(config: RackConfig, log: RackLog) -> Daemon:
    """Return a daemon with its store open. Raises `ConfigError` with the settings that cannot be used."""
    rig, rig_text = read_rig(config)
    check_exposure(
        SessionSettings("", rig.bind, CurveServer.of(rig.security), insecure=rig.security.insecure)
    )
    if not config.scenario_root.is_dir():
        remedy = "create it, and put the traces of scenarios below it"
        raise ConfigError(Problem("scenario_root", f"{config.scenario_root} is not a directory", remedy))
    if within(config.state_dir, config.scenario_root):
        problem = (
            f"{config.state_dir} lies below scenario_root, where scenarios could read results of other jobs"
        )
        raise ConfigError(Problem("state_dir", problem, "name a directory outside of it"))
    lock = _lock_state(config.state_dir)
    try:
        return _assemble(config, rig, rig_text, lock, log)
    except BaseException:
        os.close(lock)
        raise


def _lock_state(state_dir: Path) -> int:
    """Make the state directory and return its lock's descriptor. Raises `ConfigError` if it is unusable or locked."""
    try:
        # Not world-readable: scenarios and results are served by /runs/ to clients with the right to read them.
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
        (state_dir / "artifacts").mkdir(exist_ok=True)
        (state_dir / "running").mkdir(exist_ok=True)
        (state_dir / "logs").mkdir(exist_ok=True)
        lock = locks.acquire(state_dir / "controller.lock")
    except OSError as error:
        remedy = "name a directory that this user may write to"
        raise ConfigError(Problem("state_dir", f"{state_dir}: {error.strerror}", remedy)) from None
    if lock is None:
        remedy = "stop the other controller, or give this one a state_dir of its own"
        raise ConfigError(Problem("state_dir", f"{state_dir} is in use by another controller", remedy))
    locks.sign(lock, os.getpid())
    return lock


def _assemble(config: RackConfig, rig: Rig, rig_text: str, lock: int, log: RackLog) -> Daemon:
    store = JobStore.open(config.state_dir / "jobs.sqlite")
    try:
        find_missing_files = partial(named_file_problems, root=config.scenario_root)
        rules = ScenarioRules(config.scenario_root, config.allowed_code, find_missing_files)
        rack = Rack(store, rack_ports(rig), config.limits, rules, new_job_id)
    except StoreFailed as error:
        remedy = "run the etloop that wrote it, or name a new state_dir"
        raise ConfigError(Problem(str(config.state_dir / "jobs.sqlite"), str(error), remedy)) from None
    if config.users is not None:
        users = WatchedFile(config.users, parse_users, is_secret=False)
        users.current()  # Report an unusable file now, although it may change later.
        rack.people = People(users.current)
    hub = Hub(slots_of(rig, config.limits.slots), HEARTBEAT_NS, LOST_AFTER_NS)
    log.keep(JobLogs(config.state_dir / "logs"))
    served = ServedRig(config, rig, rig_text, rack, hub, log)
    daemon = Daemon(config, served, store, rack, hub, log, lock)
    mqtt: MqttGateway | None = None
    if config.broker is not None:
        mqtt = _mqtt_gateway(daemon, config.broker)
        daemon.open_gateway(
            EmbeddedBroker(config.broker.settings, mqtt, log) if config.broker.embedded else mqtt
        )
    if config.http is not None:
        daemon.open_gateway(_http_gateway(daemon, config.http, mqtt))
    if config.otel is not None:
        daemon.open_gateway(_otel_gateway(daemon, config.otel, mqtt))
    return daemon


def _mqtt_gateway(daemon: Daemon, broker: BrokerConfig) -> MqttGateway:
    settings = broker.settings
    tls_context(settings)  # Report unusable files now, although they may change later.
    if broker.password_file is not None:
        settings = replace(settings, password=read_secret(broker.password_file))
    gateway = GatewaySettings(daemon.config.rack, settings, broker.limits)
    return MqttGateway(daemon.rack, daemon.presence, daemon.summary_of, gateway, daemon.log, daemon.tallies)


def _http_gateway(daemon: Daemon, http: HttpConfig, mqtt: MqttGateway | None) -> HttpGateway:
    rack, log, state_dir = daemon.rack, daemon.log, daemon.config.state_dir
    tokens = None if http.tokens is None else token_file(http.tokens)
    if tokens is not None:
        tokens.current()  # Report an unusable file now, although it may change later.
    rack.links = Links(http.url)
    hosts = frozenset({http.host, urlsplit(http.url).hostname or "", socket.gethostname()})
    admission = HttpAdmission(tokens, daemon.tallies.refused_requests, log, hosts)
    transfers = Transfers()
    runs = RunPages(rack, state_dir / "artifacts", JobLogs(state_dir / "logs"), admission, transfers, log)
    traces = _trace_pages(daemon, http, admission, transfers)
    condition = ConditionPages(rack, _collector(daemon, mqtt), daemon.obstacles.texts)
    routes = (*condition.routes(), *runs.routes(), *traces.routes())
    return HttpGateway((http.host, http.port), routes, admission, log)


def _trace_pages(
    daemon: Daemon, http: HttpConfig, admission: HttpAdmission, transfers: Transfers
) -> TracePages:
    config, rack = daemon.config, daemon.rack
    rack.traces = TraceShelf(http.traces_bytes)
    directory = TraceDirectory(traces_of(config), http.largest_trace_bytes, config.limits.free_disk_bytes)
    check = partial(trace_problems, memory_bytes=config.limits.run_memory_bytes)
    pages = TracePages(rack, directory, check, admission, transfers, daemon.log)
    try:
        pages.open()
    except OSError as error:
        remedy = "let this user read and write the files in it"
        raise ConfigError(Problem(str(directory.path), f"{error.strerror}", remedy)) from None
    return pages


def _otel_gateway(daemon: Daemon, otel: OtelConfig, mqtt: MqttGateway | None) -> Gateway:
    try:
        # Imported late: only racks that push metrics need OpenTelemetry.
        from etloop.controller.rack.telemetry.otel import OtelGateway, OtelTarget
    except ImportError as error:
        problem = f"OpenTelemetry is not installed ({error.name})"
        raise ConfigError(Problem("otel", problem, "pip install 'etloop[otel]'")) from None
    if otel.ca_file is not None and not otel.ca_file.is_file():
        remedy = "name the authority of the collector's certificate"
        raise ConfigError(Problem("otel.ca", f"{otel.ca_file} is not a file", remedy))
    secret = "" if otel.authorization_file is None else read_secret(otel.authorization_file)
    target = OtelTarget(otel, secret, daemon.config.rack)
    return OtelGateway(daemon.rack, _collector(daemon, mqtt), daemon.summary_of, target, daemon.log)


def _collector(daemon: Daemon, mqtt: MqttGateway | None) -> RackCollector:
    return RackCollector(
        daemon.rack,
        daemon.presence,
        daemon.tallies,
        daemon.obstacles.free_disk_bytes,
        lambda: mqtt is not None and mqtt.connected,
    )


def new_job_id() -> str:
    """Return a new job id: sorts by wall time of submission; a random part separates ids of one millisecond."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"


def serve(config: RackConfig, log: RackLog) -> ExitCode:
    """Open a daemon and run it to its end. Raises `ConfigError`."""
    give_memory_back()
    raise_descriptor_limit()
    daemon = open_daemon(config, log)
    freeze_startup_objects()
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(daemon.run())
    return ExitCode.RUN_ERROR
