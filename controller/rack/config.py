"""`controller.yaml`: the rig, where jobs and results are kept, and the limits of the rack.

Decides the keys of the file and their defaults, each with its reason. `controller.inputs.rig` reads the rig file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, parse_bytes, parse_duration_ns, parse_name
from etloop.contract.base.value_parsers import bounded, integer, one_of, words, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.contract.protocol.endpoint import is_loopback
from etloop.controller.rack.agent_pool import MOST_SLOTS
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.submissions import RackLimits
from etloop.runtime.broker_settings import BrokerSettings, default_port

_BASE_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^?#@]*)?"
)
_DAY_NS: Final = 86_400 * NS_PER_S
_long_time: Final = bounded(parse_duration_ns, NS_PER_S, 3650 * _DAY_NS, format_duration)
_interval: Final = bounded(parse_duration_ns, NS_PER_S // 10, 3600 * NS_PER_S, format_duration)
_size: Final = bounded(parse_bytes, 1, 1 << 60, lambda count: f"{count}B")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long artifacts are kept: the oldest are removed first, whichever bound is reached."""

    age_ns: int
    size_bytes: int
    ended_jobs: int
    """Ended jobs that stay listed after their artifacts are gone."""
    audit_lines: int


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """A rack on one broker: how many requests it accepts and how much it retains there."""

    rack: str
    """Name of the rack in its topics."""
    broker: BrokerSettings
    progress_interval_ns: int = NS_PER_S
    """Least time between two progress messages of one job."""
    requests_per_s: int = 100
    """Beyond it, as many requests again are answered "come back later", and the rest not at all; both are counted."""
    request_bytes: int = 16 << 20
    retained_jobs: int = 1000
    """Number of most recently ended jobs whose state and result the broker retains."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Broker of the rack API; the password is not read yet."""

    settings: GatewaySettings
    password_file: Path | None
    embedded: bool
    """Start an own broker at that address, for a rack on one machine."""


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Address and limits of the HTTP server for metrics, health, results and uploads."""

    host: str
    port: int
    url: str
    """Base URL by which clients reach it, without a trailing slash."""
    tokens: Path | None
    """File of those who may read results and upload; None: any peer may read and none upload."""
    largest_trace_bytes: int
    """Most bytes of one uploaded archive."""
    traces_bytes: int
    """Most bytes of all uploaded archives."""


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """Destination of OpenTelemetry metrics."""

    endpoint: str
    """Base URL of an OTLP/HTTP collector, without the path of a signal."""
    interval_ns: int
    ca_file: Path | None
    authorization_file: Path | None
    """File with the value of the `Authorization` header."""


@dataclass(frozen=True, slots=True)
class RackConfig:
    """Content of `controller.yaml`."""

    rack: str
    """Name of the rack, part of every topic."""
    rig: Path
    state_dir: Path
    scenario_root: Path
    limits: RackLimits
    slots: int
    """Most runs at once on one agent; also bounded by its number of ports."""
    run_memory_bytes: int
    """Limit of the address space of a run's process."""
    free_disk_bytes: int
    """Free disk space below which no job starts."""
    drain_ns: int
    """How long running jobs may continue after SIGTERM."""
    retention: Retention
    allowed_code: AllowedCode
    """Code that a scenario may contain."""
    log_format: LogFormat
    broker: BrokerConfig | None
    """None: no rack API over MQTT."""
    http: HttpConfig | None
    """None: no HTTP."""
    otel: OtelConfig | None
    """None: no metrics are pushed."""
    users: Path | None
    """File of users and their rights; None: every account may do whatever the broker's ACL permits."""


def parse_rack_config(
    text: bytes, source: str, directory: Path, *, embedded_broker: bool = False
) -> RackConfig:
    """Parse the configuration from a YAML text.

    `source` names the file in messages; paths are relative to `directory`. `embedded_broker` has the effect of `mqtt:
    {embedded: true}`. Raises `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source)
    top = read_document(text, file)
    limits = top.section("limits")
    retention = top.section("retention")
    allow = top.section("allow")
    rack = top.optional("rack", parse_name, "rack")
    config = RackConfig(
        rack=rack,
        rig=directory / top.required("rig", words, "", "name the rig file"),
        state_dir=directory / top.required("state_dir", words, "", "name a directory for jobs and results"),
        scenario_root=directory
        / top.required("scenario_root", words, "", "name the directory that traces of scenarios lie below"),
        limits=RackLimits(
            queued_jobs=limits.optional("queued_jobs", integer(1, 100_000), 1000),
            running_jobs=limits.optional("running_jobs", integer(1, 1024), 16),
            scenario_bytes=limits.optional("scenario", _size, 1 << 20),
            job_time_ns=limits.optional("job_time", _long_time, _DAY_NS),
        ),
        slots=limits.optional("runs_per_agent", integer(1, MOST_SLOTS), 8),
        # A plan of 1,024 ranks takes some hundred megabytes; numpy and Arrow reserve more than they use.
        run_memory_bytes=limits.optional("run_memory", _size, 16 << 30),
        free_disk_bytes=limits.optional("free_disk", _size, 256 << 20),
        drain_ns=limits.optional("drain", _long_time, 60 * NS_PER_S),
        retention=Retention(
            age_ns=retention.optional("age", _long_time, 90 * _DAY_NS),
            size_bytes=retention.optional("size", _size, 100 << 30),
            ended_jobs=retention.optional("ended_jobs", integer(1, 10_000_000), 100_000),
            audit_lines=retention.optional("audit_lines", integer(100, 100_000_000), 1_000_000),
        ),
        allowed_code=AllowedCode(
            python_schedules=allow.optional("python_schedules", yes_or_no, False),
            cc_plugins=allow.optional("cc_plugins", yes_or_no, False),
        ),
        log_format=top.optional("logs", one_of({form.value: form for form in LogFormat}), LogFormat.JSON),
        broker=_read_broker(top.section("mqtt"), rack, directory, embedded=embedded_broker)
        if top.has("mqtt") or embedded_broker
        else None,
        http=_read_http(top.section("http"), directory) if top.has("http") else None,
        otel=_read_otel(top.section("otel"), directory) if top.has("otel") else None,
        users=_path(top, "users", directory),
    )
    if config.users is not None and (config.broker is None or config.broker.embedded):
        problem = (
            "the embedded broker knows no users"
            if config.broker is not None
            else "there is no broker with users"
        )
        top.mistake(
            "users", f"{problem}, so that nobody can be one", "run Mosquitto with accounts and an ACL"
        )
    for section in (limits, retention, allow, top):
        section.close()
    file.refuse_mistakes()
    return config


def _read_broker(section: Section, rack: str, directory: Path, *, embedded: bool) -> BrokerConfig:
    tls = section.section("tls")
    embedded = section.optional("embedded", yes_or_no, False) or embedded
    encrypted = section.has("tls")
    broker = BrokerSettings(
        host=section.optional("host", words, "127.0.0.1"),
        port=section.optional("port", integer(1, 65535), default_port(encrypted=encrypted)),
        username=section.optional("username", words, ""),
        ca_file=_path(tls, "ca", directory),
        cert_file=_path(tls, "cert", directory),
        key_file=_path(tls, "key", directory),
        tls=encrypted,
    )
    settings = GatewaySettings(
        rack=rack,
        broker=broker,
        progress_interval_ns=section.optional("progress_interval", _interval, NS_PER_S),
        requests_per_s=section.optional("requests_per_s", integer(1, 100_000), 100),
        request_bytes=section.optional("request", _size, 16 << 20),
        retained_jobs=section.optional("retained_jobs", integer(1, 100_000), 1000),
    )
    password_file = _path(section, "password_file", directory)
    insecure = section.optional("insecure", yes_or_no, False)
    exposed = not encrypted and not is_loopback(f"tcp://{broker.host}:{broker.port}")
    if exposed and not insecure and not embedded:
        problem = f"what is said to {broker.host} crosses the network unencrypted, passwords included"
        remedy = (
            "add tls: {ca: FILE}, or set insecure: true if everybody on this network may command the rack"
        )
        section.mistake("host", problem, remedy)
    if password_file is not None and not broker.username:
        section.mistake(
            "password_file", "a password without a username is never sent", "add username, or leave it out"
        )
    if (broker.cert_file is None) != (broker.key_file is None):
        section.mistake(
            "tls",
            "a certificate needs its key, and a key its certificate",
            "write both cert and key, or neither",
        )
    if embedded and broker.username:
        section.mistake("username", "the embedded broker knows no users", "leave it out, or run Mosquitto")
    if embedded and encrypted:
        section.mistake("tls", "the embedded broker is for one machine and does not encrypt", "run Mosquitto")
    tls.close()
    section.close()
    return BrokerConfig(settings, password_file, embedded)


def _read_http(section: Section, directory: Path) -> HttpConfig:
    host = section.optional("host", words, "127.0.0.1")
    port = section.optional("port", integer(1, 65535), 9420)
    insecure = section.optional("insecure", yes_or_no, False)
    tokens = _path(section, "tokens", directory)
    if not is_loopback(f"tcp://{host}:{port}") and not insecure:
        is_open = tokens is None
        weakness = "asks nobody who he is" if is_open else "is not encrypted"
        problem = f"{host} is reachable from other machines, and HTTP {weakness}"
        consequence = "everybody may read results" if is_open else "tokens may cross this network in clear"
        remedy = f"bind a loopback address behind a proxy of yours, or set insecure: true if {consequence}"
        section.mistake("host", problem, remedy)
    url = section.optional("url", words, f"http://{f'[{host}]' if ':' in host else host}:{port}")
    if not _BASE_URL.fullmatch(url):
        remedy = "write how others reach the server, such as https://rack.example/etloop"
        section.mistake("url", "is not the base URL of a web server", remedy)
    largest_bytes = section.optional("trace", _size, 4 << 30)
    all_bytes = section.optional("traces", _size, 20 << 30)
    if largest_bytes > all_bytes:
        problem = f"{largest_bytes} bytes are more than all traces may have, {all_bytes}"
        section.mistake("trace", problem, "raise http.traces, or lower http.trace")
    section.close()
    return HttpConfig(host, port, url.rstrip("/"), tokens, largest_bytes, all_bytes)


def _read_otel(section: Section, directory: Path) -> OtelConfig:
    config = OtelConfig(
        endpoint=section.optional("endpoint", words, "http://127.0.0.1:4318").rstrip("/"),
        interval_ns=section.optional("interval", _interval, 60 * NS_PER_S),
        ca_file=_path(section, "ca", directory),
        authorization_file=_path(section, "authorization_file", directory),
    )
    url = _BASE_URL.fullmatch(config.endpoint)
    if url is None:
        problem = "is no base URL of an OTLP/HTTP collector"
        section.mistake(
            "endpoint", problem, "write such as https://collector.example:4318; secrets go into files"
        )
    elif (
        url["scheme"] == "http"
        and config.authorization_file is not None
        and not is_loopback(f"tcp://{url['host']}:1")
    ):
        problem = f"the secret of authorization_file would cross the network to {url['host']} unencrypted"
        section.mistake("endpoint", problem, "write https://, or leave authorization_file out")
    section.close()
    return config


def _path(section: Section, key: str, directory: Path) -> Path | None:
    text = section.optional(key, words, "")
    return directory / text if text else None
